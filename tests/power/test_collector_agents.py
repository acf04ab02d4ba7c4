"""What agents tell of energy becomes samples: wraps are put right, what is not known is a reset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from strata.core.errors import DeviceError, Unavailable
from strata.power.limits.agents import AgentNodes
from strata.power.limits.inband import Value
from strata.power.telemetry.agents import AgentReadings
from strata.power.telemetry.collector import NOBODY, Look, Nodes

RANGE = 262_143.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Controllers:
    """What nodes' controllers tell."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.closed = False

    async def look(self, nodes: Nodes, limit: float) -> list[Look]:
        return self.looks

    async def close(self) -> None:
        self.closed = True


def readings(others: Controllers | None = None) -> tuple[AgentReadings, Clock]:
    clock = Clock()
    return AgentReadings(lambda name: {"n1": 1, "n2": 2}.get(name, -1), others or Controllers(), clock=clock), clock


def rapl(**joules: float) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in joules.items()}
    return {"energy_j": named, "energy_range_j": dict.fromkeys(named, RANGE), "load1": 0.5}


async def told(source: AgentReadings) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for look in await source.look(NOBODY, 1.0):
        for place, uid in enumerate(look.uids.tolist()):
            mine = {name: float(column[place]) for name, column in look.values.items()}
            found[uid] = {name: value for name, value in mine.items() if not np.isnan(value)}
    return found


async def test_the_counters_of_packages_and_memory_are_the_nodes() -> None:
    source, _ = readings()
    source.take("n1", rapl(package_0=100.0, package_1=50.0, dram_0=5.0, core_0=70.0))
    source.take("n2", rapl(psys=500.0, package_0=100.0))
    source.take("elsewhere", rapl(package_0=1.0))
    assert await told(source) == {1: {"energy": 155.0}, 2: {"energy": 500.0}}
    assert await told(source) == {}, "once"


async def test_a_counter_that_passes_its_end_goes_on_rising() -> None:
    source, clock = readings()
    source.take("n1", rapl(package_0=RANGE - 1000))
    clock.now += 10
    source.take("n1", rapl(package_0=2000.0))
    assert await told(source) == {1: {"energy": RANGE + 2000}}
    assert (source.wraps, source.resets) == (1, 0)


async def test_a_counter_that_was_silent_for_longer_than_it_takes_to_go_round_begins_anew() -> None:
    source, clock = readings()
    source.take("n1", rapl(package_0=1000.0))
    clock.now += 600
    source.take("n1", rapl(package_0=5000.0))
    assert await told(source) == {1: {"energy": 5000.0}}
    assert (source.wraps, source.resets) == (0, 1)


async def test_a_node_that_started_anew_is_not_taken_for_a_wrap() -> None:
    source, clock = readings()
    source.take("n1", rapl(package_0=100_000.0))
    clock.now += 20
    source.take("n1", rapl(package_0=10.0))
    assert (source.wraps, source.resets) == (0, 1)


async def test_accelerators_add_up_and_what_the_controller_tells_goes_before() -> None:
    controllers = Controllers()
    source, clock = readings(controllers)
    told_by_bmc = {"accel-power": np.array([400.0]), "energy": np.array([7.0])}
    controllers.looks = [Look(time=clock.now, uids=np.array([2]), values=told_by_bmc)]
    await told(source)
    controllers.looks = []
    gpus = [{"power_w": 300.0}, {"power_w": 250.0}, {"index": 2}]
    for _ in range(2):
        source.take("n1", {"gpus": gpus})
        source.take("n2", {"gpus": gpus, **rapl(package_0=1.0)})
        assert await told(source) == {1: {"accel-power": 550.0}}
    clock.now += 301
    source.take("n2", {"gpus": gpus})
    assert await told(source) == {2: {"accel-power": 550.0}}, "its controller has been silent for long"
    await source.close()
    assert controllers.closed


@pytest.mark.parametrize(
    "nonsense",
    [
        {"energy_j": "much"},
        {"energy_j": {"package-0": "much"}},
        {"energy_j": {"package-0": float("nan")}},
        {"energy_j": {"package-0": -5.0}},
        {"energy_j": {"package-0": True}},
        {"energy_j": {f"package-{i}": 1.0 for i in range(1000)}},
        {"gpus": {"power_w": 1}},
        {"gpus": [1, None, {"power_w": 1e300}]},
    ],
)
async def test_nonsense_is_no_sample(nonsense: dict[str, Any]) -> None:
    source, _ = readings()
    source.take("n1", nonsense)
    assert await told(source) == {}


class Agents:
    """Agents that keep what they are told."""

    def __init__(self) -> None:
        self.force: dict[str, Any] = {
            "min_khz": 1_000_000, "max_khz": 3_000_000, "hardware_khz": [1_000_000, 3_000_000], "cstate_max": 3,
            "khz": 2_000_000, "cstates": 4,
        }  # fmt: skip
        self.asked: list[tuple[str, dict[str, int]]] = []

    async def command(self, name: str, limits: dict[str, int]) -> dict[str, Any]:
        if name == "gone":
            raise Unavailable("its agent has not been heard of")
        if limits.get("min_khz", 0) > 3_000_000:
            raise DeviceError("limits: min_khz is outside", node=name)
        self.asked.append((name, dict(limits)))
        self.force |= limits
        return self.force


async def test_limits_are_set_by_agents_both_ends_of_a_range_together() -> None:
    agents = Agents()
    nodes = AgentNodes(agents.command)  # type: ignore[arg-type]
    changes = [("freq-min", 1_500_000), ("freq-max", 2_000_000), ("freq-min", 1_500_000)]
    done = await nodes.set(["n1", "gone"], changes)  # type: ignore[arg-type]
    assert agents.asked == [("n1", {"min_khz": 1_500_000, "max_khz": 2_000_000})]
    assert [one.value for one in done["n1"]] == [1_500_000, 2_000_000, 1_500_000]  # type: ignore[union-attr]
    assert isinstance(done["gone"], Unavailable)
    got = await nodes.get(["n1"], ["freq", "freq-min", "sleep-limit"])
    assert [one.value for one in got["n1"]] == [2_000_000, 1_500_000, 3]  # type: ignore[union-attr]
    assert await nodes.choices(["n1"], "freq") == {"n1": [1_000_000, 3_000_000]}
    assert await nodes.choices(["n1"], "sleep-limit") == {"n1": [0, 1, 2, 3]}


async def test_what_an_agent_refuses_or_does_not_tell_is_said() -> None:
    agents = Agents()
    nodes = AgentNodes(agents.command)  # type: ignore[arg-type]
    wrong = await nodes.set(["n1"], [("freq-min", 9_000_000)])
    assert "outside" in wrong["n1"][0].trouble  # type: ignore[index, union-attr]
    agents.force = {"hardware_khz": "fast", "khz": "very"}
    assert isinstance((await nodes.choices(["n1"], "freq"))["n1"], DeviceError)
    assert await nodes.get(["n1"], ["freq"]) == {"n1": [Value(trouble="it does not tell")]}
