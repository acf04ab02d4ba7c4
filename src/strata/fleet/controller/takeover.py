"""What follows from leading a part of the fleet: what the one before us began is taken over, what we lose is let go,
and the budgets are divided anew. Who leads what is decided in ``strata.fleet.controller.leadership``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.distinct import among
from strata.core.model import LIMITS, Budget
from strata.core.xname import SYSTEM
from strata.engine.budgets import Amounts, Keys, Shares
from strata.engine.reconciler import Engine
from strata.fleet.columns import Indices
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.intents import Intents
from strata.fleet.controller.leadership import Holder, Leadership
from strata.fleet.metrics import Metrics
from strata.fleet.registry.registry import Registry
from strata.fleet.settings import LeadershipSettings

log = logging.getLogger(__name__)

STALE = 7 * 86400.0
"""Seconds after which an intent that nobody ended is believed to be of the past, whatever clocks have jumped."""


class ShardTakeover:
    """Tells the engine what it may act for. ``quiet()`` returns once all that was decided before is written down."""

    def __init__(
        self,
        registry: Registry,
        engine: Engine,
        intents: Intents,
        settings: LeadershipSettings,
        me: Holder,
        clock: Clock,
        metrics: Metrics,
        *,
        quiet: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._model = registry.model
        self._engine = engine
        self._intents = intents
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._metrics.shards.set(settings.shards)
        self._wake = wake
        self._astray: set[str] = set()
        self.leadership = Leadership(
            registry.store,
            settings,
            me,
            clock.now,
            gained=self._gained,
            lost=self._lost,
            moved=self.divide,
            quiet=quiet,
            reached=registry.reached,
        )

    def shards(self, nodes: Indices) -> npt.NDArray[np.int32]:
        """The shard that each node is in."""
        return (self._registry.uids[nodes] % self._settings.shards).astype(np.int32)

    def divide(self) -> None:
        """Tell the budgets who is in which bucket, and which part of each is ours."""
        registry = self._registry
        led = among(self.shards(np.arange(registry.size)), list(self._engine.epochs))
        shares = Shares(led, self.leadership.baton)
        self._engine.admission.ask_again()
        for budget in self._model.budgets.values():
            if budget.per == LIMITS:
                keys, most = limit_buckets(registry)
                now = self._clock.now()
                self._engine.admission.budgets.set_buckets(budget.name, keys, now, shares=shares, most=most)
                continue
            keys = bucket_keys(budget, registry)
            self._warn(budget, keys)
            self._engine.admission.budgets.set_buckets(
                budget.name,
                keys,
                self._clock.now(),
                weights=bucket_weights(budget, registry),
                shares=shares,
            )

    def _warn(self, budget: Budget, keys: Sequence[Keys]) -> None:
        """Say once, until it is mended, that a budget brakes otherwise than somebody meant."""
        astray = budget.per != "fleet" and not np.array_equal(keys, _divided(budget, self._registry))
        if astray and budget.name not in self._astray:
            log.warning(
                "no node is in a bucket of this budget; it is kept for the whole fleet instead",
                extra={"budget": budget.name, "per": budget.per},
            )
        (self._astray.add if astray else self._astray.discard)(budget.name)

    def set_aside(self, abandoned: Sequence[int]) -> None:
        """From here on these are known by their rows, and gone when whoever ends them removes those."""
        for generation in abandoned:
            one = self._engine.in_flight.foreign.pop(f"generation {generation}", None)
            key = self._intents.abandon(generation)
            if one is not None and key is not None:
                self._engine.in_flight.foreign[key] = one

    async def _gained(self, shards: dict[int, int]) -> None:
        """Before the first act: know what people said up to now, and what the one before us may have begun."""
        await self._registry.reached(max(shards.values()))
        left = await self._intents.left_behind()
        now, wall = self._clock.now(), self._clock.wall()
        for shard, epoch in shards.items():
            self._engine.lead(shard, epoch, now)
        stale = []
        for key, intent in left:
            mutation = self._model.mutations.get(intent.mutation)
            if mutation is None or wall - intent.started > 2 * mutation.timeout + STALE:
                stale.append(key)
                continue
            nodes = self._registry.indices_of(intset.unpack(intent.uids))
            nodes = nodes[nodes >= 0]
            ours = nodes[among(self.shards(nodes), list(shards))]
            if len(ours):
                self._intents.adopt(key, self._engine.in_flight.resume(intent.mutation, ours, now))
                self._engine.in_flight.foreign.pop(key, None)
            elif not len(nodes):
                stale.append(key)
        self.divide()
        await self._intents.forget(stale)
        self._metrics.led_shards.set(len(self.leadership.epochs) + len(shards))
        log.info("leading", extra={"shards": sorted(shards), "left_behind": len(left)})
        self._wake()

    def _lost(self, shards: list[int]) -> None:
        for shard in shards:
            self._engine.lead(shard, 0, self._clock.now())
        # Now, and not at the next step: we may lead again before it, and must find what we left behind.
        self.set_aside(self._engine.in_flight.take_abandoned())
        self.divide()
        self._metrics.led_shards.set(len(self.leadership.epochs))
        self._wake()


def bucket_keys(budget: Budget, registry: Registry) -> list[Keys]:
    """Which bucket of a budget each node is in, by division of the fleet; -1 where the budget does not concern it.

    One whose group, label or location no node has would brake nothing: it is kept for the whole fleet."""
    everyone = [np.where(registry.alive, 0, -1).astype(np.int32)]
    if budget.per == "fleet":
        return everyone
    keys = _divided(budget, registry)
    kind, _, name = budget.per.partition(":")
    if any((division >= 0).any() for division in keys) or not registry.alive.any():
        return keys
    if kind == "group" and (name in registry.groups if name else len(registry.groups)):
        return keys  # an empty group is nobody
    if kind not in ("group", "label") and not registry.location(SYSTEM.type).codes.any():
        return keys  # where nothing has a location, no budget goes by it
    return everyone


def limit_buckets(registry: Registry) -> tuple[list[Keys], list[Amounts]]:
    """The limits that are set now, as divisions of the fleet: what each node is in, and what each bucket allows.
    Buckets without a node in common share a division."""
    keys: list[Keys] = []
    most: list[list[float]] = []
    for _, limit in sorted(registry.brakes.limits.items()):
        for bucket in limit.buckets:
            nodes = registry.indices_of(intset.unpack(bucket.members))
            nodes = nodes[nodes >= 0]
            at = next((at for at, division in enumerate(keys) if (division[nodes] == -1).all()), len(keys))
            if at == len(keys):
                keys.append(np.full(registry.size, -1, dtype=np.int32))
                most.append([])
            keys[at][nodes] = len(most[at])
            most[at].append(bucket.most)
    return keys, [np.array(amounts, dtype=np.float64) for amounts in most]


def _divided(budget: Budget, registry: Registry) -> list[Keys]:
    alive = registry.alive
    kind, _, name = budget.per.partition(":")
    if kind == "group":
        names = [name] if name else sorted(registry.groups)
        return [
            np.where(registry.groups.mask(n) & alive, 0, -1).astype(np.int32) for n in names if n in registry.groups
        ]
    words = registry.label(name) if kind == "label" else registry.location(kind)
    # Word 0 is "none": a node without that location or label is not braked by this budget.
    return [np.where(alive, words.codes - 1, -1).astype(np.int32)]


def bucket_weights(budget: Budget, registry: Registry) -> Amounts | None:
    """What each node counts for in a budget; None: one."""
    if not budget.weight:
        return None
    words = registry.label(budget.weight)
    values = np.ones(len(words.table))
    for code, text in enumerate(words.table):
        with contextlib.suppress(ValueError):
            values[code] = max(0.0, float(text))
    weights: Amounts = values[words.codes]
    return weights
