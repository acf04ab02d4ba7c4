"""The examples of the paper that introduced CAPMC (figures 2 to 16), field for field on a data set made for them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
from capmc_fake import FakeMachine

from strata.capmc_cli.applets import APPLETS as COMMANDS
from strata.capmc_cli.capmc import _parse
from strata.power.accounting.records import Spans
from strata.power.capmc.applets import APPLETS
from strata.power.capmc.request import Ask
from strata.power.telemetry.columns import Kind

CENTRAL = dt.timezone(dt.timedelta(hours=-5))


def uids(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def at(text: str) -> float:
    return dt.datetime.fromisoformat(text).replace(tzinfo=CENTRAL).timestamp()


async def post(machine: FakeMachine, resource: str, body: dict[str, Any]) -> Any:
    applet = resource.rpartition("/")[2]
    reply = await APPLETS[applet].answer(machine, Ask(applet=applet, body=body))
    assert reply.status == 200
    return json.loads(reply.body)


async def capmc(machine: FakeMachine, line: str, *quoted: str) -> Any:
    """What the command makes of a line of the paper, and what the service answers."""
    applet, *arguments = [*line.split(), *quoted]
    call, add, build = COMMANDS[applet]
    return await post(machine, call, build(_parse(applet, add, arguments)))


def small() -> FakeMachine:
    return FakeMachine({1: "ready", 2: "ready", 65: "disabled"}, zone=CENTRAL)


FIGURE_2 = {"e": 0, "err_msg": "", "disabled": [65], "ready": [1, 2]}


async def test_figures_2_3_and_5_node_status() -> None:
    assert await post(small(), "/capmc/get_node_status", {"nids": [1, 2, 65]}) == FIGURE_2
    assert await capmc(small(), "node_status --nids=1-2,65") == FIGURE_2


def haswell() -> FakeMachine:
    machine = FakeMachine(dict.fromkeys((1, 2, 3, 4, 5, 99, 761, 762, 763), "ready"), zone=CENTRAL)
    known = uids(761, 762, 763)
    machine.columns.put(known, least=180.0, most=360.0, supply=425.0, static=0.0, powerup=140.0, cap=0.0)
    name = "01:000d:306f:00f0:0018:0080:0855:0000"
    machine.columns.describe(known, Kind(name, "ComputeANC_HSW_240W_24c_128GB_2133_NoAccel"))
    return machine


async def test_figures_6_and_7_node_off_and_node_on() -> None:
    machine = haswell()
    assert await capmc(machine, "node_off -n 1-5,99") == {"e": 0, "err_msg": ""}
    assert await capmc(machine, "node_on -n 1-5,99") == {"e": 0, "err_msg": ""}
    assert machine.switched == [("off", [1, 2, 3, 4, 5, 99], ""), ("on", [1, 2, 3, 4, 5, 99], "")]


async def test_figure_8_node_rules() -> None:
    found = await capmc(small(), "node_rules")
    # Restarting came to the interface later than the paper.
    assert found.pop("latency_node_reinit") == 760
    assert found.pop("max_reinit_req_count") == -1
    assert found == {
        "e": 0,
        "err_msg": "",
        "latency_node_off": 60,
        "latency_node_on": 600,
        "max_off_req_count": -1,
        "max_off_time": -1,
        "max_on_req_count": -1,
        "min_off_time": 900,
    }


async def test_figure_9_capabilities() -> None:
    assert await capmc(haswell(), "get_power_cap_capabilities -n 761-763") == {
        "groups": [
            {
                "name": "01:000d:306f:00f0:0018:0080:0855:0000",
                "desc": "ComputeANC_HSW_240W_24c_128GB_2133_NoAccel",
                "supply": 425,
                "host_limit_min": 180,
                "host_limit_max": 360,
                "static": 0,
                "powerup": 140,
                "controls": [{"name": "node", "desc": "Node manager control", "min": 180, "max": 360}],
                "nids": [761, 762, 763],
            }
        ],
        "e": 0,
        "err_msg": "",
    }


async def test_figures_10_and_11_caps() -> None:
    machine = haswell()
    free = {"nids": [{"nid": 761, "controls": [{"name": "node", "val": 0}]}], "e": 0, "err_msg": ""}
    assert await capmc(machine, "get_power_cap -n 761") == free
    assert await capmc(machine, "set_power_cap -n 761 --node 220") == {"e": 0, "err_msg": ""}
    assert machine.capped == [("node", {761: 220.0})]
    assert (await capmc(machine, "get_power_cap -n 761"))["nids"][0]["controls"][0]["val"] == 220


async def test_figure_12_system_power() -> None:
    machine = small()
    begin = at("2015-04-01 17:02:10")
    machine.time = begin + 600
    machine.series.drawn = [(begin + 10, 5748.0, 2), (begin + 200, 6132.0, 2), (begin + 400, 5946.0, 2)]
    assert await capmc(machine, "get_system_power -w 600") == {
        "start_time": "2015-04-01 17:02:10",
        "avg": 5942,
        "min": 5748,
        "max": 6132,
        "window_len": 600,
        "e": 0,
        "err_msg": "",
    }


async def test_figure_13_cabinets() -> None:
    machine = small()
    begin = at("2015-04-01 17:00:00")
    # Six hundred seconds whose sum is 3,564,799 W: the mean of the figure, to its last digit.
    watts = np.full(600, 5941.0)
    watts[0], watts[1] = 6170.0, 5695.0
    watts[2] += 3_564_799 - watts.sum()
    machine.series.drawn = [(begin + second, float(value), 2) for second, value in enumerate(watts)]
    assert await capmc(machine, "get_system_power_details -w 600 -s", "2015-04-01 17:00:00") == {
        "cabinets": [{"avg": 5941.3316666666669, "max": 6170, "min": 5695, "x": 0, "y": 0}],
        "e": 0,
        "err_msg": "",
        "start_time": "2015-04-01 17:00:00",
        "window_len": 600,
    }


async def test_figure_14_statistics_of_a_job() -> None:
    nids = list(range(20, 132))
    machine = FakeMachine(dict.fromkeys(nids, "ready"), zone=CENTRAL)
    begin = at("2015-04-01 12:00:00")
    machine.spans["627929.sdb"] = Spans(uids=uids(*nids), spans=[(begin, begin + 293.53360400000003)])
    used = dict.fromkeys(nids, 0)
    used |= {59: 102_988, 127: 15_118}
    others = [nid for nid in nids if nid not in (59, 127)]
    each, left = divmod(9_860_413 - 102_988 - 15_118, len(others))
    used |= {nid: each + (place < left) for place, nid in enumerate(others)}
    machine.series.used = {nid: float(joules) for nid, joules in used.items()}
    found = await capmc(machine, "get_node_energy_stats --jobid 627929.sdb")
    # The paper does not tell all 112 energies; the spread is that of these.
    spread = float(np.std(list(used.values())))
    assert found.pop("energy_std") == spread
    assert abs(found.pop("time") - 293.53360400000003) < 1e-6
    assert found == {
        "e": 0,
        "energy_avg": 88039.40178571429,
        "energy_max": [59, 102988],
        "energy_min": [127, 15118],
        "energy_total": 9860413,
        "err_msg": "",
        "nid_count": 112,
    }


async def test_figure_15_energy_of_an_application() -> None:
    machine = FakeMachine({12: "ready"}, zone=CENTRAL)
    # From zero: the length of the figure has more digits than a time of today leaves room for.
    machine.spans["122232"] = Spans(uids=uids(12), spans=[(0.0, 7.3095230000000004)])
    machine.series.used = {12: 615.2}
    assert await capmc(machine, "get_node_energy --apid 122232") == {
        "err_msg": "",
        "nodes": [{"energy": 615, "nid": 12}],
        "e": 0,
        "nid_count": 1,
        "time": 7.3095230000000004,
    }


async def test_figure_16_counters_at_a_time() -> None:
    machine = FakeMachine({1008: "ready", 1009: "ready", 1010: "off"}, zone=CENTRAL)
    seen = at("2015-04-01 23:45:00") + 0.39833
    machine.series.counters = {1008: [(seen, 3865217.0)], 1009: [(seen, 3998809.0)], 1010: [(seen, 3919829.0)]}
    found = await capmc(machine, "get_node_energy_counter -n 1008-1010 -t", "2015-04-01 23:45:00")
    # Six digits where the paper drops a zero: Slurm reads them as microseconds.
    time = "2015-04-01 23:45:00.398330-05"
    assert found == {
        "e": 0,
        "err_msg": "",
        "nid_count": 3,
        "nodes": [
            {"energy_ctr": 3865217, "nid": 1008, "time": time},
            {"energy_ctr": 3998809, "nid": 1009, "time": time},
            {"energy_ctr": 3919829, "nid": 1010, "time": time},
        ],
    }
