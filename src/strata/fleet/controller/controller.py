"""The controller: joins the engine, the store and the drivers into a running fleet.

    store ──watch──► registry ──► engine ──► looks, asks, acts ──► drivers
      ▲                             ▲                                │
      └── intents, transitions ─────┴──────────── what was seen ─────┘

Here are the loop and its upkeep: ``Follower`` tells the engine what the store says, ``ShardTakeover`` which shards it
may act for, and ``Dispatcher`` begins what it decided. The controller decides nothing about nodes (``strata.engine``)
and answers no requests (the rooms' services). Several may share a store: each acts only for the shards that it leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from strata.core.column import Column, Indices
from strata.core.driver import Batch, Driver
from strata.core.errors import StrataError
from strata.core.model import Budget, Model
from strata.core.state import STATES, Outcome, State
from strata.engine import faults
from strata.engine.effects import Change, Done, Effects, Input, Told
from strata.engine.explain import states
from strata.engine.progress import Phase
from strata.engine.reconciler import Engine
from strata.engine.settings import EngineSettings
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.dispatch import Dispatcher
from strata.fleet.controller.driver_calls import DriverCalls
from strata.fleet.controller.follower import Follower
from strata.fleet.controller.intents import Intents
from strata.fleet.controller.leadership import Holder
from strata.fleet.controller.takeover import ShardTakeover
from strata.fleet.history.recorder import HistoryRecorder
from strata.fleet.metrics import Metrics
from strata.fleet.nodes.batches import batch_of
from strata.fleet.registry.registry import Registry
from strata.fleet.settings import LeadershipSettings
from strata.store.protocol import Store

log = logging.getLogger(__name__)

STEP_GAP = 0.02
"""Seconds between steps at the least: what arrives together is handled together."""
_GAPS, _LONGEST_GAP = 2.0, 0.25
"""After a step there is a pause so many times as long as it took, up to so many seconds: others have their turn."""

BATCHES_AT_ONCE = 8
"""Calls of one driver under way at a time."""


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
        self.recorder = HistoryRecorder(store, name, history, shards=self.settings.shards)
        self.driver_calls = DriverCalls(
            drivers,
            self._deliver,
            at_once=BATCHES_AT_ONCE,
            look_timeout=self.engine.settings.look_timeout,
            metrics=self.metrics,
            clock=self.clock.now,
        )
        self._dispatcher = Dispatcher(
            self.registry,
            self.engine,
            self.intents,
            self.driver_calls,
            self.clock,
            valid_until=lambda: self.leadership.valid_until,
            deliver=self._deliver,
        )
        self._takeover = ShardTakeover(
            self.registry,
            self.engine,
            self.intents,
            self.settings,
            Holder(name, instance),
            self.clock,
            self.metrics,
            quiet=self._dispatcher.quiet,
            wake=self.wake,
        )
        self.leadership = self._takeover.leadership
        self._follower = Follower(
            name,
            self.registry,
            self.engine,
            self.recorder,
            self.intents,
            self._takeover,
            self.clock,
            wake=self.wake,
        )
        self.started = self.clock.wall()
        self.changes = 0
        """Counts everything that a reader of the fleet could see change."""
        self.considered = 0
        """The revision up to which the engine has thought about what people said: states show it."""
        self.restarted: list[Callable[[Indices], None]] = []
        """Called with nodes that were restarted by hand."""
        self.switched: list[Callable[[Indices], None]] = []
        """Called with nodes whose power somebody is about to switch by hand."""
        self.noticed: list[Callable[[Effects], None]] = []
        """Called with what came of each step of the engine: what has changed, and what is begun."""
        self.broken = asyncio.Event()
        """Set when the controller cannot go on: the process should end, and be started anew."""
        self._broke = ""
        self._step_gap = step_gap
        self._inbox: list[Input] = []
        self._wake = asyncio.Event()
        self._stepped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Load what is known and begin to work."""
        await self._follower.load()
        await self.leadership.agree()
        for work in (self._follower.run, self._run, self.leadership.run, self._housekeeping):
            task = asyncio.create_task(work(), name=work.__qualname__)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """No task ends by itself. One that does was broken by a bug: better no controller than half of one."""
        if not task.cancelled():
            self._broke = f"{task.get_name()} broke down: {task.exception()!r}"
            log.critical(
                "a part of the controller broke down", exc_info=task.exception(), extra={"part": task.get_name()}
            )
            self.broken.set()

    async def stop(self) -> None:
        """Stop acting, give the lead back, keep what was learnt. Disturbs no node."""
        for task in self._tasks:
            task.cancel()
        await self._dispatcher.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.driver_calls.close()
        with contextlib.suppress(StrataError):
            mark = self.intents.mark()
            await self.recorder.flush()
            self.intents.release(mark)
            await self.intents.sweep()
            await self.leadership.resign()
        await self.recorder.close()

    @property
    def trouble(self) -> str:
        """Why the controller cannot serve; empty: it can."""
        return self._broke or self._follower.trouble

    def wake(self) -> None:
        """Something changed: step soon."""
        self.changes += 1
        self._wake.set()

    def look_at(self, nodes: Indices) -> None:
        """Somebody says that these have changed: look at them now rather than when it is their turn."""
        self.engine.facts.schedule_look(nodes, None, self.clock.now())
        self.wake()

    def note_restart(self, nodes: Indices) -> None:
        """Somebody had these restarted by hand."""
        self.engine.restarted(nodes, self.clock.now())
        for listener in self.restarted:
            listener(nodes)
        self.wake()

    def tell(self, nodes: Indices, columns: Mapping[str, Column], source: str, *, ago: float = 0.0) -> None:
        """Facts that ``source`` reports by itself, as they were so many seconds ``ago``: believed in the next step, of
        nodes that we lead."""
        self._deliver(Told(nodes, columns, source, self.clock.now() - ago))

    def look_soon(self, names: Iterable[str]) -> None:
        """The same, of nodes by name; names that are not known are passed over."""
        found = np.array([self.registry.find(name) for name in names], dtype=np.int64)
        if len(found := found[found >= 0]):
            self.look_at(found)

    def leads(self, name: str) -> bool:
        """Whether this process looks after a node."""
        index = self.registry.find(name)
        return index >= 0 and bool(self.engine.progress.epoch[index] > 0)

    def set_budget(self, budget: Budget) -> None:
        """Go by other numbers of a budget of the model from now on."""
        self.engine.admission.budgets.set_numbers(budget)
        self._takeover.divide()
        self.wake()

    def renew_goal(self, nodes: Indices) -> None:
        """What is wanted of these has its name still, and stands for something else now."""
        self.engine.renew_goal(nodes, self.clock.now())
        self.look_at(nodes)

    def record_event(self, nodes: Indices, what: str, source: str) -> None:
        """Note for the history what befell nodes, as ``source`` saw it; only of those that we lead."""
        change = Change(faults.EVENT, "", what, source, "", nodes)
        self.recorder.add([change], self.registry.uids, self.clock.wall(), self.engine.epochs)
        self.changes += 1

    def agent_restarted(self, name: str) -> None:
        """Note for the history that a node's agent was started again."""
        if (index := self.registry.find(name)) >= 0:
            nodes = np.array([index], dtype=np.int64)
            self.record_event(nodes, "its agent was started again: the one before ended without a word", "agent")

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """Ask a guard on behalf of a person: empty for yes, else why not. Nobody to ask is a no."""
        return await self.driver_calls.permits(self.model.guards[guard], batch)

    async def wait_considered(self, revision: int) -> None:
        """Wait until the engine has considered ``revision``, which the registry has reached."""
        while self.considered < revision:
            await self._stepped.wait()

    async def stepped(self) -> None:
        """Wait until the engine has taken another step."""
        await self._stepped.wait()

    def counts(self, nodes: Indices | None = None) -> dict[State, int]:
        """How many nodes (of these, or of all) are in each state."""
        nodes = np.flatnonzero(self.registry.alive) if nodes is None else nodes
        counted = np.bincount(states(self.engine, nodes), minlength=len(STATES))
        return {state: int(count) for state, count in zip(STATES, counted, strict=True)}

    def queue(self, nodes: Indices | None = None) -> dict[str, int]:
        """What the engine and the drivers are busy with; of ``nodes``, what the engine is."""
        phases = self.engine.progress.phase if nodes is None else self.engine.progress.phase[nodes]
        busy = {phase.name.lower(): int((phases == phase).sum()) for phase in Phase if phase is not Phase.IDLE}
        if nodes is not None:
            return busy  # whose a call of a driver is, nobody knows any more
        return {**busy, "driver_waiting": self.driver_calls.waiting, "driver_running": self.driver_calls.running}

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
            # A step over a large fleet costs much whatever it is about: so much more goes into the next one.
            pause = min(_LONGEST_GAP, _GAPS * (self.clock.now() - begun))
            await asyncio.sleep(max(self._step_gap, pause))
            now = self.clock.now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self.engine.next_wakeup(now) - now)):
                    await self._wake.wait()

    def _carry_out(self, effects: Effects) -> None:
        if effects.changes or effects.acts:
            for take in self.noticed:
                take(effects)
        if effects.changes:
            self._count(effects.changes)
            self.recorder.add(effects.changes, self.registry.uids, self.clock.wall(), self.engine.epochs)
            self.changes += 1
        self.intents.finished(effects.settled)
        self._takeover.set_aside(effects.abandoned)
        for look in effects.looks:
            self.driver_calls.look(
                look.id, look.driver, look.variables, batch_of(self.registry, look.nodes), look.urgency
            )
        for ask in effects.asks:
            self.driver_calls.ask(ask.id, self.model.guards[ask.guard], batch_of(self.registry, ask.nodes))
        if effects.acts:
            self._dispatcher.begin(effects.acts)

    def _count(self, changes: Sequence[Change]) -> None:
        """How mutations ended, and who is in a fault state now."""
        for change in changes:
            mutation = self.model.mutations.get(change.cause)
            if change.variable == faults.EVENT and faults.named(change.new):
                self.metrics.faults.inc(len(change.nodes))
            elif change.variable == faults.EVENT and (failed := change.new.partition(" failed: "))[1]:
                self.metrics.mutations.labels(failed[0], "failed").inc(len(change.nodes))
            elif mutation is not None and change.variable == mutation.variable:
                self.metrics.mutations.labels(mutation.name, "succeeded").inc(len(change.nodes))

    async def _housekeeping(self) -> None:
        """Write down what happened, and tidy up, a few times a second."""
        tick = 0
        while True:
            await asyncio.sleep(0.2)
            tick += 1
            try:
                mark = self.intents.mark()
                await self.recorder.flush()
                self.intents.release(mark)
                self._forget_unwritten()
                if tick % 25 == 0:
                    await self.intents.sweep()
            except StrataError as error:
                log.warning("history not written, kept for later", extra={"error": str(error)})
            if tick % 25 == 0:
                self._measure()

    def _forget_unwritten(self) -> None:
        unwritten, self.recorder.unwritten = self.recorder.unwritten, []
        for variable, uids in unwritten:
            nodes = self.registry.indices_of(uids)
            if variable in self.model.variables:
                self.engine.facts.mark_unrecorded(variable, nodes[nodes >= 0])

    def _measure(self) -> None:
        self.metrics.fleet(self.counts(), self.queue())
        self.metrics.store_revision.set(self.registry.revision)
