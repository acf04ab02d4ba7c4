"""The applets of ``capmc``: which options each takes, and the request that they make."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from strata.capmc_cli import nids

Body = dict[str, Any]
Options = argparse.Namespace

_FREQ, _MIN, _MAX = "PWR_ATTR_FREQ", "PWR_ATTR_FREQ_LIMIT_MIN", "PWR_ATTR_FREQ_LIMIT_MAX"
_SLEEP = "PWR_ATTR_CSTATE_LIMIT"
_CAN, _GET, _SET = "PWR_ObjAttrValueCapabilities", "PWR_ObjAttrGetValues", "PWR_ObjAttrSetValues"


def nid_list(text: str) -> list[int]:
    """For argparse."""
    try:
        return nids.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _apid(text: str) -> int | str:
    """A number where it is one, as the first of these services had them."""
    return int(text) if text.isdecimal() else text


def option(*names: str, **more: Any) -> Either:
    """One option, in the words of ``argparse``."""
    return ((names, more),)


Either = tuple[tuple[tuple[str, ...], dict[str, Any]], ...]
"""Options of which one may be given."""

_NIDS = option("-n", "--nids", type=nid_list, metavar="LIST", help="NIDs of nodes, such as 1,4,7-10")
_MUST = option("-n", "--nids", type=nid_list, metavar="LIST", help="NIDs of nodes, such as 1,4,7-10", required=True)
_SWITCH = (_MUST, option("-r", "--reason", help="why, for the log"))
_BEGIN = option("-s", "--start-time", metavar="'YYYY-MM-DD HH:MM:SS'")
_WHO = (
    option("-a", "--apid", type=_apid, help="application, such as 122232, or 4711.0 (a step)"),
    option("-j", "--job", "--jobid", "--job-id", dest="job_id", metavar="JOB", help="job of the scheduler"),
    _NIDS,
)
_DRIVES = option("-n", "--nids", type=nid_list, metavar="LIST", help="NIDs of nodes, such as 1,4,7-10") + option(
    "-c", "--cname", metavar="LIST", help="names of components, with commas between"
)
_ENERGY = (_BEGIN, option("-e", "--end-time", metavar="'YYYY-MM-DD HH:MM:SS'"), *_WHO)
_WINDOW = (_BEGIN, option("-w", "--window-len", type=int, metavar="SECONDS", help="length of the window"))


def _mode(*choices: str) -> tuple[Either, ...]:
    return _NIDS, option("-m", "--mode", required=True, choices=(*choices, "reset"))


def _plain(options: Options) -> Body:
    """Every option that was given, under its own name."""
    found = {key: value for key, value in vars(options).items() if value is not None}
    if "cname" in found:
        found["cname"] = [name for name in found["cname"].split(",") if name]
    return found


def _caps(options: Options) -> Body:
    given = (("node", options.node), ("accel", options.accel))
    controls = [{"name": name, "val": watts} for name, watts in given if watts is not None]
    return {"nids": [{"nid": nid, "controls": controls} for nid in options.nids]}


def _cnctl(function: str, *attributes: str) -> Callable[[Options], Body]:
    def build(options: Options) -> Body:
        values = {_MIN: getattr(options, "min", None), _MAX: getattr(options, "max", None)}
        values[_SLEEP] = getattr(options, "limit", None)
        listed: list[Body] = []
        for name in attributes:
            one: Body = {"PWR_AttrName": name}
            if function == _SET:
                one["PWR_AttrValue"] = str(values[name])
            listed.append(one)
        data = {"PWR_Function": function, "PWR_Attrs": listed, "PWR_MajorVersion": 0, "PWR_MinorVersion": 1}
        return {"nids": options.nids, "data": data}

    return build


Applet = tuple[str, tuple[Either, ...], Callable[[Options], Body]]
"""The call, the options, the request."""


def _applet(call: str, *options: Either, build: Callable[[Options], Body] = _plain) -> Applet:
    return call, options, build


APPLETS: dict[str, Applet] = {
    "node_rules": _applet("get_node_rules"),
    "node_status": _applet(
        "get_node_status",
        _NIDS,
        option("-f", "--filter", metavar="A|B", help="only nodes in these states, such as 'show_ready|show_off'"),
    ),
    "node_on": _applet("node_on", *_SWITCH),
    "node_off": _applet("node_off", *_SWITCH),
    "node_reinit": _applet("node_reinit", *_SWITCH),
    "get_power_cap_capabilities": _applet("get_power_cap_capabilities", _NIDS),
    "get_power_cap": _applet("get_power_cap", _NIDS),
    "set_power_cap": _applet(
        "set_power_cap",
        _MUST,
        option("-N", "--node", type=int, metavar="WATTS", help="cap of the node; 0: none"),
        option("-A", "--accel", type=int, metavar="WATTS", help="cap of its accelerators; 0: none"),
        build=_caps,
    ),
    "get_freq_capabilities": _applet("cnctl", _MUST, build=_cnctl(_CAN, _FREQ)),
    "get_freq_limits": _applet("cnctl", _MUST, build=_cnctl(_GET, _FREQ, _MIN, _MAX)),
    "set_freq_limits": _applet(
        "cnctl",
        _MUST,
        option("-m", "--min", type=int, required=True, metavar="KHZ", help="lowest frequency"),
        option("-M", "--max", type=int, required=True, metavar="KHZ", help="highest frequency"),
        # The lower limit twice: the first time it may be above the upper limit that still holds.
        build=_cnctl(_SET, _MIN, _MAX, _MIN),
    ),
    "get_sleep_state_limit_capabilities": _applet("cnctl", _MUST, build=_cnctl(_CAN, _SLEEP)),
    "get_sleep_state_limit": _applet("cnctl", _MUST, build=_cnctl(_GET, _SLEEP)),
    "set_sleep_state_limit": _applet(
        "cnctl",
        _MUST,
        option("-l", "--limit", type=int, required=True, metavar="STATE", help="deepest sleep state"),
        build=_cnctl(_SET, _SLEEP),
    ),
    "get_mcdram_capabilities": _applet("get_mcdram_capabilities", _NIDS),
    "get_mcdram_cfg": _applet("get_mcdram_cfg", _NIDS),
    "set_mcdram_cfg": _applet("set_mcdram_cfg", *_mode("flat", "0", "split", "25", "equal", "50", "cache", "100")),
    "get_numa_capabilities": _applet("get_numa_capabilities", _NIDS),
    "get_numa_cfg": _applet("get_numa_cfg", _NIDS),
    "set_numa_cfg": _applet("set_numa_cfg", *_mode("a2a", "snc2", "snc4", "hemi", "quad")),
    "get_ssd_enable": _applet("get_ssd_enable", _NIDS),
    "set_ssd_enable": _applet("set_ssd_enable", *_mode("enable", "disable")),
    "get_ssds": _applet("get_ssds", _DRIVES),
    "get_ssd_diags": _applet("get_ssd_diags", _DRIVES),
    "get_node_energy": _applet("get_node_energy", *_ENERGY),
    "get_node_energy_stats": _applet("get_node_energy_stats", *_ENERGY),
    "get_node_energy_counter": _applet(
        "get_node_energy_counter", option("-t", "--time", metavar="'YYYY-MM-DD HH:MM:SS'"), *_WHO
    ),
    "get_system_parameters": _applet("get_system_parameters"),
    "get_system_power": _applet("get_system_power", *_WINDOW),
    "get_system_power_details": _applet("get_system_power_details", *_WINDOW),
    "get_nid_map": _applet("get_nid_map", _NIDS),
    "get_partition_map": _applet("get_partition_map"),
}
