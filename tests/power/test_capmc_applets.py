"""CAPMC's applets by themselves: shapes, refusals and partial failures as clients parse them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from capmc_fake import FakeMachine

from strata.power.accounting.records import Spans
from strata.power.capmc.applets import APPLETS, changes
from strata.power.capmc.records import READY
from strata.power.capmc.reply import Refusal
from strata.power.capmc.request import Ask


async def ask(machine: FakeMachine, applet: str, **body: Any) -> tuple[int, Any]:
    try:
        reply = await APPLETS[applet].answer(machine, Ask(applet=applet, body=body))
    except Refusal as refusal:
        reply = refusal.reply
    return reply.status, json.loads(reply.body)


def machine(states: Mapping[int, str] | None = None, *, accel: bool = False, **more: Any) -> FakeMachine:
    found = FakeMachine(states or dict.fromkeys(range(1, 5), "ready"), **more)
    uids = found.nodes().uids
    found.columns.put(uids, least=180.0, most=500.0, supply=425.0, cap=0.0, powerup=140.0)
    if accel:
        found.columns.put(uids, accel_least=100.0, accel_most=235.0, accel_cap=0.0)
    return found


def cap(nid: int, **controls: int) -> dict[str, Any]:
    return {"nid": nid, "controls": [{"name": name, "val": value} for name, value in controls.items()]}


async def test_a_filter_shows_only_what_it_names() -> None:
    some = machine({1: "ready", 2: "off", 3: "standby"})
    _, found = await ask(some, "get_node_status", filter="show_off|show_ready")
    assert found == {"e": 0, "err_msg": "", "off": [2], "ready": [1]}
    status, found = await ask(some, "get_node_status", filter="show_none")
    assert (status, found["err_msg"]) == (400, "invalid filter string: show_none")


async def test_a_filter_or_a_source_that_does_not_exist_is_refused() -> None:
    _, found = await ask(machine(), "get_node_status", filter="show_all|bogus")
    assert found == {"e": 400, "err_msg": "invalid filter string: bogus"}
    _, found = await ask(machine(), "get_node_status", source="bogus")
    assert found == {"e": 400, "err_msg": "unknown status source 'bogus'"}
    assert (await ask(machine(), "get_node_status", source="HSM", filter="show_ready"))[1]["ready"] == [1, 2, 3, 4]


async def test_a_node_of_which_nothing_is_known_is_listed_all_the_same() -> None:
    _, found = await ask(machine({1: "ready", 2: "undefined"}), "get_node_status")
    assert sorted(nid for key, nids in found.items() if isinstance(nids, list) for nid in nids) == [1, 2]


@pytest.mark.parametrize("nids", [["1"], [True], [-1], [1.5], "1", {"a": 1}])
async def test_nids_that_are_no_integers_are_refused(nids: Any) -> None:
    status, found = await ask(machine(), "get_node_status", nids=nids)
    assert (status, found["e"]) == (400, 400)


async def test_switching_needs_nodes_that_compute_and_are_not_disabled() -> None:
    some = machine({1: "ready", 2: "disabled", 3: "ready"}, service=[3])
    assert (await ask(some, "node_on"))[1]["err_msg"] == "Bad Request: Missing required NID list"
    assert (await ask(some, "node_off", nids=[3]))[1]["err_msg"] == "Invalid type, not a compute node: [3]"
    assert (await ask(some, "node_off", nids=[2]))[1]["err_msg"] == "NIDs are disabled: [2]"
    assert (await ask(FakeMachine({}), "node_on", nids=[1]))[0] == 404
    assert some.switched == []


async def test_a_node_that_cannot_be_switched_is_told_and_the_others_are_not() -> None:
    some = machine()
    some.failing = {2: "frozen"}
    status, found = await ask(some, "node_reinit", nids=[1, 2])
    assert status == 200
    assert found == {
        "e": -1,
        "err_msg": "Errors encountered with 1/2 NIDs",
        "nids": [{"nid": 2, "e": 22, "err_msg": "frozen"}],
    }


async def test_nodes_that_are_not_ready_have_no_cap_to_tell() -> None:
    some = machine({1: "ready", 2: "off", 3: "ready"})
    some.columns.put(np.array([3]), cap=np.nan)
    _, found = await ask(some, "get_power_cap", nids=[1, 2, 3])
    assert (found["e"], found["err_msg"]) == (52, "Invalid exchange")
    assert found["nids"] == [
        {"nid": 1, "controls": [{"name": "node", "val": 0}]},
        {"nid": 2, "e": 22, "err_msg": "Invalid state, NID is not 'ready'"},
        {"nid": 3, "e": 66, "err_msg": "No data available"},
    ]


async def test_a_control_that_is_not_named_goes_to_its_default() -> None:
    some = machine(accel=True)
    assert (await ask(some, "set_power_cap", nids=[cap(1, node=300, accel=150)]))[1]["e"] == 0
    assert (await ask(some, "set_power_cap", nids=[cap(1, node=310)]))[1]["e"] == 0
    assert some.capped[-2:] == [("node", {1: 310.0}), ("accel", {1: 0.0})]
    _, found = await ask(some, "get_power_cap", nids=[1])
    assert found["nids"][0]["controls"] == [{"name": "node", "val": 310}, {"name": "accel", "val": 0}]
    _, found = await ask(some, "get_power_cap_capabilities")
    [group] = found["groups"]
    assert (group["host_limit_min"], group["host_limit_max"]) == (80, 265)
    assert [control["name"] for control in group["controls"]] == ["node", "accel"]


async def test_a_cap_above_the_supply_is_lowered_to_it() -> None:
    some = machine()
    assert (await ask(some, "set_power_cap", nids=[cap(1, node=480)]))[1] == {"e": 0, "err_msg": ""}
    assert some.capped == [("node", {1: 425.0})]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ([cap(1, node=300), cap(1, node=300)], "Duplicate NID"),
        ([cap(9, node=300)], "Undefined NID"),
        ([cap(4, node=300)], "Invalid type, not a compute node"),
        ([{"nid": 1, "controls": ["x"]}], "Invalid command, 'control' is not an object"),
        ([cap(1, gpu=300)], "Invalid control specified: gpu"),
        ([cap(1, accel=300)], "Invalid control specified: accel"),
        ([cap(1, node=179)], "Control (node) value (179) is less than minimum (180)"),
        ([cap(1, node=501)], "Control (node) value (501) is greater than maximum (500)"),
        ([cap(1)], "No NID supported controls specified"),
        ([cap(1, node=300), cap(2, node=1)], "Control (node) value (1) is less than minimum (180)"),
    ],
)
async def test_one_wrong_cap_and_none_is_set(wanted: list[Any], why: str) -> None:
    some = machine(service=[4])
    status, found = await ask(some, "set_power_cap", nids=wanted)
    assert (status, found["e"], found["err_msg"]) == (200, 22, "Invalid argument")
    assert [one["err_msg"] for one in found["nids"]] == [why]
    assert some.capped == []


async def test_computed_biases_even_out_what_was_drawn() -> None:
    some = machine()
    data = [{"nid": 1, "avgpwr": 350}, {"nid": 2, "avgpwr": 361}]
    assert (await ask(some, "set_power_bias_data", app="xhpl", nids=data))[1] == {"e": 0, "err_msg": "Success"}
    _, found = await ask(some, "compute_power_bias", app="xhpl")
    assert found["nids"] == [{"nid": 1, "power-bias": 0.984529}, {"nid": 2, "power-bias": 1.015471}]
    assert (await ask(some, "get_power_bias", nids=[1]))[1]["nids"] == [{"nid": 1, "power-bias": 1.0}]
    await ask(some, "set_power_bias", nids=found["nids"])
    assert (await ask(some, "get_power_bias", nids=[2]))[1]["nids"] == [{"nid": 2, "power-bias": 1.015471}]
    await ask(some, "clr_power_bias")
    assert some.kept["bias"] == {}


async def test_a_bias_is_for_compute_nodes_each_once() -> None:
    some = machine(service=[4])
    given = [{"nid": 4, "power-bias": 1.1}, {"nid": 1, "power-bias": 0.9}, {"nid": 1, "power-bias": 1.2}]
    status, found = await ask(some, "set_power_bias", nids=given)
    assert (status, found["e"], found["err_msg"]) == (200, 22, "Invalid argument")
    assert found["nids"] == [
        {"nid": 4, "e": 22, "err_msg": "Invalid type, not a compute node"},
        {"nid": 1, "e": 22, "err_msg": "Duplicate NID"},
    ]
    assert some.kept == {}


async def test_health_tells_of_trouble() -> None:
    some = machine()
    assert (await ask(some, "health"))[1] == {
        "e": 0, "err_msg": "", "readiness": "Ready", "vault": "not used", "hsm": "4 nodes",
    }  # fmt: skip
    some.trouble = "the store is away"
    assert (await ask(some, "health"))[1]["readiness"] == "Not ready: the store is away"


async def test_the_spread_of_energies_is_that_of_the_whole_population() -> None:
    some = machine()
    some.series.used = {1: 62623.0, 2: 45454.0, 3: 42870.0}
    window = {"start_time": "2015-04-01 12:00:00", "end_time": "2015-04-01 12:05:00"}
    _, found = await ask(some, "get_node_energy_stats", nids=[1, 2, 3], **window)
    assert round(found["energy_std"], 2) == 8766.30
    assert (found["energy_max"], found["energy_min"], found["time"]) == ([1, 62623], [3, 42870], 300.0)


async def test_energy_wants_a_time_and_nodes_and_tells_when_there_is_nothing() -> None:
    some = machine()
    assert (await ask(some, "get_node_energy", nids=[1]))[1]["err_msg"] == "INVALID_ARGUMENTS"
    window = {"start_time": "2015-04-01 12:05:00", "end_time": "2015-04-01 12:00:00"}
    status, found = await ask(some, "get_node_energy", nids=[1], **window)
    assert (status, found["err_msg"].split(":")[0]) == (400, "Inverted time window - start time")
    assert (await ask(some, "get_node_energy", nids=[1], start_time="x"))[1]["err_msg"] == "BAD_START_TIME"
    assert (await ask(some, "get_node_energy", job_id="7"))[1]["err_msg"] == "BAD_JOB_ID"
    status, found = await ask(some, "get_node_energy", nids=[1], start_time="2015-04-01 12:00:00")
    assert (status, found["e"]) == (200, 400)
    assert found["err_msg"] == "Error: No data in time window, Start Time: 2015-04-01 12:00:00"


async def test_the_energy_of_a_suspended_job_is_that_of_the_times_in_which_it_ran() -> None:
    some = machine()
    some.spans["7"] = Spans(uids=np.array([1, 2]), spans=[(0.0, 10.0), (100.0, 130.0)])
    some.series.used = {1: 5.0, 2: 6.0}
    _, found = await ask(some, "get_node_energy", apid="7", nids=[2])
    assert (found["time"], found["nodes"]) == (40.0, [{"nid": 2, "energy": 12}])


async def test_windows_of_system_power_are_checked_and_widened_where_nothing_was_read_yet() -> None:
    some = machine()
    assert (await ask(some, "get_system_power", window_len=1))[1]["err_msg"] == "WINDOW_LEN_OUT_OF_RANGE"
    assert (await ask(some, "get_system_power", window_len="x"))[1]["err_msg"] == "BAD_WINDOW_LEN"
    assert (await ask(some, "get_system_power", start_time="1"))[1]["err_msg"] == "BAD_START_TIME"
    assert (await ask(some, "get_system_power"))[1] == {"e": 400, "err_msg": "NO_DATA"}
    some.series.drawn = [(some.time - 25, 900.0, 4), (some.time - 20, 100.0, 1)]
    _, found = await ask(some, "get_system_power")
    # The sum over one of four nodes is not the system's.
    assert (found["window_len"], found["avg"], found["min"], found["max"]) == (120, 900, 900, 900)


async def test_maps_and_unknown_nodes() -> None:
    some = machine(service=[4])
    _, found = await ask(some, "get_nid_map", nids=[4])
    assert found["nids"] == [{"nid": 4, "cname": "c0-0c0s1n0", "role": "service"}]
    status, found = await ask(some, "get_nid_map", nids=[4, 8])
    assert (status, found["e"], found["nids"]) == (200, 22, [{"nid": 8, "e": 22, "err_msg": "Undefined NID"}])
    assert (await ask(some, "get_partition_map"))[1]["partitions"] == [{"partition": 0, "nids": [1, 2, 3, 4]}]
    assert (await ask(some, "get_system_parameters"))[1]["ramp_limited"] is False


async def test_the_red_button_is_not_for_everybody() -> None:
    status, _ = await ask(machine(), "emergency_power_off", xnames=["s0"])
    assert status == 403


def test_reading_limits_of_kernels_needs_no_right_to_change_them() -> None:
    read = Ask(applet="cnctl", body={"data": {"PWR_Function": "PWR_ObjAttrGetValues"}})
    write = Ask(applet="cnctl", body={"data": {"PWR_Function": "PWR_ObjAttrSetValues"}})
    assert (changes("cnctl", read), changes("cnctl", write), changes("cnctl", Ask(applet="cnctl", body={}))) == (
        False,
        True,
        True,
    )
    assert changes("node_off", read)
    assert not changes("get_power_cap", read)


def test_ready_is_a_state() -> None:
    assert machine().nodes().states.tolist() == [READY] * 4


@pytest.mark.parametrize("source", ["redfish", "Hardware"])
async def test_the_hardware_knows_on_off_and_undefined_only(source: str) -> None:
    states = dict(enumerate(("ready", "standby", "halt", "diag", "on", "disabled", "off", "undefined"), 1))
    some = FakeMachine(states)
    expected = {"e": 0, "err_msg": "", "on": [1, 2, 3, 4, 5, 6], "off": [7], "undefined": [8]}
    assert (await ask(some, "get_node_status", source=source))[1] == expected
    _, found = await ask(some, "get_xname_status", source=source)
    assert sorted(found) == ["e", "err_msg", "off", "on", "undefined"]
    assert len(found["on"]) == 6
    assert (await ask(some, "get_node_status", source="hsm"))[1]["ready"] == [1]


async def test_a_control_has_the_name_that_the_successor_gives_it() -> None:
    some = machine()
    assert (await ask(some, "set_power_cap", nids=[cap(1, **{"Node Power Limit": 300})]))[1] == {"e": 0, "err_msg": ""}
    assert some.capped == [("node", {1: 300.0})]
    _, twice = await ask(some, "set_power_cap", nids=[cap(1, **{"Node Power Limit": 300, "node": 310})])
    assert twice["nids"][0]["err_msg"] == "Duplicate control specified: node"
