"""The gauges of power, and which nodes are measured."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from strata.core.driver import Batch
from strata.fleet.metrics import Metrics
from strata.power.telemetry.collector import led_nodes
from strata.power.telemetry.columns import PowerColumns
from strata.power.telemetry.gauges import PowerGauges, drawing
from support.registry_support import Fleet, a_fleet, spec


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    async with a_fleet() as found:
        await found.edits.create_nodes(
            [
                spec("n2", location="x1000c0s0b0n0", bmc="http://b2"),
                spec("n1", location="x1001c0s0b0n0", bmc="http://b1"),
                spec("n3", location="x1001c0s0b0n1"),
                spec("c0", location="x1000c0", role="chassis", bmc="http://c0"),
            ],
            "t",
        )
        await found.settled()
        yield found


def led(fleet: Fleet, epochs: dict[str, int]) -> Any:
    """A controller that leads some of the nodes."""

    def batch(nodes: np.ndarray) -> Batch:
        found = [fleet.registry.node_at(index) for index in nodes.tolist()]
        return Batch(names=[n.name for n in found], uids=fleet.registry.uids[nodes], bmcs=[n.bmc for n in found])

    epoch = np.zeros(fleet.registry.size, dtype=np.int64)
    for name, value in epochs.items():
        epoch[fleet.registry.index_of(name)] = value
    work = SimpleNamespace(epoch=epoch)
    return SimpleNamespace(registry=fleet.registry, engine=SimpleNamespace(progress=work), batch=batch)


async def test_only_nodes_that_are_led_here_and_have_a_controller_are_measured(fleet: Fleet) -> None:
    controller = led(fleet, {"n1": 1, "n3": 1, "n2": 5})
    nodes = led_nodes(controller)
    found = nodes()
    assert sorted(found.names) == ["n1", "n2"]
    assert found.uids.tolist() == sorted(found.uids.tolist())
    assert [f"http://b{name[1:]}" for name in found.names] == list(found.bmcs)
    assert nodes() is found, "made anew only when something changed"
    controller.engine.progress.epoch[fleet.registry.index_of("n2")] = 0
    assert nodes().names == ["n1"]


async def test_a_chassis_draws_nothing_itself(fleet: Fleet) -> None:
    assert fleet.names(drawing(fleet.registry, np.flatnonzero(fleet.registry.alive))) == ["n1", "n2", "n3"]


async def test_gauges_are_by_cabinet_and_of_what_is_known_now(fleet: Fleet) -> None:
    columns, metrics = PowerColumns(), Metrics()
    uids = fleet.registry.uids[fleet.at("n1", "n2", "n3", "c0")]
    columns.put(uids, power=np.array([100.0, 200.0, 50.0, 350.0]), power_time=np.array([95.0, 99.0, 10.0, 99.0]))
    gauges = PowerGauges(metrics, fleet.registry, columns, lambda: 30.0, clock=lambda: 100.0)
    gauges.update()
    text = metrics.exposition().decode()
    assert "strata_power_watts 300.0" in text
    assert "strata_power_measured_nodes 2.0" in text
    assert 'strata_power_cabinet_watts{cabinet="x1000"} 200.0' in text
    assert 'strata_power_cabinet_watts{cabinet="x1001"} 100.0' in text
    columns.forget(uids)
    gauges.update()
    assert "cabinet=" not in metrics.exposition().decode()
