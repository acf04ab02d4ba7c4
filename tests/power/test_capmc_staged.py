"""Settings that take effect when a node boots, and the drives of nodes, through CAPMC on simulated hardware."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.desires.records import DesireChange
from strata.hardware.inventory.service import InventoryService
from support.capmc_site import READY, CapmcSite, capmc_site

pytestmark = pytest.mark.slow

SUCCESS = {"e": 0, "err_msg": "Success"}
ONE, TWO = 7, 8
"""Two nodes."""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[CapmcSite]:
    async with capmc_site(tmp_path, 8, labels={"mcdram": "16384MB", "dram": "96GB", "ssd": "yes"}) as found:
        yield found


async def selected(site: CapmcSite, expression: str) -> str:
    """What ``cnselect`` prints."""
    status, out, err = await site.run("-e", expression, program="cnselect")
    assert (status, err) == (0, "")
    return out.strip()


async def runs_with(site: CapmcSite, expression: str, nids: str) -> None:
    async def shown() -> bool:
        return await selected(site, expression) == nids

    await site.until(f"{expression} is {nids!r}", shown)


async def test_what_there_is_to_choose(site: CapmcSite) -> None:
    assert await site.ask("get_mcdram_capabilities", "-n", f"{ONE}") == {
        "e": 0,
        "err_msg": "",
        "nids": [{"nid": ONE, "e": 0, "err_msg": "", "mcdram_cfg": "flat,0,split,25,equal,50,cache,100"}],
    }
    assert (await site.ask("get_numa_capabilities", "-n", f"{TWO}"))["nids"] == [
        {"nid": TWO, "e": 0, "err_msg": "", "numa_cfg": "a2a,snc2,snc4,hemi,quad"}
    ]
    for call in ("get_mcdram_capabilities", "get_numa_capabilities", "get_numa_cfg", "get_ssd_enable"):
        table = site.view.nodes()
        assert [one["nid"] for one in (await site.post(call))["nids"]] == table.nids[table.compute].tolist()
        undefined = await site.post(call, nids=[99])
        assert (undefined["e"], undefined["nids"][0]["err_msg"]) == (22, "Undefined NID")


async def test_modes_are_staged_and_cleared(site: CapmcSite) -> None:
    assert await site.ask("set_mcdram_cfg", "-m", "flat", "-n", f"{ONE}") == SUCCESS
    assert (await site.ask("get_mcdram_cfg", "-n", f"{ONE}-{TWO}"))["nids"] == [
        {"nid": ONE, "mcdram_cfg": "flat", "mcdram_pct": 0, "mcdram_size": "16384MB", "dram_size": "96GB"},
        {"nid": TWO, "mcdram_cfg": "cache", "mcdram_pct": 100, "mcdram_size": "16384MB", "dram_size": "96GB"},
    ]
    assert await site.ask("set_numa_cfg", "-m", "quad", "-n", f"{ONE}") == SUCCESS
    numa = await site.ask("get_numa_cfg", "-n", f"{ONE}-{TWO}")
    assert numa["nids"] == [{"nid": ONE, "numa_cfg": "quad"}, {"nid": TWO, "numa_cfg": "a2a"}]
    assert await site.ask("set_ssd_enable", "-m", "disable", "-n", f"{ONE}") == SUCCESS
    drives = await site.ask("get_ssd_enable", "-n", f"{ONE}-{TWO}")
    assert drives["nids"] == [{"nid": ONE, "ssd_enable": 0}, {"nid": TWO, "ssd_enable": 1}]
    for clear in ("clr_mcdram_cfg", "clr_numa_cfg", "clr_ssd_enable"):
        assert await site.post(clear, nids=[ONE]) == SUCCESS
    assert (await site.ask("get_mcdram_cfg", "-n", f"{ONE}"))["nids"][0]["mcdram_cfg"] == "cache"
    assert (await site.ask("get_numa_cfg", "-n", f"{ONE}"))["nids"] == [{"nid": ONE, "numa_cfg": "a2a"}]
    assert (await site.ask("get_ssd_enable", "-n", f"{ONE}"))["nids"] == [{"nid": ONE, "ssd_enable": 1}]
    wrong = await site.post("set_ssd_enable", nids=[{"nid": ONE, "ssd_enable": 2}])
    assert (wrong["e"], wrong["err_msg"]) == (400, "Bad Request: invalid ssd_enable: 2")


async def test_a_node_that_runs_is_not_counted_as_booted_because_it_was_asked_to_be_on(site: CapmcSite) -> None:
    assert await site.ask("set_mcdram_cfg", "-m", "50", "-n", f"{ONE}") == SUCCESS
    assert (await site.ask("node_on", "-n", f"{ONE}"))["e"] == 0
    [job] = await site.service.operations.recent()
    assert (await site.service.operations.wait(job.id)).state == "done"
    assert await selected(site, "hbmcachepct.eq.50") == ""
    assert await selected(site, "hbmcachepct.eq.100") == "1-8"


async def test_a_restart_counts_when_the_node_is_up_again(site: CapmcSite) -> None:
    change = DesireChange(select=f"n{ONE:05d}", set={"power": ("on",), "os": ("up",)})
    await site.service.set_desires(LOCAL_ADMIN, change, False)
    assert await site.ask("set_mcdram_cfg", "-m", "flat", "-n", f"{ONE}") == SUCCESS
    assert await site.ask("set_numa_cfg", "-m", "quad", "-n", f"{ONE},{TWO}") == SUCCESS
    assert await selected(site, "hbmcachepct.eq.0") == ""
    assert (await site.ask("node_reinit", "-n", f"{ONE}"))["e"] == 0
    await runs_with(site, "hbmcachepct.eq.0", str(ONE))
    await runs_with(site, "numa_cfg.eq.quad", str(ONE))
    # What is asked for now is for the next time.
    await site.ask("set_mcdram_cfg", "-m", "reset")
    assert {n["mcdram_cfg"] for n in (await site.ask("get_mcdram_cfg"))["nids"]} == {"cache"}
    assert await selected(site, "hbmcachepct.eq.0") == str(ONE)


async def test_it_counts_whoever_restarted_the_node(site: CapmcSite) -> None:
    assert await site.ask("set_mcdram_cfg", "-m", "flat", "-n", f"{TWO}") == SUCCESS
    nodes, index = site.machine.nodes, site.machine.nodes.index[f"n{TWO:05d}"]
    at = nodes.all[index : index + 1]
    nodes.restart(at, now=site.machine.server.clock(), cycle=True)
    registry, controller = site.service.registry, site.service.controller
    controller.look_at(registry.select(f"n{TWO:05d}"))
    place = site.view.nodes().find(np.array([TWO]))[0]
    await site.until("it is seen down", lambda: not site.view.nodes().ready[place])
    assert await selected(site, "hbmcachepct.eq.0") == ""
    nodes.put(at, now=site.machine.server.clock(), **READY)
    controller.look_at(registry.select(f"n{TWO:05d}"))
    await runs_with(site, "hbmcachepct.eq.0", str(TWO))


async def test_of_drives_only_what_is_known_is_told(site: CapmcSite) -> None:
    name = f"n{ONE:05d}"
    cname = site.service.registry.node(name).location
    await site.discover(*(f"n{nid:05d}" for nid in range(1, 9)))
    found = (await site.service.of(InventoryService).of_node(LOCAL_ADMIN, name)).components
    drives = [part for part in found if part.kind == "drive"]
    assert len(drives) == 2
    assert await site.ask("get_ssds", "-n", f"{ONE}") == {
        **SUCCESS,
        cname: [
            {
                "nid": ONE,
                "model_number": drive.model,
                "serial_number": drive.serial,
                "size": drive.facts["capacity_bytes"],
            }
            for drive in drives
        ],
    }
    assert await site.ask("get_ssd_diags", "-c", cname) == {
        **SUCCESS,
        "ssd_diags": [
            {
                "cname": cname,
                "nid": ONE,
                "firmware": drive.firmware,
                "manu_id": drive.vendor,
                "part_id": drive.part,
                "serial_num": drive.serial,
                "size": 1920,
                "life_remaining": drive.facts["life_left"],
            }
            for drive in drives
        ],
    }
    everybody = await site.post("get_ssds")
    assert len(everybody) == 2 + 8
    assert (await site.post("get_ssds", cname=["x9"]))["err_msg"] == "Bad Request: invalid cname"
    both = await site.post("get_ssd_diags", cname=[cname], nids=[ONE])
    assert both["err_msg"] == "Bad Request: give nids or cname"
