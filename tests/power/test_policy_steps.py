"""What each part of a policy asks for at one moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from strata.power.capping.terms import Use
from strata.power.policies.capped_queues import first_shares
from strata.power.policies.decide import step
from strata.power.policies.inrush import within
from strata.power.policies.over_provisioned import OverProvisioned, targets
from strata.power.policies.policy import Inrush, NodePower, parse
from strata.power.policies.view import Jobs, View, Waiting

NOW = 1767607200.0  # Monday, 10:00 UTC
HOUR = 3600.0
LOW, HIGH = 200.0, 400.0


def jobs(**given: Any) -> Jobs:
    """One job that has run for hours at 250 W under a cap of 300 W, unless said otherwise."""
    usual = {"started": NOW - 5 * HOUR, "ends": NOW + HOUR, "cap": 300.0, "changed": NOW - HOUR, "upcap": np.inf}
    usual |= dict.fromkeys(("life", "hour", "half_hour", "quarter", "minute"), 250.0)
    return Jobs(**{name: np.atleast_1d(np.array(value, np.float64)) for name, value in (usual | given).items()})


def view(use: list[Use], *, waiting: list[int] | None = None, **given: Any) -> View:
    count = len(use)
    usual: dict[str, Any] = {
        "use": np.array(use, np.int8),
        "job": np.full(count, -1, np.int64),
        "idle_since": np.full(count, NOW - HOUR),
        "queue": np.zeros(count, np.int64),
        "cabinet": np.zeros(count, np.int64),
        "pdu": np.zeros(count, np.int64),
        "jobs": jobs(),
        "waiting": Waiting(np.array(waiting or [], np.int64), np.zeros(len(waiting or []), np.int64)),
        "room": np.inf,
        "start": 150.0,
        "launch": 350.0,
        "starting": np.array(use, np.int8) == Use.BOOTING,
    }
    return View(**(usual | given))


def target(*, aggressive: bool = True, **given: Any) -> float:
    return float(targets(OverProvisioned(), NodePower(), NOW, jobs(**given), aggressive=aggressive)[0])


@pytest.mark.parametrize(
    "given",
    [
        {"ends": NOW + 60},
        {"started": NOW - 60, "changed": NOW - 60},
        {"changed": NOW - 59},
    ],
)
def test_a_job_that_began_ends_or_was_changed_within_a_minute_is_left_alone(given: dict[str, float]) -> None:
    assert np.isnan(target(**given))
    assert np.isnan(target(aggressive=False, **given))


@pytest.mark.parametrize(
    ("given", "watts"),
    [
        ({}, 295.0),
        ({"life": 289.0}, 299.0),
        ({"hour": 290.0}, 297.0),
        ({"half_hour": 291.0}, 296.0),
        ({"quarter": 293.0}, 297.0),
        ({"minute": 294.5}, 299.0),
        ({"minute": 300.0}, 304.0),
        ({"minute": 390.0}, 307.0),
        ({"cap": 202.0, "life": 100, "hour": 100, "half_hour": 100, "quarter": 100, "minute": 100}, 200.0),
        ({"upcap": 298.0, "minute": 299.0}, 298.0),
        ({"cap": 398.0, "minute": 399.0}, 400.0),
    ],
    ids=[
        "falls by 5",
        "life + 10",
        "60 + 7",
        "30 + 5",
        "15 + 4",
        "1 + 4",
        "rises",
        "by at most 7",
        "200",
        "upcap",
        "400",
    ],
)
def test_an_aggressive_cap_is_the_lowest_that_the_rules_allow(given: dict[str, float], watts: float) -> None:
    assert target(**given) == watts


@pytest.mark.parametrize(
    ("given", "watts"), [({}, 307.0), ({"cap": 396.0}, 400.0), ({"upcap": 303.0}, 303.0), ({"minute": 390.0}, 307.0)]
)
def test_a_gentle_cap_is_the_highest_that_the_rules_allow(given: dict[str, float], watts: float) -> None:
    assert target(aggressive=False, **given) == watts


def test_a_user_s_cap_below_the_lowest_that_nodes_take_is_the_lowest() -> None:
    assert target(upcap=150.0, cap=200.0) == LOW


def test_caps_are_lowered_by_demand_only_while_jobs_wait() -> None:
    policy = parse("over-provisioned: {mood: by-demand}", source="x")
    busy = view([Use.BUSY, Use.BUSY, Use.IDLE], job=np.array([0, 0, -1]))
    assert step(policy, NOW, busy).caps.tolist()[:2] == [307.0, 307.0]
    pressed = busy._replace(waiting=Waiting(np.array([5]), np.array([-1])))
    caps = step(policy, NOW, pressed).caps
    assert caps.tolist()[:2] == [295.0, 295.0] and np.isnan(caps[2])


def test_the_jobs_closest_to_their_caps_are_raised_first() -> None:
    policy = parse("over-provisioned: {mood: gentle}", source="x")
    both = jobs(cap=[300, 300], minute=[299, 250], **{name: [0, 0] for name in ("started", "changed", "life")},
                ends=[NOW + HOUR] * 2, upcap=[np.inf] * 2, hour=[0, 0], half_hour=[0, 0], quarter=[0, 0])  # fmt: skip
    rank = step(policy, NOW, view([Use.BUSY, Use.BUSY], job=np.array([0, 1]), jobs=both)).rank
    assert rank[0] < rank[1]


POOL = parse("idle-pool: {low: 2, high: 3, on: 2, off: 2, after: 10m}", source="x")


def test_nodes_are_started_when_fewer_than_the_lower_limit_are_ready_or_coming() -> None:
    assert step(POOL, NOW, view([Use.IDLE, Use.OFF, Use.OFF])).on.tolist() == [1]
    assert not len(step(POOL, NOW, view([Use.IDLE, Use.BOOTING, Use.OFF])).on)


def test_no_more_are_started_at_a_time_than_is_said_or_than_there_is_power_for() -> None:
    off = view([Use.OFF] * 6)
    assert len(step(POOL, NOW, off).on) == 2
    assert len(step(POOL, NOW, off._replace(room=200.0)).on) == 1
    assert len(step(POOL, NOW, off._replace(room=-5.0)).on) == 0


def test_idle_nodes_above_the_upper_limit_are_stopped_the_longest_idle_first() -> None:
    since = NOW - np.array([700.0, 900, 800, 1000, 5])
    actions = step(POOL, NOW, view([Use.IDLE] * 5, idle_since=since))
    assert actions.off.tolist() == [3, 1]
    fresh = step(POOL, NOW, view([Use.IDLE] * 5, idle_since=np.full(5, NOW - 5)))
    assert not len(fresh.off)


def test_nobody_is_stopped_while_a_large_job_waits_for_nodes() -> None:
    idle = [Use.IDLE] * 5 + [Use.OFF] * 5
    actions = step(POOL, NOW, view(idle, waiting=[8]))
    assert not len(actions.off)
    assert actions.on.tolist() == [5, 6]


def test_a_job_that_waits_for_power_does_not_keep_nodes_from_being_stopped() -> None:
    actions = step(POOL, NOW, view([Use.IDLE] * 5, waiting=[8], room=100.0))
    assert len(actions.off) == 2 and not len(actions.on)


def test_starts_are_paced_by_cabinet_and_by_strip() -> None:
    part = Inrush(node=100.0, cabinet=300.0, pdu=200.0)
    cabinet, pdu = np.arange(12) // 6, np.arange(12) // 3
    starting = np.arange(12) == 0
    assert within(part, (cabinet, pdu), starting, np.arange(1, 12)).tolist() == [1, 6, 7]
    assert within(part, (cabinet, pdu), starting, np.empty(0, np.int64)).tolist() == []


def test_the_pool_starts_nodes_elsewhere_when_one_cabinet_is_full() -> None:
    policy = parse("idle-pool: {low: 4, high: 4, on: 4}\ninrush: {node: 100W, cabinet: 200W}", source="x")
    on = step(policy, NOW, view([Use.OFF] * 8, cabinet=np.arange(8) // 4)).on
    assert on.tolist() == [0, 1, 4, 5]


QUEUES = parse(
    "queues: {frugal: {cap: 200W, nodes: 6, least: 1, prefer: {days: mon-fri, from: '8:00', to: '17:00'}}, free: {}}",
    source="x",
)
NIGHT = NOW + 12 * HOUR


def asked(*pairs: tuple[int, int]) -> Waiting:
    return Waiting(*(np.array(column, np.int64) for column in zip(*pairs, strict=True)))


def test_nodes_that_no_queue_claims_go_to_the_first() -> None:
    assert first_shares(QUEUES.queues, 8).tolist() == [0] * 8
    other = parse("queues: {a: {nodes: 1}, b: {nodes: 2}}", source="x").queues
    assert first_shares(other, 5).tolist() == [0, 1, 1, 0, 0]
    assert first_shares(other, 2).tolist() == [0, 1]


def test_idle_nodes_go_to_where_jobs_wait_and_take_its_cap() -> None:
    use = [Use.BUSY, Use.IDLE, Use.IDLE, Use.IDLE, Use.IDLE, Use.IDLE]
    actions = step(QUEUES, NOW, view(use, waiting=[3])._replace(waiting=asked((3, 1))))
    assert actions.queue.tolist() == [0, 1, 1, 1, 0, 0]
    assert actions.caps.tolist() == [200.0, 400.0, 400.0, 400.0, 200.0, 200.0]


def test_a_queue_keeps_its_least_and_what_it_has_jobs_for() -> None:
    use = [Use.IDLE] * 6
    all_but_one = step(QUEUES, NIGHT, view(use)._replace(waiting=asked((9, 1)))).queue
    assert all_but_one.tolist() == [1, 1, 1, 1, 1, 0]
    needed = step(QUEUES, NIGHT, view(use)._replace(waiting=asked((4, 0), (9, 1)))).queue
    assert needed.tolist().count(0) == 4


def test_the_preferred_queue_takes_nodes_that_others_have_jobs_for() -> None:
    idle = view([Use.IDLE] * 4, queue=np.ones(4, np.int64))._replace(waiting=asked((3, 0), (4, 1)))
    assert step(QUEUES, NOW, idle).queue.tolist().count(0) == 3
    assert step(QUEUES, NIGHT, idle).queue.tolist().count(0) == 0


def test_one_cap_for_all() -> None:
    assert step(parse("cap: 250W", source="x"), NOW, view([Use.BUSY, Use.OFF])).caps.tolist() == [250.0, 250.0]


def test_the_same_view_always_gives_the_same_answer_and_is_not_changed() -> None:
    seen = view([Use.IDLE] * 6)._replace(waiting=asked((3, 1)))
    before = [np.copy(column) for column in seen[:6]]
    first, second = step(QUEUES, NOW, seen), step(QUEUES, NOW, seen)
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))
    assert all(np.array_equal(one, other) for one, other in zip(before, seen[:6], strict=True))
