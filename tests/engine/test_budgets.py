"""Who may start, and whose share it is."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strata.core.model import Budget, Layer, Model, Mutation, Variable, values
from strata.engine.breaker import Breaker
from strata.engine.budgets import Budgets, Demand, Shares
from strata.engine.settings import EngineSettings

NOBODY = np.zeros(0, dtype=np.int64)


def model(**fields: object) -> Model:
    """Power with one budget on power-on."""
    return Model.of(
        Layer(
            variables=(Variable(name="power", values=("off", "on")),),
            mutations=(Mutation(name="power-on", variable="power", start=values("off"), to="on"),),
            budgets=(Budget(name="b", mutations=("power-on",), **fields),),  # type: ignore[arg-type]
        )
    )


def demand(busy: list[int] | None = None, standing: list[int] | None = None) -> Demand:
    """What is going on."""
    return Demand(
        {"power-on": np.array(busy or [], dtype=np.int64)},
        NOBODY,
        lambda _: np.array(standing or [], dtype=np.int64),
    )


def admitted(budgets: Budgets, nodes: list[int], now: float = 0.0, **what: list[int]) -> list[int]:
    """Who may start."""
    return budgets.admit("power-on", np.array(nodes), now, demand(**what))[0].tolist()


def fleet(count: int, bucket: int = 10**6) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Buckets of so many nodes each."""
    return (np.arange(count) // bucket).astype(np.int32)


def test_the_first_in_line_get_the_room() -> None:
    budgets = Budgets(model(limit=3))
    budgets.set_buckets("b", [fleet(10)], 0.0)
    assert admitted(budgets, [7, 2, 9, 4], busy=[0]) == [7, 2]


def test_each_bucket_has_its_own_room() -> None:
    budgets = Budgets(model(limit=1, per="cabinet"))
    budgets.set_buckets("b", [fleet(6, bucket=3)], 0.0)
    assert admitted(budgets, [0, 1, 3, 4], busy=[2]) == [3]


def test_a_percentage_lets_at_least_one_through() -> None:
    budgets = Budgets(model(percent=10))
    budgets.set_buckets("b", [fleet(5)], 0.0)
    assert admitted(budgets, [0, 1]) == [0]


def test_a_node_outside_every_bucket_is_not_braked() -> None:
    budgets = Budgets(model(limit=1))
    budgets.set_buckets("b", [np.array([0, 0, -1, -1], dtype=np.int32)], 0.0)
    assert admitted(budgets, [0, 1, 2, 3]) == [0, 2, 3]


def test_all_divisions_must_have_room() -> None:
    budgets = Budgets(model(limit=1, per="group"))
    everyone, some = fleet(4), np.array([0, 0, -1, -1], dtype=np.int32)
    budgets.set_buckets("b", [everyone, some], 0.0)
    assert admitted(budgets, [2, 0]) == [2]
    assert admitted(budgets, [0], busy=[3]) == []


def test_weights_are_added_up() -> None:
    budgets = Budgets(model(limit=1000, weight="watts"))
    budgets.set_buckets("b", [fleet(4)], 0.0, weights=np.array([600.0, 500.0, 400.0, 100.0]))
    assert admitted(budgets, [0, 1, 2]) == [0]
    assert admitted(budgets, [2, 1, 3], busy=[]) == [2, 1, 3]


def test_a_standing_budget_counts_what_is_on() -> None:
    budgets = Budgets(model(limit=3, standing=True))
    budgets.set_buckets("b", [fleet(6)], 0.0)
    assert admitted(budgets, [3, 4, 5], standing=[0, 1]) == [3]


def test_a_node_that_was_begun_before_is_charged_once() -> None:
    budgets = Budgets(model(limit=2, standing=True))
    budgets.set_buckets("b", [fleet(4)], 0.0)
    assert admitted(budgets, [1, 2], standing=[0], busy=[1, 2]) == [1]


def test_a_rate_refills_with_time() -> None:
    budgets = Budgets(model(rate=2))
    budgets.set_buckets("b", [fleet(20)], 0.0)
    assert admitted(budgets, list(range(5))) == [0, 1]
    assert admitted(budgets, [5, 6], now=0.1) == []
    assert admitted(budgets, [5, 6], now=0.6) == [5]


def shares_of(leaders: list[int], limit: float, baton: int, weight: float = 1.0) -> list[float]:
    """Each of three leaders' part of a limit; a node with leader -1 is nobody's for now."""
    found = []
    for us in range(3):
        budgets = Budgets(model(limit=limit))
        shares = Shares(np.array(leaders) == us, us == baton)
        budgets.set_buckets("b", [fleet(len(leaders))], 0.0, weights=np.full(len(leaders), weight), shares=shares)
        found.append(float(budgets._meters["b"].divisions[0].limits[0]))
    return found


@given(
    st.lists(st.integers(-1, 2), min_size=1, max_size=40),
    st.integers(1, 30),
    st.integers(0, 2),
    st.sampled_from((1.0, 500.0)),
)
def test_shares_never_sum_to_more_than_the_limit(leaders: list[int], limit: int, baton: int, weight: float) -> None:
    parts = shares_of(leaders, limit * weight, baton, weight)
    assert sum(parts) <= limit * weight + 1e-6
    assert all(part % weight == 0 for part in parts)


@given(st.lists(st.integers(0, 2), min_size=3, max_size=40), st.integers(1, 30), st.integers(0, 2))
def test_whoever_leads_something_can_use_the_baton(leaders: list[int], limit: int, baton: int) -> None:
    if baton in leaders:
        assert shares_of(leaders, limit, baton)[baton] >= 1


def test_alone_one_has_everything() -> None:
    assert shares_of([0, 0, 0], 5, baton=0) == [5.0, 0.0, 0.0]


def test_what_was_begun_under_older_shares_counts_against_the_whole() -> None:
    budgets = Budgets(model(limit=4))
    shares = Shares(np.arange(8) >= 4, False)
    budgets.set_buckets("b", [fleet(8)], 0.0, shares=shares)
    assert admitted(budgets, [4, 5], busy=[0, 1, 2]) == [4]  # our share would allow both


def test_of_what_stands_one_controller_at_a_time_takes_what_is_left() -> None:
    """One has more on its nodes than its share; two others, each below theirs, see the one place that is left."""
    leaders = np.repeat([0, 1, 2], 4)
    found = []
    for us, wanting in ((1, [5, 6, 7]), (2, [8, 9, 10, 11])):
        budgets = Budgets(model(limit=6, standing=True))
        budgets.set_buckets("b", [fleet(12)], 0.0, shares=Shares(leaders == us, us == 2))
        found += admitted(budgets, wanting, standing=[0, 1, 2, 3, 4])
    assert found == [8]


def test_a_breaker_stops_at_the_ratio_probes_and_closes() -> None:
    settings = EngineSettings(stop_ratio=0.5, stop_minimum=4, stop_cooldown=100, stop_probe=2)
    breaker = Breaker(settings)
    breaker.succeeded(0, 5)
    breaker.failed(0, range(3))
    assert breaker.allowance(0, 0) is None
    breaker.failed(1, range(3, 7))
    assert breaker.allowance(2, 0) == 0
    assert breaker.allowance(101.5, 0) == 2
    assert breaker.allowance(101.5, 2) == 0
    breaker.failed(102, [7, 8])
    assert breaker.allowance(110, 0) == 0
    breaker.succeeded(210, 1)
    assert breaker.allowance(210, 0) is None


def test_a_breaker_forgets_what_is_long_past() -> None:
    breaker = Breaker(EngineSettings(stop_minimum=3, stop_window=60))
    breaker.failed(0, [1, 2])
    breaker.failed(100, [3, 4])
    assert breaker.allowance(100, 0) is None


def test_a_few_nodes_that_fail_again_and_again_do_not_stop_a_mutation_for_the_others() -> None:
    breaker = Breaker(EngineSettings(stop_minimum=10))
    for moment in range(5):
        breaker.failed(moment, range(9))
    assert breaker.allowance(5, 0) is None
    breaker.failed(6, [9])
    assert breaker.allowance(6, 0) == 0
