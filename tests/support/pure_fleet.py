"""The pure engine over the simulated fleet, in virtual time: no event loop, no store, no sockets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Driver, Outcomes
from strata.core.model import Layer, Model, Mutation
from strata.core.state import STATES
from strata.engine.effects import Act, Answered, Change, Done, Effects, Input, Seen
from strata.engine.explain import Explanation, explain, states
from strata.engine.reconciler import Engine
from strata.engine.settings import EngineSettings
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import NO_FAULTS, Faults, Timing
from strata.virtual.fleet.nodes import SimNodes

T = TypeVar("T")

READY = {"power": "on", "os": "up", "image": "v1", "personality": "active", "config": "r1", "workload": "in"}
"""Everything that a working compute node is."""

BUILT_IN = Model.of(HARDWARE, PROVISIONING, PLATFORM)


def now_or_never(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never really waits."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("it waited")


class Unfed:
    """Answers for a fleet in which nothing feeds anything."""

    name = "feeds"

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        raise NotImplementedError

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return {}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return [""] * len(batch)


class PureFleet:
    """``count`` simulated nodes, led by one engine with epoch 1. ``acts`` and ``changes`` are all that it ever did."""

    def __init__(
        self,
        count: int,
        *,
        settings: EngineSettings | None = None,
        faults: Faults = NO_FAULTS,
        timing: Timing | None = None,
        seed: int = 1,
        model: Model = BUILT_IN,
        more: Layer | None = None,
        step_gap: float = 0.25,
    ) -> None:
        self.model = model if more is None else Model.of(HARDWARE, PROVISIONING, PLATFORM, more)
        self.now = 0.0
        self.nodes = np.arange(count)
        self.sim = SimNodes(count, seed=seed, faults=faults, timing=timing)
        self.drivers: dict[str, Driver] = {
            **sim_drivers(self.sim, lambda: self.now, uids=self.nodes),
            "feeds": Unfed(),
        }
        self.settings = settings
        self.acts: list[tuple[float, Act]] = []
        self.changes: list[tuple[float, Change]] = []
        self.looks = 0
        self.step_gap = step_gap
        self.inputs: list[Input] = []
        self.epoch = 0
        self.wanted: dict[str, str] = {}
        self.restart()

    def restart(self, resume: Mapping[str, Sequence[int]] | None = None) -> None:
        """A new engine that knows nothing but the desires, with a higher epoch. The nodes don't notice."""
        self.epoch += 1
        self.inputs = []
        self.engine = Engine(self.model, self.settings, seed=self.epoch)
        self.engine.add(self.nodes, np.zeros(len(self.nodes), dtype=np.int32), self.now)
        self.engine.lead(0, self.epoch, self.now)
        for budget in self.model.budgets.values():
            size = 256 if budget.per == "cabinet" else len(self.nodes)
            self.bucket(budget.name, (self.nodes // size).tolist().__getitem__)
        self.want(**self.wanted)
        for mutation, begun in (resume or {}).items():
            self.engine.in_flight.resume(mutation, np.array(begun), self.now)

    def bucket(self, budget: str, key: Callable[[int], int]) -> None:
        """Put each node into a bucket of ``budget``."""
        keys = np.array([key(node) for node in self.nodes.tolist()], dtype=np.int32)
        self.engine.admission.budgets.set_buckets(budget, [keys], self.now)

    def want(self, nodes: Sequence[int] | None = None, **values: str) -> None:
        """Desire ``variable=value`` of some nodes, or of all; an empty value takes the desire back."""
        where = self.nodes if nodes is None else np.array(nodes)
        if nodes is None:
            self.wanted |= values
        for variable, value in values.items():
            goals = [(value,) if value else ()]
            self.engine.set_goal(variable, where, goals, np.zeros(len(where), dtype=np.int64))

    def brake(self, nodes: Sequence[int], *, held: bool = False, frozen: bool = False) -> None:
        """Hold or freeze some nodes (or let them go)."""
        where = np.array(nodes)
        flags = np.full(len(where), True)
        self.engine.set_brakes(where, held=flags & held, frozen=flags & frozen)

    def step(self) -> Effects:
        """One step, with all its effects carried out at once; the results are the next step's inputs."""
        inputs, self.inputs = self.inputs, []
        effects = self.engine.step(self.now, inputs)
        self.changes += ((self.now, change) for change in effects.changes)
        self.looks += len(effects.looks)
        for look in effects.looks:
            columns = self._observe(look.driver, look.variables, self._batch(look.nodes))
            self.inputs.append(Seen(look.id, columns))
        for ask in effects.asks:
            driver = self.drivers[self.model.guards[ask.guard].driver]
            self.inputs.append(Answered(ask.id, now_or_never(driver.permits(ask.guard, self._batch(ask.nodes)))))
        for act in effects.acts:
            self.acts.append((self.now, act))
            self.inputs.append(Done(act.generation, self._act(act)))
        return effects

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let virtual time pass; True once ``until`` holds (it is asked after every quiet step)."""
        end = self.now + seconds
        while self.now <= end:
            self.step()
            if not self.inputs:
                if until is not None and until():
                    return True
                self.now = max(self.engine.next_wakeup(self.now), self.now + self.step_gap)
        self.now = end
        return until() if until is not None else True

    def converge(self, seconds: float = 1000.0) -> None:
        """Run until every node is at its goal; fail with the reason of the first that is not."""
        if not self.run(seconds, self.all_ready):
            late = next(node for node in self.nodes.tolist() if self.state(node) not in ("ready", "off"))
            raise AssertionError(f"node {late} after {self.now} s: {self.why(late)}")

    def all_ready(self) -> bool:
        """Whether every node is at its goal."""
        there = [STATES.index("ready"), STATES.index("off")]
        return bool(np.isin(states(self.engine, self.nodes), there).all())

    def state(self, node: int) -> str:
        """One word for a node."""
        return STATES[int(states(self.engine, np.array([node]))[0])]

    def why(self, node: int) -> Explanation:
        """The long answer."""
        return explain(self.engine, node, self.now)

    def acts_on(self, node: int) -> list[str]:
        """The mutations that were sent to a node, in order."""
        return [act.mutation for _, act in self.acts if node in act.nodes]

    def fact(self, node: int, variable: str) -> str:
        """What the engine believes."""
        column = self.engine.table.columns[variable]
        return column.words[column.fact[node]]

    def history(self, node: int, variable: str) -> list[str]:
        """Every value that was recorded for a node."""
        return [change.new for _, change in self.changes if change.variable == variable and node in change.nodes]

    def _batch(self, nodes: np.ndarray[Any, Any], **more: Any) -> Batch:
        return Batch(names=[self.sim.names[node] for node in nodes.tolist()], uids=nodes, **more)

    def _observe(self, driver: str, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        return now_or_never(self.drivers[driver].observe(variables, batch))

    def _act(self, act: Act) -> Outcomes:
        mutation = self.model.mutations[act.mutation]
        columns = self.engine.table.columns
        goals = {name: columns[name].goal_column(act.nodes) for name in self.model.effects(mutation)}
        batch = self._batch(act.nodes, goals=goals, epochs=act.epochs, generation=act.generation)
        return now_or_never(self.drivers[mutation.driver].act(mutation, batch))
