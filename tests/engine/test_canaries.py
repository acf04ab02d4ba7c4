"""What nobody has seen work is tried on one node first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Layer, Model, Mutation, Variable
from strata.core.state import Outcome
from strata.engine.in_flight import ForeignMutation
from strata.engine.settings import EngineSettings
from strata.virtual.fleet.faults import Timing
from support.pure_fleet import READY, PureFleet

QUICK = Timing(scale=0.1)
PUTS = ("load-image", "switch-image")


class Images:
    """The node driver with images that can be bad, and a name that can come to stand for another build."""

    name = "node"

    def __init__(self, fleet: PureFleet) -> None:
        self._fleet = fleet
        self._real = fleet.drivers["node"]
        self._old: set[int] = set()
        self.bad: set[str] = set()
        self.broken: set[int] = set()
        self.breaks_first = False
        """Whoever is given an image first turns out to be broken."""
        fleet.drivers["node"] = self

    def promote(self) -> None:
        """The name that all nodes want stands for another build from now on."""
        self._old = set(self._fleet.nodes.tolist())
        self._fleet.engine.renew_goal(self._fleet.nodes, self._fleet.now)
        self._fleet.engine.facts.schedule_look(self._fleet.nodes, None, self._fleet.now)

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        if mutation.name not in PUTS:
            return await self._real.act(mutation, batch)
        goals, uids = batch.goals["image"].values(), batch.uids.tolist()
        if self.breaks_first and not self.broken:
            self.broken.add(uids[0])
        good = [i for i, node in enumerate(uids) if goals[i] not in self.bad and node not in self.broken]
        outcomes = Outcomes.all(Outcome.FAILED, len(batch), "it does not start")
        if good:
            places = np.array(good)
            done = await self._real.act(mutation, batch.take(places))
            outcomes.codes[places] = done.codes
            self._old -= {uids[place] for place in good}
        return outcomes

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        seen = dict(await self._real.observe(variables, batch))
        if "image" in seen:
            words = zip(seen["image"].values(), batch.uids.tolist(), strict=True)
            seen["image"] = Column.of(f"{word}@old" if node in self._old else word for word, node in words)
        return seen

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return await self._real.permits(guard, batch)


def tried(fleet: PureFleet, since: int = 0) -> list[int]:
    """The nodes that were given an image, in order, each once."""
    acts = [act for _, act in fleet.acts[since:] if act.mutation in PUTS]
    return list(dict.fromkeys(node for act in acts for node in act.nodes.tolist()))


def running(count: int, settings: EngineSettings | None = None) -> tuple[PureFleet, Images]:
    """Nodes that do their work with v1."""
    fleet = PureFleet(count, timing=QUICK, settings=settings)
    images = Images(fleet)
    fleet.want(**READY)
    fleet.converge()
    return fleet, images


@pytest.mark.slow
def test_a_bad_image_is_tried_on_one_node_and_the_others_keep_what_they_run() -> None:
    fleet, images = running(8, EngineSettings(fault_retry=0))
    images.bad.add("v2")
    begun = len(fleet.acts)
    fleet.want(image="v2")
    fleet.run(3600)
    assert tried(fleet, begun) == [0]
    assert fleet.state(0) == "faulted"
    assert {fleet.state(node) for node in range(1, 8)} == {"waiting"}
    assert {fleet.fact(node, "workload") for node in range(1, 8)} == {"in"}, "none of the others was even drained"
    blocker = fleet.why(5).blockers[0]
    assert (blocker.kind, blocker.name) == ("canary", "0")
    assert "it does not start" in blocker.detail
    assert [(c.node, c.waiting) for c in fleet.engine.canaries.waiting(fleet.nodes)] == [(0, 7)]


@pytest.mark.slow
def test_the_others_follow_when_the_canary_is_ready() -> None:
    fleet, _ = running(8)
    begun = len(fleet.acts)
    fleet.want(image="v2")
    assert fleet.run(600, lambda: 0 in tried(fleet, begun))
    assert fleet.run(600, lambda: fleet.state(0) == "ready")
    assert fleet.fact(0, "workload") == "in"
    fleet.converge()
    assert sorted(tried(fleet, begun)) == list(range(8))


@pytest.mark.slow
def test_nobody_is_drained_before_the_canary_has_its_workload_again() -> None:
    fleet, _ = running(6)
    begun = len(fleet.acts)
    fleet.want(image="v2")
    fleet.converge()
    order = [(act.mutation, act.nodes.tolist()) for _, act in fleet.acts[begun:]]
    joined = next(i for i, (name, nodes) in enumerate(order) if name == "join-workload" and nodes == [0])
    assert {tuple(nodes) for _, nodes in order[:joined]} == {(0,)}


@pytest.mark.slow
def test_a_build_behind_the_same_name_is_tried_on_one_node_too() -> None:
    fleet, images = running(8, EngineSettings(fault_retry=0))
    images.bad.add("v1")
    begun = len(fleet.acts)
    images.promote()
    fleet.run(3600)
    assert tried(fleet, begun) == [0]
    assert fleet.fact(7, "image") == "v1@old"


@pytest.mark.slow
def test_what_was_seen_before_a_promotion_proves_nothing_of_the_new_build() -> None:
    """Looks at a large fleet come back in parts: some facts are older than the promotion."""
    fleet, images = running(8, EngineSettings(fault_retry=0, look_batch=2))
    images.bad.add("v1")
    begun = len(fleet.acts)
    images.promote()
    fleet.engine.facts.observers["node"].next[7] = fleet.now + 60
    fleet.run(30)
    assert tried(fleet, begun) == [0]


@pytest.mark.slow
def test_a_build_that_some_node_runs_well_is_brought_back_to_all_at_once() -> None:
    fleet, images = running(8, EngineSettings(fault_retry=0))
    images.bad.add("v2")
    fleet.want(image="v2")
    fleet.run(600)
    begun = len(fleet.acts)
    fleet.want(image="v1")
    fleet.converge()
    assert set(tried(fleet, begun)) <= {0}, "the others have it still"


@pytest.mark.slow
def test_a_node_that_hangs_is_restarted_whatever_a_canary_is_waited_for() -> None:
    fleet, images = running(4, EngineSettings(fault_retry=0))
    images.bad.add("v2")
    fleet.want(image="v2")
    fleet.run(3600)
    fleet.sim.put(np.array([2]), now=fleet.now, os="hung")
    assert fleet.run(600, lambda: "power-off" in fleet.acts_on(2)), fleet.why(2)
    assert fleet.fact(1, "workload") == "in", "whoever runs something waits as before"


@pytest.mark.slow
def test_a_restart_in_the_middle_has_the_same_canary() -> None:
    fleet, images = running(8, EngineSettings(fault_retry=0))
    images.bad.add("v2")
    begun = len(fleet.acts)
    fleet.want(image="v2")
    assert fleet.run(600, lambda: "leave-workload" in fleet.acts_on(0))
    fleet.restart()
    fleet.run(600)
    fleet.restart(resume={"switch-image": [0]})
    fleet.run(3600)
    assert tried(fleet, begun) == [0]


@pytest.mark.slow
def test_a_canary_that_faulted_before_a_restart_is_still_waited_for() -> None:
    fleet, images = running(4, EngineSettings(fault_retry=0))
    images.bad.add("v2")
    fleet.want(image="v2")
    fleet.run(3600)
    said = fleet.history(0, "event")[-1]
    begun = len(fleet.acts)
    fleet.epoch += 1
    fleet.engine.lead(0, 0, fleet.now)
    fleet.restart()
    fleet.engine.lead(0, 0, fleet.now)
    fleet.engine.mirror("event", said, np.array([0]), fleet.now)
    fleet.engine.progress.not_before[0] = np.inf
    fleet.engine.lead(0, fleet.epoch, fleet.now)
    fleet.run(600)
    assert said.startswith("fault: switch-image failed")
    assert tried(fleet, begun) == []
    assert fleet.why(2).blockers[0].name == "0"


@pytest.mark.slow
def test_when_a_person_holds_the_canary_another_node_is_the_next() -> None:
    fleet, images = running(4, EngineSettings(fault_retry=0))
    images.broken.add(0)
    fleet.want(image="v2")
    fleet.run(3600)
    assert fleet.state(0) == "faulted"
    fleet.brake([0], held=True)
    assert fleet.run(600, lambda: all(fleet.state(node) == "ready" for node in (1, 2, 3))), fleet.why(2)


@pytest.mark.slow
def test_a_broken_node_does_not_keep_a_machine_from_starting() -> None:
    fleet = PureFleet(20, timing=QUICK, settings=EngineSettings(fault_retry=0))
    images = Images(fleet)
    images.breaks_first = True
    fleet.want(**READY)

    def all_others_ready() -> bool:
        return all(fleet.state(node) == "ready" for node in range(20) if node not in images.broken)

    assert fleet.run(600, all_others_ready), fleet.why(5)
    first, second, *_ = (act.nodes.tolist() for _, act in fleet.acts if act.mutation == "load-image")
    assert first == list(images.broken) and len(second) == 1, "one after the other, until one has shown that it works"


@pytest.mark.slow
def test_nodes_that_run_nothing_try_a_bad_image_one_after_the_other() -> None:
    fleet = PureFleet(6, timing=QUICK)
    Images(fleet).bad.add("v1")
    fleet.want(**READY)
    fleet.run(200)
    under_way: set[int] = set()
    for _, act in fleet.acts:
        if act.mutation in PUTS:
            assert len(act.nodes) == 1, "never two at a time"
            under_way.update(act.nodes.tolist())
    assert under_way


@pytest.mark.slow
def test_power_that_comes_back_does_not_wait_for_a_canary_of_what_has_worked() -> None:
    fleet, _ = running(10)
    begun = len(fleet.acts)
    fleet.sim.power_loss(fleet.nodes, now=fleet.now)
    assert fleet.run(300, lambda: fleet.state(3) != "ready")
    fleet.converge(3000)
    loads = [len(act.nodes) for _, act in fleet.acts[begun:] if act.mutation == "load-image"]
    assert max(loads) > 1


@pytest.mark.slow
def test_a_node_that_a_guard_keeps_from_being_the_canary_gives_its_place_to_another() -> None:
    fleet = PureFleet(4, timing=QUICK)
    Images(fleet)
    goal = {name: value for name, value in READY.items() if name not in ("config", "workload")}
    fleet.want(**goal)
    fleet.converge()
    fleet.sim.jobs.run(np.array([0]), until=fleet.now + 5000)
    fleet.want(image="v2")
    assert fleet.run(600, lambda: all(fleet.state(node) == "ready" for node in (1, 2, 3))), fleet.why(1)
    assert fleet.fact(0, "image") == "v1"


def test_the_canary_of_another_controller_is_waited_for() -> None:
    fleet, _ = running(6)
    fleet.engine.progress.shard[0] = 1
    fleet.engine.lead(1, 0, fleet.now)
    fleet.engine.progress.epoch[0] = 0
    begun = len(fleet.acts)
    fleet.engine.in_flight.foreign["intent/1"] = ForeignMutation("switch-image", np.array([0]), fleet.now)
    fleet.want(image="v2")
    fleet.run(60)
    assert tried(fleet, begun) == []
    assert fleet.why(4).blockers[0].name == "0"


def test_only_an_open_variable_can_have_canaries() -> None:
    with pytest.raises(BadRequest, match="open: true"):
        Model.of(Layer(variables=(Variable(name="mode", values=("a", "b"), canary=True),)))
