"""What a controller does now and then by itself: takes over the jobs of the dead, and forgets what is too old."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from strata.control.service import Service
from strata.control.settings import Settings
from strata.core.errors import StrataError
from strata.daemon.tasks import cancelled
from strata.power.series import Series
from strata.store.protocol import Store

log = logging.getLogger(__name__)

Forget = Callable[[float], Awaitable[None]]
"""Forgets what is older than a time."""


def start_upkeep(service: Service, settings: Settings, layers: Sequence[Forget], parts: AsyncExitStack) -> None:
    """Go on with it for as long as ``parts`` is open. ``layers``: what else is to forget."""
    task = asyncio.create_task(_upkeep(service, settings, layers), name="upkeep")
    parts.push_async_callback(cancelled, task)


def forgetting(series: Series) -> Forget:
    """Telemetry has retentions of its own, by how coarse it is."""

    async def forget(_: float) -> None:
        await series.prune(time.time())

    return forget


async def _upkeep(service: Service, settings: Settings, layers: Sequence[Forget]) -> None:
    """Take over the jobs of the dead; forget what is too old."""
    pruned = compacted = service.controller.clock.now()
    while True:
        await asyncio.sleep(5)
        now, wall = service.controller.clock.now(), service.controller.clock.wall()
        try:
            await service.jobs_.recover()
            if now - compacted > settings.store.compact_every:
                compacted = now
                await _compact(service.controller.store, settings.store.keep_revisions)
            if now - pruned > settings.retention.prune_every:
                pruned = now
                await service.jobs_.prune()
                living = service.registry.uids[service.registry.alive]
                await service.controller.chronicle.prune(wall - settings.retention.history, living)
                for forget in layers:
                    await forget(wall - settings.retention.history)
                if settings.retention.audit is not None:
                    await service.ledger.prune(wall - settings.retention.audit, "strata")
        except StrataError as error:
            log.warning("upkeep put off", extra={"error": str(error)})


async def _compact(store: Store, keep: int) -> None:
    oldest = await store.revision() - keep
    if oldest > 1:
        await store.compact(oldest)
