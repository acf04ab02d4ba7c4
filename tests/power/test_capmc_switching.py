"""Nodes, chassis and outlets, switched through CAPMC on simulated hardware: by NID, by xname, by group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.operations.records import OperationRow
from strata.store.protocol import Put
from support.capmc_site import CapmcSite, capmc_site

pytestmark = pytest.mark.slow

CHASSIS, OUTLET, PDU = "x1000c0", "x1000m0p0j1", "x1000m0p0"
FINE = {"e": 0, "err_msg": ""}
FROZEN = "frozen: nothing is started until a person lifts it"
HELD = "held: a person took it out of automation, and has not given it back"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[CapmcSite]:
    async with capmc_site(tmp_path, 8) as found:
        yield found


def name(nid: int) -> str:
    return f"n{nid:05d}"


def place(site: CapmcSite, nid: int) -> str:
    return site.service.registry.node(name(nid)).location


def wanted(site: CapmcSite, node: str) -> str:
    """The power that is desired of a node."""
    registry = site.service.registry
    desires = {one.variable: one.values for one in registry.desires.of(registry.index_of(node))}
    return "".join(desires.get("power", ()))


async def describe(site: CapmcSite, node: str, **change: Any) -> None:
    """Change the description of a node."""
    store, registry = site.service.controller.store, site.service.registry
    told = msgspec.structs.replace(registry.node(node), **change)
    await site.service.settled(await store.txn([Put(f"node/{node}", msgspec.msgpack.encode(told))]))


async def newest(site: CapmcSite) -> OperationRow:
    """The newest job, when it is done."""
    [job, *_] = await site.service.operations.recent()
    return await site.service.operations.wait(job.id)


async def test_a_frozen_node_is_told_and_the_others_are_switched(site: CapmcSite) -> None:
    await site.service.freeze(LOCAL_ADMIN, f"node:{name(2)}", "a test")
    for applet in ("node_reinit", "node_off", "node_on"):
        reply = await site.ask(applet, "-n", "2-4")
        assert reply == {
            "e": -1,
            "err_msg": "Errors encountered with 1/3 NIDs",
            "nids": [{"nid": 2, "e": 22, "err_msg": FROZEN}],
        }
        job = await newest(site)
        assert (job.total, job.done, job.failed) == (2, 2, 0)
    assert [wanted(site, name(nid)) for nid in (2, 3, 4)] == ["", "on", "on"]


async def test_a_held_node_is_told_though_it_is_ready(site: CapmcSite) -> None:
    await site.service.hold(LOCAL_ADMIN, name(3), "a test")
    reply = await site.ask("node_off", "-n", "2-3")
    assert (reply["e"], reply["nids"]) == (-1, [{"nid": 3, "e": 22, "err_msg": HELD}])
    await newest(site)
    assert [wanted(site, name(nid)) for nid in (2, 3)] == ["off", ""]
    assert await site.service.operations.recent(2) == [await newest(site)]
    alone = await site.ask("node_off", "-n", "3")
    assert alone["err_msg"] == "Errors encountered with 1/1 NIDs"
    assert len(await site.service.operations.recent()) == 1, "nothing was begun for nobody"


@pytest.mark.parametrize("meanwhile", ["nothing", "it is off", "it wants to be off"])
async def test_a_reinit_ends_with_the_node_on_whatever_was_wanted_before(site: CapmcSite, meanwhile: str) -> None:
    await site.ask("node_off", "-n", "2-3")
    if meanwhile == "it is off":
        await site.until("it is off", lambda: not site.machine.on(name(2)) and not site.machine.on(name(3)))
    elif meanwhile == "it wants to be off":
        await newest(site)
    assert await site.ask("node_reinit", "-n", "2-3") == FINE

    indices = [site.service.registry.index_of(name(nid)) for nid in (2, 3)]

    async def settled() -> bool:
        done = all(job.state not in ("pending", "running") for job in await site.service.operations.recent())
        nodes = [site.service.view.node(index) for index in indices]
        return done and all(node.doing is None and node.facts["power"].value == "on" for node in nodes)

    await site.until("both are on again, and nothing is under way", settled)
    assert site.machine.on(name(2))
    assert site.machine.on(name(3))
    assert [wanted(site, name(nid)) for nid in (2, 3)] == ["on", "on"]


async def test_a_chassis_and_its_outlet_have_a_state_and_are_switched_in_order(site: CapmcSite) -> None:
    async def known() -> bool:
        return await site.post("get_xname_status", xnames=[CHASSIS, OUTLET]) == {**FINE, "on": [OUTLET, CHASSIS]}

    await site.until("their power is known", known)
    # Alone, a chassis waits until nothing in it is on.
    assert await site.post("xname_off", xnames=[CHASSIS], reason="a test") == FINE
    job = await newest(site)
    assert (job.kind, job.total, job.done) == ("set-desires", 1, 1)
    assert wanted(site, CHASSIS) == "off"
    assert await site.post("xname_off", xnames=[OUTLET, CHASSIS], recursive=True) == FINE
    off = {place(site, nid) for nid in range(1, 9)} | {CHASSIS, OUTLET}

    async def dark() -> bool:
        return set((await site.post("get_xname_status")).get("off", ())) == off

    await site.until("all is off", dark)
    switched = [node for what, node in site.machine.log() if what == "power-off"]
    assert switched[-2:] == [CHASSIS, OUTLET]
    # A node is no good without what feeds it.
    assert await site.post("xname_on", xnames=[place(site, 2)], prereq=True) == FINE
    assert (await newest(site)).total == 3
    await site.until("it has power", lambda: site.machine.on(name(2)))
    assert [node for what, node in site.machine.log() if what == "power-on"] == [OUTLET, CHASSIS, name(2)]
    reply = await site.post("get_xname_status", filter="show_on")
    assert {CHASSIS, OUTLET} <= set(reply["on"])


async def test_service_nodes_in_what_is_switched_are_left_alone_and_told(site: CapmcSite) -> None:
    await describe(site, name(8), role="service")
    reply = await site.post("xname_off", xnames=["x1000"], recursive=True)
    assert reply == {
        "e": -1,
        "err_msg": "Errors encountered with 1/10 Xnames",
        "xnames": [{"xname": place(site, 8), "e": -1, "err_msg": "role blocked: not a compute node"}],
    }
    assert (await newest(site)).total == 9
    assert (wanted(site, name(7)), wanted(site, name(8)), wanted(site, CHASSIS)) == ("off", "", "off")
    named = await site.post("xname_off", xnames=[place(site, 8)])
    assert (named["e"], named["err_msg"]) == (400, f"xnames role blocked: [{place(site, 8)}]")


async def test_a_compute_node_without_a_nid_is_switched_like_any_other(site: CapmcSite) -> None:
    await describe(site, name(5), nid=None)
    registry = site.service.registry
    await site.service.settled(
        await site.service.edits.put_group("few", registry.select(f"{name(5)},{name(6)}"), "test")
    )
    assert await site.post("get_xname_status", xnames=[place(site, 5)]) == {**FINE, "ready": [place(site, 5)]}
    assert await site.post("get_group_status", groups=["few"]) == {
        **FINE,
        "groups": [{"group": "few", **FINE, "ready": [place(site, 5), place(site, 6)]}],
    }
    assert await site.post("group_reinit", groups=["few"]) == FINE
    job = await newest(site)
    assert (job.kind, job.total, job.done) == ("bmc", 2, 2)
    assert await site.post("xname_off", xnames=[place(site, 5)]) == FINE
    assert ((await newest(site)).total, wanted(site, name(5))) == (1, "off")
    assert await site.post("group_on", groups=["few"], reason="a test") == FINE
    assert ((await newest(site)).total, wanted(site, name(5)), wanted(site, name(6))) == (2, "on", "on")
    assert await site.post("group_off", groups=["few"]) == FINE
    assert ((await newest(site)).total, wanted(site, name(6))) == (2, "off")
    assert (await site.post("group_on"))["err_msg"] == "Bad Request: Missing required Group list"
    assert (await site.post("group_on", groups=["none"]))["err_msg"] == "Bad Request: invalid group: none"


async def test_a_restart_by_xname_is_done_to_nodes_and_not_to_what_feeds_them(site: CapmcSite) -> None:
    assert await site.post("xname_reinit", xnames=[place(site, 4)]) == FINE
    job = await newest(site)
    assert (job.kind, job.total, job.done) == ("bmc", 1, 1)
    reply = await site.post("xname_reinit", xnames=[CHASSIS])
    [error] = reply["xnames"]
    assert (reply["e"], error["xname"]) == (-1, CHASSIS)
    assert "not defined in power sequence" in error["err_msg"]
    jobs = await site.service.operations.recent()
    assert [one.kind for one in jobs] == ["bmc", "set-desires"], "its nodes still have their power"
    assert await site.post("xname_reinit", xnames=[CHASSIS], recursive=True) == FINE
    jobs = await site.service.operations.recent()
    assert sum(one.total for one in jobs if one.id != job.id and one.kind == "bmc") == 8


async def test_what_is_wrong_in_a_list_is_refused_whole_or_told_if_it_is_to_go_on(site: CapmcSite) -> None:
    good = place(site, 2)
    bad = await site.post("xname_off", xnames=[good, "x9c9", good])
    assert bad == {
        "e": 22,
        "err_msg": "invalid argument",
        "xnames": [
            {"xname": "x9c9", "e": 22, "err_msg": "invalid/duplicate xname"},
            {"xname": good, "e": 22, "err_msg": "invalid/duplicate xname"},
        ],
    }
    assert await site.service.operations.recent() == []
    went_on = await site.post("xname_off", **{"xnames": [good, "x9c9", good], "continue": True})
    assert (went_on["e"], [one["xname"] for one in went_on["xnames"]]) == (-1, ["x9c9"])
    assert ((await newest(site)).total, wanted(site, name(2))) == (1, "off")
    for body, why in (
        ({"xnames": [good], "continue": 5}, "Bad Request: invalid continue"),
        ({"xnames": [good], "recursive": "yes"}, "Bad Request: invalid recursive"),
        (
            {"xnames": [good], "recursive": True, "prereq": True},
            "Bad Request: recursive and prereq options are mutually exclusive",
        ),
        ({}, "Bad Request: Missing required xnames parameter"),
        ({"xnames": []}, "Bad Request: Required xnames list is empty"),
        ({"xnames": ["x9c9"], "continue": True}, "No nodes found to operate on"),
    ):
        reply = await site.post("xname_off", **body)
        assert (reply["e"], reply["err_msg"]) == (400, why)
    assert (await site.post("get_xname_status", source="bogus"))["err_msg"] == "unknown status source 'bogus'"
    assert (await site.post("get_xname_status", filter="show_all|bogus"))["err_msg"] == "invalid filter string: bogus"


@pytest.mark.parametrize(("cut", "dark"), [(PDU, [OUTLET]), (OUTLET, [OUTLET]), (CHASSIS, [CHASSIS, "n*"])])
async def test_the_red_button_takes_the_power_of_pdus_and_chassis(site: CapmcSite, cut: str, dark: list[str]) -> None:
    assert await site.post("emergency_power_off", xnames=[cut], reason="fire") == FINE
    registry = site.service.registry
    nodes = registry.select(",".join(dark))
    # A look that was under way may say first what it saw before.
    await site.until("they are known to be off", lambda: site.service.view.fact_mask("power", "off")[nodes].all())
    assert registry.brakes.frozen.sum() == len(nodes)
    assert not any(site.machine.on(name(nid)) for nid in range(1, 9)), (
        "the outlet feeds the chassis, and that the nodes"
    )


async def test_the_red_button_is_for_whole_components_only(site: CapmcSite) -> None:
    for xname in (place(site, 2), "x1000c0s0", "x77", "c0", "x1000c0r0", "nothing"):
        reply = await site.post("emergency_power_off", xnames=[xname])
        assert (reply["e"], reply["err_msg"]) == (400, "failure validating xnames: Invalid component"), xname
    assert (await site.post("emergency_power_off"))["err_msg"] == "Bad Request: Missing required xnames parameter"
    assert not site.service.registry.brakes.frozen.any()
    assert await site.post("emergency_power_off", xnames=["all"]) == FINE
    assert site.service.registry.brakes.freezes.keys() == {"fleet"}


async def test_a_scheduler_without_nodes_is_told_so(site: CapmcSite) -> None:
    for nid in range(1, 9):
        await describe(site, name(nid), nid=None)
    reply = await site.ask("node_on", "-n", "1")
    assert (reply["e"], reply["err_msg"]) == (404, "No nodes in machine")


async def test_a_node_whose_os_is_down_and_that_is_to_be_off_is_halted(site: CapmcSite) -> None:
    async def seen(**expected: list[int]) -> bool:
        return expected.items() <= (await site.ask("node_status", "-n", "4-5")).items()

    assert await site.ask("node_reinit", "-n", "4-5") == FINE
    await site.until("both wait to boot", lambda: seen(on=[4, 5]))
    await site.service.freeze(LOCAL_ADMIN, f"node:{name(4)}", "nobody switches it meanwhile")
    chosen = site.service.registry.select(name(4))
    done = await site.service.edits.set_desires(chosen, {"power": ("off",)}, (), "test")
    await site.service.settled(done.revision)
    assert await seen(halt=[4], on=[5])


async def test_a_node_that_somebody_examines_is_in_diag_while_it_has_power(site: CapmcSite) -> None:
    await describe(site, name(5), labels={"diag": "memtest"})
    assert (await site.ask("node_status", "-n", "4-5")) == {**FINE, "diag": [5], "ready": [4]}
    assert (await site.ask("node_status", "-f", "show_diag"))["diag"] == [5]
    await site.ask("node_off", "-n", "5")

    async def off() -> bool:
        return (await site.ask("node_status", "-n", "5")).get("off") == [5]

    await site.until("it is off", off)
