"""What a controller does now and then by itself: takes over the operations of the dead, and forgets what is too old."""

from __future__ import annotations

import asyncio
import logging

from strata.core.errors import StrataError
from strata.fleet.fleet import Fleet
from strata.fleet.tasks import cancelled
from strata.store.protocol import Store

log = logging.getLogger(__name__)


def start_upkeep(fleet: Fleet) -> None:
    """Go on with it for as long as the fleet runs."""
    task = asyncio.create_task(_upkeep(fleet), name="upkeep")
    fleet.parts.push_async_callback(cancelled, task)


async def _upkeep(fleet: Fleet) -> None:
    """Take over the operations of the dead; forget what is too old."""
    pruned = compacted = fleet.controller.clock.now()
    while True:
        await asyncio.sleep(5)
        settings = fleet.settings  # anew: it may have been read again
        now, wall = fleet.controller.clock.now(), fleet.controller.clock.wall()
        try:
            await fleet.operations.recover()
            if now - compacted > settings.store.compact_every:
                compacted = now
                await _compact(fleet.store, settings.store.keep_revisions)
            if now - pruned > settings.retention.prune_every:
                pruned = now
                await fleet.operations.prune(wall - settings.retention.operations)
                living = fleet.registry.uids[fleet.registry.alive]
                await fleet.controller.recorder.prune(wall - settings.retention.history, living)
                for forget in fleet.forgets:
                    await forget(wall - settings.retention.history)
                if settings.retention.audit is not None:
                    await fleet.ledger.prune(wall - settings.retention.audit, "strata")
        except StrataError as error:
            log.warning("upkeep put off", extra={"error": str(error)})


async def _compact(store: Store, keep: int) -> None:
    oldest = await store.revision() - keep
    if oldest > 1:
        await store.compact(oldest)
