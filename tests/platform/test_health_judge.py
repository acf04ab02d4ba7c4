"""Which failures count, and which say more of the check than of the node."""

from __future__ import annotations

from strata.platform.health.judge import Judge


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
