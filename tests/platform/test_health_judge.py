"""Which failures count, and which say more of the check than of the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.daemon.settings import Settings
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.platform.health.judge import Distrust, Judge
from strata.platform.health.others import OtherShares
from strata.store.memory import MemoryStore
from support.platform_fleet import until
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet


class Fleet:
    """So many nodes that all run one check."""

    def __init__(self, count: int, most: float = 10.0, settles: float = 60.0) -> None:
        self.now = 0.0
        self.judge = Judge(lambda: self.now, lambda: most, lambda check: settles)
        self.nodes = [f"n{number}" for number in range(count)]
        for node in self.nodes:
            self.judge.heard(node, ("disk",), ())

    def fail(self, *nodes: str) -> None:
        for node in nodes:
            self.judge.heard(node, ("disk",), ("disk",))

    def counted(self) -> set[str]:
        self.judge.decide()
        return {node for node in self.nodes if self.judge.counts("disk", node)}


def test_a_node_counts_as_failing_when_the_others_had_the_time_to_fail_too() -> None:
    fleet = Fleet(100)
    fleet.fail("n1")
    assert fleet.counted() == set()
    fleet.now = 60.0
    assert fleet.counted() == {"n1"}
    assert not fleet.judge.distrusted


def test_nobody_counts_where_a_check_fails_everywhere_at_once() -> None:
    fleet = Fleet(100)
    fleet.fail(*fleet.nodes)
    fleet.now = 3600.0
    assert fleet.counted() == set()
    assert fleet.judge.distrusted["disk"] == (100, 100)


def test_those_that_counted_before_a_check_is_not_trusted_stay_out_and_no_further_one_counts() -> None:
    fleet = Fleet(100)
    fleet.fail(*fleet.nodes[:10])
    fleet.now = 60.0
    before = fleet.counted()
    assert len(before) == 10
    fleet.fail("n50")
    fleet.now = 600.0
    assert fleet.counted() == before and "disk" in fleet.judge.distrusted
    for node in fleet.nodes[:5]:
        fleet.judge.heard(node, ("disk",), ())
    assert fleet.counted() == {*fleet.nodes[5:10], "n50"}, "few enough fail it now"
    assert not fleet.judge.distrusted


def test_one_node_of_few_may_always_fail_and_two_of_four_may_not() -> None:
    fleet = Fleet(4)
    fleet.fail("n1")
    fleet.now = 60.0
    assert fleet.counted() == {"n1"}
    fleet.fail("n2")
    fleet.now = 200.0
    assert fleet.counted() == {"n1"} and "disk" in fleet.judge.distrusted


def test_a_node_that_is_gone_is_not_one_of_those_that_run_a_check() -> None:
    fleet = Fleet(30)
    fleet.fail("n1", "n2", "n3")
    for node in fleet.nodes[20:]:
        fleet.judge.gone(node)
    fleet.now = 60.0
    assert fleet.counted() == set() and fleet.judge.distrusted["disk"] == (3, 20)


def test_whether_a_check_is_trusted_is_asked_of_the_nodes_of_all_controllers() -> None:
    elsewhere = [Distrust(0, 100)]
    judge = Judge(lambda: 100.0, lambda: 10.0, lambda check: 0.0, lambda check: elsewhere[0])
    for number in range(10):
        judge.heard(f"n{number}", ("disk",), ("disk",) if number < 5 else ())
    assert judge.decide() == {f"n{number}" for number in range(5)}, "5 of 110, though half of those here"
    assert judge.shares == {"disk": Distrust(5, 10)}
    elsewhere[0] = Distrust(90, 100)
    judge.decide()
    assert judge.distrusted == {"disk": Distrust(95, 110)}


@pytest.mark.slow
async def test_controllers_tell_each_other_how_many_nodes_fail_a_check(tmp_path: Path) -> None:
    store = MemoryStore()
    made = []
    for name in ("c1", "c2"):
        controller = Controller(
            store, BUILT_IN, {}, name=name, history=tmp_path / name, leadership=LeadershipSettings(shards=2)
        )
        settings = Settings(state_dir=tmp_path / f"state-{name}", controller_id=name)
        settings.state_dir.mkdir()
        fleet = OpenFleet(controller, settings)
        made.append((fleet, await fleet.keep(OtherShares(fleet))))
        await fleet.start()
    (first, own), (second, other) = made
    try:
        own.tell({"disk": Distrust(3, 40)})
        await until(lambda: other.of("disk") == Distrust(3, 40))
        assert own.of("disk") == Distrust(0, 0), "one's own nodes are not the others'"
        await first.stop()
        await until(lambda: other.of("disk") == Distrust(0, 0))
    finally:
        await first.stop()
        await second.stop()
        await store.close()
