"""Caps over CAPMC: what a bias makes of them, whom an empty list means, and how an empty request is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capmc_fake import FakeMachine

from strata.power.capmc.applets import APPLETS
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
