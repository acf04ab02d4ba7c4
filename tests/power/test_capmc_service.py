"""CAPMC from the command to simulated controllers and back."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from docs.docs_support import taken_from_pages
from strata.core.nodeset import fold
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.operations.records import OperationError, OperationRow, encode
from strata.power.capping import operations as cap_jobs
from strata.power.capping.operations import FROZEN
from strata.power.capping.terms import CapChange
from strata.store.protocol import Put
from support.capmc_site import CapmcSite, capmc_site

pytestmark = pytest.mark.slow


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[CapmcSite]:
    async with capmc_site(tmp_path, 8, labels={"mcdram": "16384MB"}) as found:
        yield found


def compute(site: CapmcSite) -> list[int]:
    table = site.view.nodes()
    return table.nids[table.compute].tolist()  # type: ignore[no-any-return]


async def test_every_node_that_exists_is_in_one_state(site: CapmcSite) -> None:
    assert await site.ask("node_status") == {"e": 0, "err_msg": "", "ready": list(range(1, 9))}
    assert await site.ask("node_status", "-f", "show_off") == {"e": 0, "err_msg": ""}
    wrong = await site.ask("node_status", "-n", "1,77-78")
    assert wrong == {"e": 400, "err_msg": "nids not found: [77,78]"}
    assert (await site.ask("node_status", "-f", "show_x"))["err_msg"] == "invalid filter string: show_x"


async def test_caps_are_set_on_the_hardware_by_a_job_that_can_be_looked_up(site: CapmcSite) -> None:
    nids = compute(site)[:2]
    listed = ",".join(map(str, nids))
    assert await site.ask("set_power_cap", "-n", listed, "--node", "300") == {"e": 0, "err_msg": ""}
    reply = await site.ask("get_power_cap", "-n", listed)
    assert reply["nids"] == [{"nid": nid, "controls": [{"name": "node", "val": 300}]} for nid in nids]
    assert [site.machine.server.bmc(f"n{nid:05d}").cap for nid in nids] == [300.0, 300.0]
    [job] = await site.service.operations.recent()
    assert (job.kind, job.state, job.done, job.author) == ("power-cap", "done", 2, "local-admin")
    assert await site.ask("set_power_cap", "-n", listed, "--node", "0") == {"e": 0, "err_msg": ""}
    assert [site.machine.server.bmc(f"n{nid:05d}").cap for nid in nids] == [None, None]


async def test_a_set_with_one_wrong_node_sets_nothing(site: CapmcSite) -> None:
    good = compute(site)[0]
    body = {"nids": [{"nid": good, "controls": [{"name": "node", "val": 300}]}, {"nid": 999, "controls": []}]}
    reply = await site.ask("json", "--resource=/capmc/set_power_cap", stdin=json.dumps(body).encode())
    assert reply["e"] == 22
    assert reply["nids"] == [{"nid": 999, "e": 22, "err_msg": "Undefined NID"}]
    assert site.machine.server.bmc(f"n{good:05d}").cap is None
    low = await site.ask("set_power_cap", "-n", str(good), "--node", "5")
    assert low["nids"][0]["err_msg"] == "Control (node) value (5) is less than minimum (200)"


async def test_a_node_whose_controller_is_dead_is_told_and_no_cap_is_raised_on_its_account(site: CapmcSite) -> None:
    dead, *others = compute(site)[:3]
    uids = site.view.nodes().uids[site.view.nodes().find(np.array(others))]
    site.columns.put(uids, cap=250.0)
    index = site.machine.nodes.index[f"n{dead:05d}"]
    site.machine.nodes.bmc_dead[index] = True
    nids = [{"nid": nid, "controls": [{"name": "node", "val": 300}]} for nid in (dead, *others)]
    reply = await site.ask("json", "-r", "/capmc/set_power_cap", stdin=json.dumps({"nids": nids}).encode())
    assert (reply["e"], reply["err_msg"]) == (52, "Invalid exchange")
    told = {one["nid"]: one["err_msg"] for one in reply["nids"]}
    assert set(told) == {dead, *others}
    assert told[others[0]].startswith("not raised")


async def cap(site: CapmcSite, watts: dict[int, int]) -> tuple[int, dict[int, str]]:
    """Ask for caps by NID: ``e``, and why not, by NID."""
    nids = [{"nid": nid, "controls": [{"name": "node", "val": value}]} for nid, value in watts.items()]
    reply = await site.post("set_power_cap", nids=nids)
    return reply["e"], {one["nid"]: one["err_msg"] for one in reply.get("nids", ())}


async def test_a_frozen_node_keeps_its_cap_and_the_others_get_theirs(site: CapmcSite) -> None:
    frozen, free = compute(site)[:2]
    bmcs = [site.machine.server.bmc(f"n{nid:05d}") for nid in (frozen, free)]
    assert await cap(site, {frozen: 500, free: 500}) == (0, {})
    await site.service.freeze(LOCAL_ADMIN, f"node:n{frozen:05d}", "a test")
    assert await cap(site, {frozen: 600, free: 600}) == (52, {frozen: FROZEN})
    assert [bmc.cap for bmc in bmcs] == [500.0, 600.0]
    [job, _] = await site.service.operations.recent()
    assert (job.done, job.errors) == (1, (OperationError(node=f"n{frozen:05d}", detail=FROZEN),))
    assert await cap(site, {frozen: 400, free: 450}) == (52, {frozen: FROZEN})
    assert [bmc.cap for bmc in bmcs] == [500.0, 450.0]
    await site.service.thaw(LOCAL_ADMIN, f"node:n{frozen:05d}")
    assert await cap(site, {frozen: 400}) == (0, {})


async def test_a_frozen_node_that_was_to_fall_makes_no_room_and_one_that_was_not_is_in_nobodys_way(
    site: CapmcSite,
) -> None:
    frozen, free = compute(site)[:2]
    assert await cap(site, {frozen: 500, free: 300}) == (0, {})
    await site.service.freeze(LOCAL_ADMIN, f"node:n{frozen:05d}", "a test")
    e, told = await cap(site, {frozen: 400, free: 400})
    assert (e, told[frozen], told[free][:10]) == (52, FROZEN, "not raised")
    assert site.machine.server.bmc(f"n{free:05d}").cap == 300.0
    assert await cap(site, {frozen: 500, free: 400}) == (52, {frozen: FROZEN})
    assert site.machine.server.bmc(f"n{free:05d}").cap == 400.0


async def test_the_audit_log_names_the_nodes_and_their_caps_before_the_job(site: CapmcSite) -> None:
    one, two, three = (f"n{nid:05d}" for nid in compute(site)[:3])
    assert await cap(site, dict(zip(compute(site)[:3], (300, 0, 300), strict=True))) == (0, {})
    entries = [entry for entry in await site.service.ledger.latest() if entry.action in ("caps.set", "operation.start")]
    assert [entry.action for entry in entries] == ["operation.start", "caps.set"], "the latest first"
    assert (entries[1].author, entries[1].target) == ("local-admin", fold([one, two, three]))
    assert entries[1].detail == {"caps": f"node none: {two}; node 300 W: {fold([one, three])}", "nodes": 3}


async def test_what_the_audit_log_says_of_caps_is_bounded(site: CapmcSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cap_jobs, "_AUDITED", 5)
    assert await cap(site, {nid: 300 + nid for nid in compute(site)}) == (0, {})
    [entry] = [entry for entry in await site.service.ledger.latest() if entry.action == "caps.set"]
    assert (entry.target, entry.detail["caps"]) == (fold(f"n{nid:05d}" for nid in compute(site))[:5], "node ")


async def test_caps_that_are_asked_for_one_after_the_other_are_set_in_that_order(site: CapmcSite) -> None:
    nids = compute(site)
    uids = site.view.nodes().uids[site.view.nodes().find(np.array(nids))]
    wanted = [300.0, 500.0, 250.0, 600.0]
    changes = [CapChange(control="node", uids=uids, watts=np.full(len(uids), watts)) for watts in wanted]
    assert await asyncio.gather(*(site.view.set_caps([change]) for change in changes)) == [{}] * 4
    assert {site.machine.server.bmc(f"n{nid:05d}").cap for nid in nids} == {600.0}
    assert set(site.columns.column("cap", uids).tolist()) == {600.0}


async def test_a_job_that_was_interrupted_goes_on_after_a_restart(site: CapmcSite) -> None:
    nid = compute(site)[0]
    move = {"control": "node", "watts": 350.0, "rises": False, "uids": [[int(nid), int(nid)]]}
    job = OperationRow(
        id="00000000000abcdef", kind="power-cap", author="slurm", created=1.0, total=1, state="running",
        arguments={"moves": [move], "ticket": "of a process that is no more"}, owner="dead", instance="x",
    )  # fmt: skip
    await site.service.controller.store.txn([Put(f"job/{job.id}", encode(job))])
    assert await site.service.operations.recover() == [job.id]
    assert (await site.service.operations.wait(job.id)).state == "done"
    [name] = site.view.names(np.array([nid]))
    assert site.machine.server.bmc(name).cap == 350.0


async def test_a_bias_is_part_of_a_cap_from_the_next_time_that_it_is_set(site: CapmcSite) -> None:
    one, two = compute(site)[:2]
    body = {"nids": [{"nid": one, "power-bias": 0.9}, {"nid": two, "power-bias": 1.1}]}
    reply = await site.ask("json", "-r", "/capmc/set_power_bias", stdin=json.dumps(body).encode())
    assert reply == {"e": 0, "err_msg": "Success"}
    await site.ask("set_power_cap", "-n", f"{one},{two}", "-N", "400")
    reply = await site.ask("get_power_cap", "-n", str(one))
    assert reply["nids"][0]["controls"] == [
        {"name": "node", "val": 400},
        {"name": "node-biased", "val": 360},
        {"name": "bias-factor", "val": 0.9},
    ]
    assert site.machine.server.bmc(f"n{two:05d}").cap == 440.0


async def test_off_and_on_are_desires_behind_a_job(site: CapmcSite) -> None:
    nid = compute(site)[0]
    assert await site.ask("node_off", "-n", str(nid), "-r", "idle") == {"e": 0, "err_msg": ""}
    [job] = await site.service.operations.recent()
    assert (job.kind, job.total) == ("set-desires", 1)
    await site.service.operations.wait(job.id)
    assert {
        d.variable: d.values for d in site.service.registry.desires.of(site.service.registry.index_of(f"n{nid:05d}"))
    }["power"] == ("off",)
    twice = await site.ask("node_off", "-n", f"{nid},{nid}")
    assert twice["err_msg"] == f"invalid/duplicate nids: [{nid}]"
    assert (await site.ask("node_on", "-n", "99"))["err_msg"] == "invalid/duplicate nids: [99]"


async def test_clocks_and_sleep_are_limited_in_the_nodes_kernels(site: CapmcSite) -> None:
    nid = str(compute(site)[0])
    capable, clocks, sleep = (
        shlex.split(re.sub(r"-n \S+", f"-n {nid}", command))[1:]
        for command in taken_from_pages(
            "tests/power/test_capmc_service.py::test_clocks_and_sleep_are_limited_in_the_nodes_kernels"
        )
    )
    reply = await site.ask(*capable)
    assert reply["nids"][0]["data"]["PWR_Attrs"][0]["PWR_AttrValueCapabilities"][0] == 1200000
    reply = await site.ask(*clocks)
    assert (reply["e"], reply["err_msg"]) == (0, "Success")
    # Both below the old lower limit's reach: the first setting of the lower limit fails, the second does not.
    reply = await site.ask("set_freq_limits", "-n", nid, "-m", "2200000", "-M", "2600000")
    assert [one["PWR_ReturnCode"] for one in reply["nids"][0]["data"]["PWR_Attrs"]] == [-1, 0, 0]
    assert (reply["e"], reply["nids"][0]["data"]["PWR_ReturnCode"]) == (0, 0)
    reply = await site.ask("get_freq_limits", "-n", nid)
    assert [one["PWR_AttrValue"] for one in reply["nids"][0]["data"]["PWR_Attrs"]][1:] == [2200000, 2600000]
    assert (await site.ask(*sleep))["e"] == 0
    assert (await site.ask("get_sleep_state_limit", "-n", nid))["nids"][0]["data"]["PWR_Attrs"][0]["PWR_AttrValue"] == 2
    assert (await site.ask("set_sleep_state_limit", "-n", nid, "-l", "9"))["err_msg"] == "Invalid exchange"


async def test_a_scheduler_with_a_scope_sees_and_caps_only_its_own_nodes(site: CapmcSite) -> None:
    service = site.service
    nids = compute(site)
    members = service.registry.select(f"n{nids[0]:05d},n{nids[1]:05d}")
    await service.settled(await service.edits.put_group("batch", members, "test"))
    view = site.capmc.of(Principal(name="wlm", role="workload-manager", scope=("batch",)))
    assert view.nodes().nids.tolist() == nids[:2]
    assert view.at_places([f"n{nids[2]:05d}"]) == [-1]
    assert view.group("gpu") is None
    assert not view.may_press()


async def test_paths_of_both_generations_lead_to_the_same_calls(site: CapmcSite) -> None:
    for path in ("/capmc/get_node_rules", "/capmc/v0/get_node_rules", "/capmc/v1/node_rules"):
        reply = await site.ask("json", "-r", path, stdin=b"{}")
        assert reply["latency_node_on"] == 600
    assert "xname" in (await site.ask("json", "-r", "/capmc/v1/get_nid_map", stdin=b"{}"))["nids"][0]
    assert (await site.ask("get_nid_map", "-n", "1"))["nids"][0]["cname"].startswith("x1000c0")
    assert (await site.ask("json", "-r", "/capmc/nothing", stdin=b"{}"))["e"] == 404
    assert (await site.ask("json", "-r", "/capmc/get_node_rules", stdin=b""))["err_msg"] == "Bad Request: JSON: EOF"
    assert (await site.ask("json", "-r", "/capmc/get_power_cap", stdin=b"[1"))["err_msg"] == "BAD_JSON"
    xname = (await site.ask("get_nid_map", "-n", str(compute(site)[0])))["nids"][0]["cname"]
    body = json.dumps({"xnames": [xname, "x9c9"]}).encode()
    assert (await site.ask("json", "-r", "/capmc/v1/xname_on", stdin=body))["xnames"][0]["xname"] == "x9c9"


async def test_counters_are_integers_with_six_digits_of_time(site: CapmcSite) -> None:
    uids = site.view.nodes().uids
    site.columns.put(uids, energy=uids * 1000.0, energy_time=time.time() + 600)  # however slow this machine is
    reply = await site.ask("get_node_energy_counter", "--nids", "1-3")
    assert reply["nid_count"] == 3
    assert [one["energy_ctr"] for one in reply["nodes"]] == [1000, 2000, 3000]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}[+-]\d\d", reply["nodes"][0]["time"])
    assert (await site.ask("get_node_energy_counter"))["err_msg"] == "MISSING_NIDS_APID_JOBID"


async def test_capabilities_put_equal_nodes_together(site: CapmcSite) -> None:
    [group] = (await site.ask("get_power_cap_capabilities"))["groups"]
    assert group["nids"] == compute(site)
    assert (group["name"], group["supply"], group["host_limit_min"], group["powerup"]) == ("01:000d", 2400, 200, 140)
    assert group["controls"] == [{"name": "node", "desc": "Node manager control", "min": 200, "max": 2400}]
