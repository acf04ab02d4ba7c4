"""The controller: the engine with hands and eyes. Joins the engine, the store and the drivers into a running fleet.

    store ──watch──► registry ──► engine ──► looks, asks, acts ──► drivers
      ▲                             ▲                                │
      └── intents, transitions ─────┴──────────── what was seen ─────┘

It decides nothing about nodes (``strata.engine``) and answers no requests (``strata.control.service``). Several may
share a store: each acts only for the shards that it leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from strata.control.buckets import bucket_keys, bucket_weights
from strata.control.changes import Changes
from strata.control.chronicle import Chronicle
from strata.control.edit_brakes import RETRY
from strata.control.executor import Executor
from strata.control.feed_driver import FeedDriver
from strata.control.intents import Intents
from strata.control.leadership import BATON, Holder, Leadership
from strata.control.metrics import Metrics
from strata.control.registry import Registry
from strata.control.settings import LeadershipSettings
from strata.control.transitions import Transition
from strata.core import intset
from strata.core.column import Indices
from strata.core.driver import Batch, Driver
from strata.core.errors import Compacted, StrataError
from strata.core.model import Model
from strata.core.state import Outcome
from strata.engine.budgets import Shares
from strata.engine.courses import EVENT, FAULT, Elsewhere
from strata.engine.effects import Act, Change, Done, Effects, Input
from strata.engine.explain import STATES, states
from strata.engine.reconciler import Engine
from strata.engine.settings import EngineSettings
from strata.engine.work import Phase
from strata.store.protocol import Event, Store

log = logging.getLogger(__name__)

STEP_GAP = 0.02
"""Seconds between steps at the least: what arrives together is handled together."""

STALE = 7 * 86400.0
"""Seconds after which an intent that nobody ended is believed to be of the past, whatever clocks have jumped."""

BATCHES_AT_ONCE = 8
"""Calls of one driver under way at a time."""


class Clock:
    """The two times: ``now`` for intervals and deadlines, ``wall`` for people."""

    def __init__(self, now: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self.now = now
        self.wall = wall

    def to_wall(self, moment: float) -> float:
        """A moment on the ``now`` clock as people write it."""
        return self.wall() - (self.now() - moment)


class Controller:
    """One process's share in running the fleet."""

    def __init__(
        self,
        store: Store,
        model: Model,
        drivers: Mapping[str, Driver],
        *,
        name: str,
        history: Path | None = None,
        engine: EngineSettings | None = None,
        leadership: LeadershipSettings | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        seed: int = 0,
        step_gap: float = STEP_GAP,
    ) -> None:
        self.store = store
        self.model = model
        self.name = name
        self.clock = clock or Clock()
        self.metrics = metrics or Metrics()
        self.registry = Registry(store, model)
        self.engine = Engine(model, engine, seed)
        self.settings = leadership or LeadershipSettings()
        instance = uuid.UUID(int=seed).hex if seed else uuid.uuid4().hex
        self.intents = Intents(store, name, instance)
        self.chronicle = Chronicle(store, name, history, shards=self.settings.shards)
        self.leadership = Leadership(
            store,
            self.settings,
            Holder(name, instance),
            self.clock.now,
            gained=self._gained,
            lost=self._lost,
            moved=self._divide,
            quiet=self._quiet,
            reached=self.registry.reached,
        )
        self.executor = Executor(
            {FeedDriver.name: FeedDriver(self.registry, self.engine, self.clock.now), **drivers},
            self._deliver,
            at_once=BATCHES_AT_ONCE,
            look_timeout=self.engine.settings.look_timeout,
            metrics=self.metrics,
            clock=self.clock.now,
        )
        self.started = self.clock.wall()
        self.changes = 0
        """Counts everything that a reader of the fleet could see change."""
        self.considered = 0
        """The revision up to which the engine has thought about what people said: states show it."""
        self.trouble = "still loading"
        """Why the controller cannot serve; empty: it can."""
        self.broken = asyncio.Event()
        """Set when the controller cannot go on: the process should end, and be started anew."""
        self._step_gap = step_gap
        self._inbox: list[Input] = []
        self._wake = asyncio.Event()
        self._stepped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._beginning: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load what is known and begin to work."""
        self._tell(await self.registry.load())
        for row in await self.chronicle.open():
            self._mirror(row)
        for key, value in await self.intents.listed():
            self._hear_of(Event(0, key, value))
        self.trouble = ""
        await self.leadership.agree()
        for work in (self._follow, self._run, self.leadership.run, self._housekeeping):
            task = asyncio.create_task(work(), name=work.__qualname__)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """No task ends by itself. One that does was broken by a bug: better no controller than half of one."""
        if not task.cancelled():
            self.trouble = f"{task.get_name()} broke down: {task.exception()!r}"
            log.critical(
                "a part of the controller broke down", exc_info=task.exception(), extra={"part": task.get_name()}
            )
            self.broken.set()

    async def stop(self) -> None:
        """Stop acting, give the lead back, keep what was learnt. Disturbs no node."""
        for task in (*self._tasks, *self._beginning):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._beginning, return_exceptions=True)
        await self.executor.close()
        with contextlib.suppress(StrataError):
            mark = self.intents.mark()
            await self.chronicle.flush()
            self.intents.release(mark)
            await self.intents.sweep()
            await self.leadership.resign()
        await self.chronicle.close()

    def wake(self) -> None:
        """Something changed: step soon."""
        self.changes += 1
        self._wake.set()

    def look_at(self, nodes: Indices) -> None:
        """Somebody says that these have changed: look at them now rather than when it is their turn."""
        self.engine.sight.look_soon(nodes, None, self.clock.now())
        self.wake()

    def want_anew(self, nodes: Indices) -> None:
        """What is wanted of these has its name still, and stands for something else now."""
        self.engine.want_anew(nodes)
        self.look_at(nodes)

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """Ask a guard on behalf of a person: empty for yes, else why not. Nobody to ask is a no."""
        return await self.executor.permits(self.model.guards[guard], batch)

    async def thought(self, revision: int) -> None:
        """Wait until the engine has considered ``revision``, which the registry has reached."""
        while self.considered < revision:
            await self._stepped.wait()

    def batch(self, nodes: Indices, **more: object) -> Batch:
        """Nodes in the form that drivers take."""
        names, roster = self.registry.names, self.registry.roster.nodes
        here = nodes.tolist()
        return Batch(
            names=[names[i] for i in here],
            uids=self.registry.uids[nodes],
            bmcs=[node.bmc if (node := roster[i]) is not None else "" for i in here],
            **more,  # type: ignore[arg-type]
        )

    def counts(self, nodes: Indices | None = None) -> dict[str, int]:
        """How many nodes (of these, or of all) are in each state."""
        nodes = np.flatnonzero(self.registry.alive) if nodes is None else nodes
        counted = np.bincount(states(self.engine, nodes), minlength=len(STATES))
        return {state: int(count) for state, count in zip(STATES, counted, strict=True)}

    # ---- what people say ----

    async def _follow(self) -> None:
        """Keep the registry level with the store, for ever."""
        while True:
            try:
                stream = self.store.watch("", start=self.registry.revision + 1)
                async with contextlib.aclosing(stream):  # type: ignore[type-var]
                    async for events in stream:
                        self.trouble = ""
                        self._take(events)
            except Compacted:
                log.warning("the watch fell behind; listing again")
                with contextlib.suppress(StrataError):
                    self._tell(await self.registry.load())
                    await self.chronicle.catch_up()
            except StrataError as error:
                self.trouble = f"the store cannot be followed: {error}"
                log.warning("watch broke off", extra={"error": str(error)})
                await asyncio.sleep(1.0)

    def _take(self, events: Sequence[Event]) -> None:
        """What a watch brought: others' facts and intents, requests to retry, and everything that people said."""
        self.leadership.lapse()  # what a new leader saw is not for one who still thinks that it leads
        for row in self.chronicle.read(events):
            if row.controller != self.name:
                self._mirror(row)
        for event in events:
            kind, _, _ = event.key.partition("/")
            if kind == "intent" and (event.value is None or not self.intents.is_own(event.key)):
                self._hear_of(event)
            elif kind == RETRY and event.value is not None:
                nodes = self.registry.indices_of(intset.unpack(msgspec.msgpack.decode(event.value)))
                self.engine.retry(nodes[nodes >= 0])
            elif kind == BATON or (kind in ("shard", "controller") and event.value is None):
                self.leadership.poke()
        self._tell(self.registry.apply(events))
        self.wake()

    def _mirror(self, row: Transition) -> None:
        for change in row.changes:
            nodes = self.registry.indices_of(intset.unpack(change.uids))
            self.engine.mirror(change.variable, change.new, nodes[nodes >= 0], self.clock.now())

    def _hear_of(self, event: Event) -> None:
        """Another controller has begun something, or ended it."""
        self.engine.courses.elsewhere.pop(event.key, None)
        if event.value is not None:
            intent = Intents.decode(event.value)
            nodes = self.registry.indices_of(intset.unpack(intent.uids))
            if intent.mutation in self.model.mutations:
                self.engine.courses.elsewhere[event.key] = Elsewhere(
                    intent.mutation, nodes[nodes >= 0], self.clock.now()
                )

    def _tell(self, changes: Changes) -> None:
        """Pass on to the engine what is new in the registry."""
        if not changes:
            return
        registry, engine, now = self.registry, self.engine, self.clock.now()
        if len(changes.removed):
            engine.remove(changes.removed)
        if len(changes.added):
            engine.add(changes.added, self._shards(changes.added), now)
        for variable in self.model.variables:
            nodes = np.union1d(changes.goals_changed.get(variable, changes.added), changes.added)
            if len(nodes):
                goals = registry.goals(variable)
                engine.set_goal(variable, nodes, goals.table, goals.codes[nodes].astype(np.int64))
        braked = np.unique(np.concatenate((changes.added, changes.holds_changed, changes.freezes_changed)))
        if len(braked):
            engine.set_brakes(braked, held=registry.held[braked], frozen=registry.frozen[braked])
        if changes.groups_changed or len(changes.added) or len(changes.removed) or len(changes.nodes_changed):
            self._divide()
        self.wake()

    def _divide(self) -> None:
        """Tell the budgets who is in which bucket, and which part of each is ours."""
        registry = self.registry
        led = np.isin(self._shards(np.arange(registry.size)), list(self.engine.epochs))
        shares = Shares(led, self.leadership.baton)
        self.engine.starts.ask_again()
        for budget in self.model.budgets.values():
            self.engine.starts.budgets.set_buckets(
                budget.name,
                bucket_keys(budget, registry),
                self.clock.now(),
                weights=bucket_weights(budget, registry),
                shares=shares,
            )

    def _shards(self, nodes: Indices) -> npt.NDArray[np.int32]:
        return (self.registry.uids[nodes] % self.settings.shards).astype(np.int32)

    # ---- who leads ----

    async def _gained(self, shards: dict[int, int]) -> None:
        """Before the first act: know what people said up to now, and what the one before us may have begun."""
        await self.registry.reached(max(shards.values()))
        left = await self.intents.left_behind()
        now, wall = self.clock.now(), self.clock.wall()
        for shard, epoch in shards.items():
            self.engine.lead(shard, epoch, now)
        stale = []
        for key, intent in left:
            mutation = self.model.mutations.get(intent.mutation)
            if mutation is None or wall - intent.started > 2 * mutation.timeout + STALE:
                stale.append(key)
                continue
            nodes = self.registry.indices_of(intset.unpack(intent.uids))
            nodes = nodes[nodes >= 0]
            ours = nodes[np.isin(self._shards(nodes), list(shards))]
            if len(ours):
                self.intents.adopt(key, self.engine.courses.resume(intent.mutation, ours, now))
                self.engine.courses.elsewhere.pop(key, None)
            elif not len(nodes):
                stale.append(key)
        self._divide()
        await self.intents.forget(stale)
        self.metrics.led_shards.set(len(self.leadership.epochs) + len(shards))
        log.info("leading", extra={"shards": sorted(shards), "left_behind": len(left)})
        self.wake()

    async def _quiet(self) -> None:
        """Until every act that was decided under the old shares is written down, or never will be."""
        while self._beginning:
            await asyncio.gather(*self._beginning, return_exceptions=True)

    def _lost(self, shards: list[int]) -> None:
        for shard in shards:
            self.engine.lead(shard, 0, self.clock.now())
        # Now, and not at the next step: we may lead again before it, and must find what we left behind.
        self._set_aside(self.engine.courses.take_abandoned())
        self._divide()
        self.metrics.led_shards.set(len(self.leadership.epochs))
        self.wake()

    # ---- the loop ----

    def _deliver(self, item: Input) -> None:
        if isinstance(item, Done) and item.outcomes is not None and (item.outcomes.codes == Outcome.FENCED).any():
            self.leadership.poke()  # somebody newer may lead: find out
        self._inbox.append(item)
        self.wake()

    async def _run(self) -> None:
        """Step whenever something arrives or is due, for ever."""
        while True:
            self._wake.clear()
            self.leadership.lapse()
            inputs, self._inbox = self._inbox, []
            begun, told = self.clock.now(), self.registry.revision
            effects = self.engine.step(begun, inputs)
            self.considered = told
            self._stepped.set()
            self._stepped.clear()  # whoever waited goes on all the same
            self.metrics.step_seconds.observe(self.clock.now() - begun)
            self._carry_out(effects)
            await asyncio.sleep(self._step_gap)
            now = self.clock.now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self.engine.next_wakeup(now) - now)):
                    await self._wake.wait()

    def _carry_out(self, effects: Effects) -> None:
        if effects.changes:
            self._count(effects.changes)
            self.chronicle.add(effects.changes, self.registry.uids, self.clock.wall(), self.engine.epochs)
            self.changes += 1
        self.intents.finished(effects.settled)
        self._set_aside(effects.abandoned)
        for look in effects.looks:
            self.executor.look(look.id, look.driver, look.variables, self.batch(look.nodes), look.urgency)
        for ask in effects.asks:
            self.executor.ask(ask.id, self.model.guards[ask.guard], self.batch(ask.nodes))
        if effects.acts:
            task = asyncio.create_task(self._begin(effects.acts))
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    def _set_aside(self, abandoned: Sequence[int]) -> None:
        """From here on these are known by their rows, and gone when whoever ends them removes those."""
        for generation in abandoned:
            one = self.engine.courses.elsewhere.pop(f"generation {generation}", None)
            key = self.intents.abandon(generation)
            if one is not None and key is not None:
                self.engine.courses.elsewhere[key] = one

    def _count(self, changes: Sequence[Change]) -> None:
        """How mutations ended, and who is in a fault state now."""
        for change in changes:
            mutation = self.model.mutations.get(change.cause)
            if change.variable == EVENT and change.new.startswith(FAULT):
                self.metrics.faults.inc(len(change.nodes))
            elif change.variable == EVENT and (failed := change.new.partition(" failed: "))[1]:
                self.metrics.mutations.labels(failed[0], "failed").inc(len(change.nodes))
            elif mutation is not None and change.variable == mutation.variable:
                self.metrics.mutations.labels(mutation.name, "succeeded").inc(len(change.nodes))

    async def _begin(self, acts: Sequence[Act]) -> None:
        """Make the intent durable, then act. If it cannot be made durable, nothing is done."""
        # Built before the first await: an index means the same node only until the registry changes.
        batches = [self._act_batch(act) for act in acts]
        written = {batch.generation: (act.mutation, batch.uids) for act, batch in zip(acts, batches, strict=True)}
        try:
            await self.intents.write(written, self.clock.wall())
        except StrataError as error:
            log.warning("nothing was begun: the intent could not be written", extra={"error": str(error)})
            for act in acts:
                self._deliver(Done(act.generation, None, f"the store refused the intent: {error}"))
            return
        for act, batch in zip(acts, batches, strict=True):
            allowed = functools.partial(self.engine.may_begin, act.generation, act.nodes)
            self.executor.act(self.model.mutations[act.mutation], batch, act.urgency, allowed)

    def _act_batch(self, act: Act) -> Batch:
        columns = self.engine.table.columns
        touched = self.model.effects(self.model.mutations[act.mutation])
        goals = {name: columns[name].goal_column(act.nodes) for name in touched}
        lead = functools.partial(self._valid_until, int(self.engine.work.shard[act.nodes[0]]), int(act.epochs[0]))
        return self.batch(act.nodes, goals=goals, epochs=act.epochs, generation=act.generation, valid_until=lead)

    def _valid_until(self, shard: int, epoch: int) -> float:
        """Until when an act for a shard may be begun: as long as the very lead lasts under which it was decided."""
        return self.leadership.valid_until if self.engine.epochs.get(shard) == epoch else -math.inf

    async def _housekeeping(self) -> None:
        """Write down what happened, and tidy up, a few times a second."""
        tick = 0
        while True:
            await asyncio.sleep(0.2)
            tick += 1
            try:
                mark = self.intents.mark()
                await self.chronicle.flush()
                self.intents.release(mark)
                self._forget_unwritten()
                if tick % 25 == 0:
                    await self.intents.sweep()
            except StrataError as error:
                log.warning("history not written, kept for later", extra={"error": str(error)})
            if tick % 25 == 0:
                self._measure()

    def _forget_unwritten(self) -> None:
        unwritten, self.chronicle.unwritten = self.chronicle.unwritten, []
        for variable, uids in unwritten:
            nodes = self.registry.indices_of(uids)
            if variable in self.model.variables:
                self.engine.sight.unrecord(variable, nodes[nodes >= 0])

    def queue(self) -> dict[str, int]:
        """What the engine and the drivers are busy with."""
        work = self.engine.work
        busy = {phase.name.lower(): int((work.phase == phase).sum()) for phase in Phase if phase is not Phase.IDLE}
        return {**busy, "driver_waiting": self.executor.waiting, "driver_running": self.executor.running}

    def _measure(self) -> None:
        self.metrics.fleet(self.counts(), self.queue())
        self.metrics.store_revision.set(self.registry.revision)
