"""Caps through controllers: nodes and accelerators, and those that take their time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from strata.core.errors import OutcomeUnknown
from strata.hardware.bmc.protocol import PowerLimit
from strata.power.capping import operations as cap_jobs
from support.capmc_site import CapmcSite, capmc_site

pytestmark = pytest.mark.slow

NODE = "/redfish/v1/Chassis/1/Controls/PowerLimit"
GPUS = [f"/redfish/v1/Systems/1/Processors/GPU{number}/EnvironmentMetrics" for number in range(2)]


class Controller:
    """One with a cap for the node and one for each of two accelerators; it waits until it is ``open``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.caps: dict[str, float | None] = {NODE: None, **dict.fromkeys(GPUS)}
        self.open = asyncio.Event()
        self.open.set()
        self.lost = False

    async def power_limits(self) -> Sequence[PowerLimit]:
        names = {NODE: "Node power", **{gpu: f"GPU {number} power limit" for number, gpu in enumerate(GPUS)}}
        return [PowerLimit(id=one, name=names[one], watts=self.caps[one]) for one in (*GPUS, NODE)]

    async def set_power_limit(self, limit: str, watts: float | None) -> None:
        await self.open.wait()
        self.caps[limit] = watts
        if self.lost:
            raise OutcomeUnknown("no answer", where=self.address)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[CapmcSite]:
    async with capmc_site(tmp_path, 4) as found:
        yield found


@pytest.fixture
def controllers(site: CapmcSite) -> dict[str, Controller]:
    found: dict[str, Controller] = {}
    site.capmc.caps._sender._open = lambda at: found.setdefault(at, Controller(at))  # type: ignore[assignment, return-value]
    uids = site.view.nodes().uids
    site.columns.put(uids, accel_least=100.0, accel_most=800.0, accel_cap=0.0)
    return found


def request(site: CapmcSite, node: int, accel: int) -> bytes:
    table = site.view.nodes()
    controls = [{"name": "node", "val": node}, {"name": "accel", "val": accel}]
    return json.dumps(
        {"nids": [{"nid": nid, "controls": controls} for nid in table.nids[table.compute].tolist()]}
    ).encode()


async def test_the_cap_of_accelerators_is_shared_out_among_them(
    site: CapmcSite, controllers: dict[str, Controller]
) -> None:
    reply = await site.ask("json", "-r", "/capmc/set_power_cap", stdin=request(site, 1500, 600))
    assert reply == {"e": 0, "err_msg": ""}
    assert controllers and all(one.caps == {NODE: 1500.0, **dict.fromkeys(GPUS, 300.0)} for one in controllers.values())
    told = await site.ask("get_power_cap")
    assert told["nids"][0]["controls"] == [{"name": "node", "val": 1500}, {"name": "accel", "val": 600}]
    uids = site.view.nodes().uids
    compute = uids[site.view.nodes().compute]
    assert (await site.capmc.caps._sender.read(compute)).tolist() == [1500.0] * len(compute)
    await site.ask("json", "-r", "/capmc/set_power_cap", stdin=request(site, 0, 0))
    assert all(set(one.caps.values()) == {None} for one in controllers.values())


async def test_who_asked_is_told_what_is_not_finished_and_the_job_goes_on(
    site: CapmcSite, controllers: dict[str, Controller], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await site.ask("json", "-r", "/capmc/set_power_cap", stdin=request(site, 1500, 600)))["e"] == 0
    monkeypatch.setattr(cap_jobs, "PATIENCE", 1.0)
    slow = next(iter(controllers.values()))
    slow.open.clear()
    reply = await site.ask("json", "-r", "/capmc/set_power_cap", stdin=request(site, 1000, 400))
    assert (reply["e"], reply["err_msg"]) == (52, "Invalid exchange")
    [job, _] = await site.service.operations.recent()
    assert {one["err_msg"] for one in reply["nids"]} == {f"not finished after 1 s; it goes on as operation {job.id}"}
    assert (job.state, job.kind) == ("running", "power-cap")
    slow.open.set()
    assert (await site.service.operations.wait(job.id)).state == "done"
    assert slow.caps[NODE] == 1000.0


async def test_a_fault_of_ours_with_one_controller_is_the_result_of_that_node(
    site: CapmcSite, controllers: dict[str, Controller]
) -> None:
    table = site.view.nodes()
    uids = table.uids[table.compute][:2]
    sender = site.capmc.caps._sender
    await sender.send(uids, np.full(2, 900.0), "node")
    broken, well = controllers.values()
    broken.caps = None  # type: ignore[assignment]
    sent = await sender.send(uids, np.full(2, 800.0), "node")
    assert (sent.done.tolist(), well.caps[NODE]) == ([False, True], 800.0)
    assert "internal error while talking to the BMC: TypeError" in sent.why[int(uids[0])]
    assert np.isnan((await sender.read(uids))[0]) and (await sender.read(uids))[1] == 800.0


async def test_a_cap_whose_answer_was_lost_is_neither_done_nor_refused(
    site: CapmcSite, controllers: dict[str, Controller]
) -> None:
    table = site.view.nodes()
    uids = table.uids[table.compute][:2]
    sender = site.capmc.caps._sender
    await sender.send(uids, np.full(2, 900.0), "node")
    next(iter(controllers.values())).lost = True
    sent = await sender.send(uids, np.full(2, 800.0), "node")
    assert (sent.done.tolist(), sent.refused.tolist()) == ([False, True], [False, False])
    [why] = sent.why.values()
    assert why.startswith("not known whether it was done")
    next(iter(controllers.values())).open.clear()
    sent = await sender.send(uids, np.full(2, 700.0), "node", within=1.0)
    assert sent.done.tolist() == [False, True] and "no answer in time" in next(iter(sent.why.values()))
