"""Accelerators of a simulated fleet: measured in bulk and one by one, and capped through CAPMC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from strata.fleet.nodes.batches import batch_of
from strata.power.series.series import Series
from strata.power.telemetry.bmcs import NodeSource
from strata.power.telemetry.collector import BulkSource, Collector, Nodes
from strata.virtual.bmc.server import SIMULATED_ACCOUNT
from strata.virtual.fleet.names import GPUS
from strata.virtual.fleet.power import FleetPower
from support.capmc_site import CapmcSite, capmc_site

pytestmark = pytest.mark.slow

COUNT, GPU_NID = 8, 8


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[CapmcSite]:
    """The last node has accelerators."""
    async with capmc_site(tmp_path, COUNT) as found:
        await sweep(found, tmp_path)
        yield found


def nodes(site: CapmcSite) -> Nodes:
    uids = site.view.nodes().uids
    batch = batch_of(site.service.registry, site.service.registry.indices_of(uids))
    return Nodes(uids=uids, names=tuple(batch.names), bmcs=tuple(batch.bmcs))


async def sweep(site: CapmcSite, directory: Path) -> None:
    """Measure all of it as the service does."""
    bulk = FleetPower(site.machine.server.address, SIMULATED_ACCOUNT)
    series = Series.in_file(directory / "telemetry.db")
    await series.start()
    collector = Collector(lambda: nodes(site), BulkSource(bulk.read, bulk.close), series, site.columns)
    await collector.sweep(60.0)
    await collector.stop()
    latest = await series.latest("accel-power", None, 3600.0)
    assert latest.uids.tolist() == [nid_uid(site)], "that of the one node that has any"
    await series.close()


def nid_uid(site: CapmcSite) -> int:
    table = site.view.nodes()
    return int(table.uids[table.find(np.array([GPU_NID]))[0]])


def caps(site: CapmcSite) -> list[float | None]:
    bmc = site.machine.server.bmc(f"n{GPU_NID:05d}")
    return [bmc.gpu_cap(gpu) for gpu in range(GPUS)]


async def test_what_can_be_capped_tells_nodes_with_accelerators_apart(site: CapmcSite) -> None:
    groups = (await site.ask("get_power_cap_capabilities"))["groups"]
    controls = {
        tuple(group["nids"]): {one["name"]: (one["min"], one["max"]) for one in group["controls"]} for group in groups
    }
    assert controls == {
        tuple(range(1, COUNT)): {"node": (200, 2400)},
        (GPU_NID,): {"node": (200, 2400), "accel": (200, 2000)},
    }


async def test_a_cap_of_accelerators_is_set_in_equal_parts_and_taken_off(site: CapmcSite, tmp_path: Path) -> None:
    assert await site.ask("set_power_cap", "-n", str(GPU_NID), "-N", "800", "-A", "400") == {"e": 0, "err_msg": ""}
    assert caps(site) == [100.0] * GPUS
    wanted = [{"name": "node", "val": 800}, {"name": "accel", "val": 400}]
    for _ in ("as it was set", "as it is measured"):
        told = await site.ask("get_power_cap", "-n", str(GPU_NID))
        assert told["nids"] == [{"nid": GPU_NID, "controls": wanted}]
        await sweep(site, tmp_path)
    assert await site.ask("set_power_cap", "-n", str(GPU_NID), "-N", "0", "-A", "0") == {"e": 0, "err_msg": ""}
    assert caps(site) == [None] * GPUS


async def test_nodes_without_accelerators_have_no_such_cap(site: CapmcSite) -> None:
    reply = await site.ask("set_power_cap", "-n", f"1,{GPU_NID}", "-A", "400")
    assert reply["nids"] == [{"nid": 1, "e": 22, "err_msg": "Invalid control specified: accel"}]
    assert caps(site) == [None] * GPUS, "all or nothing"


async def test_a_controller_tells_the_same_of_its_accelerators_as_the_fleet_does(site: CapmcSite) -> None:
    one = nodes(site).where(nodes(site).uids == nid_uid(site))
    source = NodeSource(site.machine.bmcs)
    [look] = await source.look(one, 60.0)
    names, columns = await (bulk := FleetPower(site.machine.server.address, SIMULATED_ACCOUNT)).read()
    at = names.index(f"n{GPU_NID:05d}")
    for name in ("accel-power", "accel-cap", "accel-least", "accel-most"):
        assert look.values[name][0] == pytest.approx(columns[name][at]), name
        assert np.isnan(columns[name][:at]).all()
    await source.close()
    await bulk.close()
