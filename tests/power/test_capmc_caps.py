"""Caps over CAPMC: what a bias makes of them, whom an empty list means, and how an empty request is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from capmc_fake import FakeMachine

from strata.power.capmc.applets import APPLETS
from strata.power.capmc.records import STATES
from strata.power.capmc.reply import Refusal
from strata.power.capmc.request import Ask
from support.capmc_site import capmc_site


async def ask(machine: FakeMachine, applet: str, **body: Any) -> tuple[int, Any]:
    try:
        reply = await APPLETS[applet].answer(machine, Ask(applet=applet, body=body))
    except Refusal as refusal:
        reply = refusal.reply
    return reply.status, json.loads(reply.body)


def machine(states: Mapping[int, str], **more: Any) -> FakeMachine:
    found = FakeMachine(states, **more)
    found.columns.put(found.nodes().uids, least=200.0, most=2400.0, supply=2300.0, cap=0.0)
    return found


@pytest.mark.parametrize(
    ("bias", "asked", "cap"), [(1.5, 2000, 2300), (0.5, 200, 200), (1.5, 300, 450), (0.9, 401, 361), (1.5, 0, 0)]
)
async def test_a_bias_takes_a_cap_no_further_than_the_node_goes(bias: float, asked: int, cap: int) -> None:
    some = machine({1: "ready", 2: "ready"})
    assert (await ask(some, "set_power_bias", nids=[{"nid": 1, "power-bias": bias}]))[1]["e"] == 0
    wanted = [{"nid": nid, "controls": [{"name": "node", "val": asked}]} for nid in (1, 2)]
    assert (await ask(some, "set_power_cap", nids=wanted))[1] == {"e": 0, "err_msg": ""}
    assert some.capped == [("node", {1: float(cap), 2: float(asked)})]
    _, found = await ask(some, "get_power_cap")
    biased = [{"name": "node-biased", "val": cap}, {"name": "bias-factor", "val": bias}] if asked else []
    assert found["nids"][0]["controls"] == [{"name": "node", "val": asked}, *biased]
    assert found["nids"][1]["controls"] == [{"name": "node", "val": asked}]


def wanted(*caps: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"nid": nid, "controls": [{"name": "node", "val": watts}]} for nid, watts in caps]


def together(some: FakeMachine) -> float:
    """What all nodes may draw."""
    return float(some.columns.column("cap", some.nodes().uids).sum())


@pytest.mark.parametrize("why", ["it leaves", "its BMC refuses"])
async def test_what_a_node_did_not_free_is_not_given_to_others_in_the_next_request(why: str) -> None:
    some = machine({1: "ready", 2: "ready", 3: "standby" if why == "it leaves" else "ready", 4: "ready"})
    uids = some.nodes().uids
    some.columns.put(uids, cap=500.0)
    if why == "its BMC refuses":
        some.failing = {3: "it says no"}
    # As Slurm does it: what falls, then what rises; it looks at neither answer.
    _, falls = await ask(some, "set_power_cap", nids=wanted((1, 400), (3, 350)))
    assert (falls["e"], [one["nid"] for one in falls["nids"]]) == (52, [3])
    assert some.capped[-1][1].get(1) == 400.0, "the others fell all the same"
    _, rises = await ask(some, "set_power_cap", nids=wanted((2, 600), (4, 650)))
    assert together(some) <= 2000
    assert rises["nids"] == [
        {"nid": 4, "e": 22, "err_msg": "not raised: what other nodes were to free for it was not freed"}
    ]
    some.failing = {}
    some.columns.put(uids[2:3], cap=350.0)
    assert (await ask(some, "set_power_cap", nids=wanted((4, 650))))[1] == {"e": 0, "err_msg": ""}
    assert together(some) == 2000


async def test_what_was_not_freed_is_owed_by_who_asked_for_it_alone_and_only_while_it_is_drawn() -> None:
    some = machine({1: "standby", 2: "ready"})
    some.columns.put(some.nodes().uids, cap=500.0)
    await ask(some, "set_power_cap", nids=wanted((1, 300)))
    assert some.kept == {"unpaid/ab": {1: 300.0}}
    some.caller = "cd"
    assert (await ask(some, "set_power_cap", nids=wanted((2, 600))))[1]["e"] == 0
    some.caller = "ab"
    assert (await ask(some, "set_power_cap", nids=wanted((2, 700))))[1]["e"] == 22
    off = some.nodes().states.copy()
    off[0] = STATES.index("off")
    some.table = msgspec.structs.replace(some.nodes(), states=off)
    assert (await ask(some, "set_power_cap", nids=wanted((2, 700))))[1]["e"] == 0


async def test_just_after_the_start_a_cap_is_not_known_yet_and_not_an_invalid_control() -> None:
    some = FakeMachine({1: "ready"})
    _, found = await ask(some, "set_power_cap", nids=wanted((1, 300)))
    assert found["nids"][0]["err_msg"].startswith("Could not lookup")
    assert "not known yet" in found["nids"][0]["err_msg"]
    some.columns.put(some.nodes().uids, power=200.0, power_time=1.0)
    _, found = await ask(some, "set_power_cap", nids=wanted((1, 300)))
    assert found["nids"][0]["err_msg"] == "Invalid control specified: node", "it was read, and cannot be capped"


async def test_an_empty_list_asks_for_the_caps_of_all_nodes_that_are_ready() -> None:
    some = machine({1: "ready", 2: "off", 3: "ready", 4: "ready"}, service=[4])
    for body in ({}, {"nids": []}):
        _, found = await ask(some, "get_power_cap", **body)
        assert (found["e"], found["err_msg"]) == (0, "")
        assert [one["nid"] for one in found["nids"]] == [1, 3]
    _, found = await ask(some, "get_power_cap", nids=[1, 2])
    assert (found["e"], found["nids"][1]["err_msg"]) == (52, "Invalid state, NID is not 'ready'")
    some.columns.put(np.array([3]), cap=np.nan)
    _, found = await ask(some, "get_power_cap")
    assert (found["e"], found["nids"][1]) == (52, {"nid": 3, "e": 66, "err_msg": "No data available"})


@pytest.mark.slow
async def test_a_request_without_anything_is_refused_in_the_words_that_clients_know(tmp_path: Path) -> None:
    async with capmc_site(tmp_path, 2) as site:
        for applet in ("set_power_cap", "get_power_cap", "get_system_power", "get_system_power_details"):
            told = await site.ask("json", "-r", f"/capmc/{applet}", stdin=b"")
            assert told == {"e": 400, "err_msg": "no request"}
        for body in (b"{}", b'{"nids":[]}'):
            told = await site.ask("json", "-r", "/capmc/set_power_cap", stdin=body)
            assert told == {"e": 400, "err_msg": "no NIDs"}
        told = await site.ask("json", "-r", "/capmc/get_node_rules", stdin=b"")
        assert told == {"e": 400, "err_msg": "Bad Request: JSON: EOF"}
