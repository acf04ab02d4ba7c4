"""Which nodes of a rollout come when, and what it does next: the pure parts."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.core.intset import pack
from strata.core.node import LimitBucket
from strata.platform.rollouts import next_step as course
from strata.platform.rollouts.next_step import Sight, following
from strata.platform.rollouts.records import Before, Rollout, RolloutSpec, amount
from strata.platform.rollouts.waves import levels, spread, stages, waves


def mask(*nodes: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found = np.zeros(12, dtype=np.bool_)
    found[list(nodes)] = True
    return found


def rollout(**fields: Any) -> Rollout:
    """Ten nodes in three waves: 1, 4 and 5."""
    spec = fields.pop("spec", {})
    made = Rollout(
        spec=RolloutSpec(select="*", set={"image": "v2"}, **{"soak": 60.0, **spec}),
        set={"image": ("v2",)},
        author="alice",
        started=1000.0,
        waves=(((0, 0),), ((1, 4),), ((5, 9),)),
        stages=(0, 0, 0),
        buckets=(LimitBucket(name="all", members=((0, 9),), most=2),),
        before=(Before(uids=((0, 9),), set={}),),
        seen=7,
    )
    return msgspec.structs.replace(made, **fields)


def seen(count: int, **who: list[int]) -> Sight:
    """So many nodes have had their turn; all want the change and are ready but for what is said."""
    found = {name: np.zeros(count, dtype=np.bool_) for name in Sight._fields if name != "uids"}
    found["wanted"][:] = found["ready"][:] = found["begun"][:] = True
    for name, nodes in who.items():
        found[name.removeprefix("not_")][nodes] = not name.startswith("not_")
    for name in ("failed", "not_ready", "not_wanted"):
        found["ready"][who.get(name, [])] = False
    return Sight(np.arange(count), **found)


def test_the_first_wave_is_the_canary_and_the_last_size_is_repeated_until_all_have_had_their_turn() -> None:
    found = waves(0, np.arange(100), ("1", "10%", "30%"))
    assert [len(wave.nodes) for wave in found] == [1, 10, 30, 30, 29]
    assert np.array_equal(np.sort(np.concatenate([wave.nodes for wave in found])), np.arange(100))


def test_a_wave_has_at_least_one_node_however_small_its_part_is() -> None:
    assert [len(wave.nodes) for wave in waves(0, np.arange(3), ("1%",))] == [1, 1, 1]


def test_every_wave_takes_from_all_groups_alike_and_begins_with_nodes_that_work() -> None:
    groups = {"a": mask(0, 1, 2, 3, 4, 5), "b": mask(6, 7, 8)}
    fit = np.ones(12, dtype=np.bool_)
    fit[0] = False
    order = spread(np.arange(9), groups, fit)
    assert order[-1] == 0, "who is broken does not try it first"
    half = set(order[:4].tolist())
    assert len(half & {6, 7, 8}) in (1, 2)
    assert len(half & {1, 2, 3, 4, 5}) in (2, 3)


def test_groups_that_come_one_after_the_other_are_stages_and_a_node_in_two_of_them_is_in_the_later() -> None:
    groups = {"storage": mask(0, 1), "login": mask(1, 2), "compute": mask(2, 3, 4)}
    found = stages(np.arange(6), [["storage", "login"], ["login", "compute"]], groups.__getitem__)
    assert [stage.tolist() for stage in found] == [[0, 5], [1], [2, 3, 4]]


def test_groups_that_come_before_each_other_in_a_circle_are_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="a, b come before each other"):
        levels([["a", "b"], ["b", "a"]])


def test_more_than_all_of_them_is_no_amount() -> None:
    assert (amount("7", 100), amount("7%", 50), amount("100%", 3)) == (7, 3, 3)
    for wrong in ("101%", "-1", "1.5", "half", "%"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"set": {"image": "v2"}, "max_failures": wrong}, RolloutSpec)


def test_a_failed_canary_takes_everything_back() -> None:
    found = following(rollout(), seen(1, failed=[0]), 1100.0)
    assert isinstance(found, course.Become)
    assert found.fields["state"] == "rolling-back"
    assert "1 of 1 nodes failed" in found.fields["reason"]


def test_where_a_person_is_to_decide_a_failed_canary_stops_it() -> None:
    found = following(rollout(spec={"on_failure": "stop"}), seen(1, failed=[0]), 1100.0)
    assert isinstance(found, course.Become)
    assert found.fields["state"] == "stopped"


def test_failures_count_against_all_that_have_had_their_turn() -> None:
    made = rollout(wave=2, spec={"max_failures": "20%"})
    assert not isinstance(following(made, seen(10, failed=[3, 4]), 0.0), course.Wait)
    found = following(made, seen(10, failed=[3, 4, 5]), 0.0)
    assert isinstance(found, course.Become)
    assert found.fields["state"] == "rolling-back"


def test_who_was_broken_before_its_turn_or_is_a_persons_neither_counts_nor_is_waited_for() -> None:
    made = rollout(wave=1, excused=pack([2]), soaking=0.0)
    found = following(made, seen(5, failed=[2], held=[3], not_ready=[3]), 1000.0)
    assert isinstance(found, course.Become)
    assert found.fields["wave"] == 2


def test_the_next_wave_begins_when_the_last_one_has_been_ready_for_long_enough() -> None:
    ready = following(rollout(), seen(1), 1000.0)
    assert isinstance(ready, course.Become)
    assert ready.fields == {"soaking": 1000.0}
    soaking = rollout(soaking=1000.0)
    assert isinstance(following(soaking, seen(1), 1059.0), course.Wait)
    fallen = following(soaking, seen(1, not_ready=[0]), 1059.0)
    assert isinstance(fallen, course.Become)
    assert fallen.fields["soaking"] is None
    through = following(soaking, seen(1), 1060.0)
    assert isinstance(through, course.Become)
    assert through.fields["wave"] == 1


def test_checks_of_the_site_come_after_soaking_and_once_each() -> None:
    made = rollout(spec={"checks": ("mpi", "io")}, soaking=0.0)
    assert following(made, seen(1), 100.0) == course.Check("mpi")
    assert following(msgspec.structs.replace(made, checked=("mpi",)), seen(1), 100.0) == course.Check("io")


def test_a_node_that_is_late_keeps_nobody_waiting_while_as_many_may_fail_but_at_the_end_and_between_stages() -> None:
    tolerant = rollout(wave=1, spec={"max_failures": "1"})
    late = seen(5, not_ready=[4])
    assert isinstance(following(tolerant, late, 0.0), course.Become)
    assert isinstance(following(rollout(wave=1, spec={"max_failures": "0"}), late, 0.0), course.Wait)
    between = msgspec.structs.replace(tolerant, stages=(0, 0, 1))
    assert isinstance(following(between, late, 0.0), course.Wait)
    at_the_end = msgspec.structs.replace(tolerant, wave=2)
    assert isinstance(following(at_the_end, seen(10, not_ready=[4]), 0.0), course.Wait)


def test_a_paused_rollout_takes_back_what_has_not_begun_and_nothing_else() -> None:
    found = following(rollout(state="paused", wave=1), seen(5, not_begun=[3, 4]), 0.0)
    assert isinstance(found, course.Restore)
    assert found.nodes.tolist() == [False, False, False, True, True]


def test_where_nodes_that_failed_have_used_up_the_limit_a_person_is_asked() -> None:
    made = rollout(wave=2, spec={"max_failures": "50%"})
    stuck = seen(10, failed=[0, 1], not_ready=[8, 9], stuck=[8, 9])
    found = following(made, stuck, 0.0)
    assert isinstance(found, course.Become)
    assert found.fields["state"] == "stopped"
    assert isinstance(following(made, stuck._replace(stuck=np.arange(10) == 9), 0.0), course.Wait)


def test_going_back_ends_when_all_nodes_are_what_they_were() -> None:
    made = rollout(state="rolling-back", wave=1)
    assert isinstance(following(made, seen(5), 0.0), course.Restore)
    restored = seen(5, not_wanted=[0, 1, 2, 3, 4])
    assert isinstance(following(made, restored, 0.0), course.Wait)
    found = following(made, restored._replace(ready=np.ones(5, dtype=np.bool_)), 0.0)
    assert isinstance(found, course.Become)
    assert found.fields["state"] == "rolled-back"
