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
MODES = {
    "set_mcdram_cfg": ("flat", "0", "split", "25", "equal", "50", "cache", "100", "reset"),
    "set_numa_cfg": ("a2a", "snc2", "snc4", "hemi", "quad", "reset"),
    "set_ssd_enable": ("enable", "disable", "reset"),
}


def nid_list(text: str) -> list[int]:
    """For argparse."""
    try:
        return nids.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _apid(text: str) -> int | str:
    """A number where it is one, as the first of these services had them."""
    return int(text) if text.isdecimal() else text


def _nids(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument("-n", "--nids", type=nid_list, required=required, metavar="LIST", help="such as 1,4,7-10")


def _none(parser: argparse.ArgumentParser) -> None:
    """No options."""


def _some(parser: argparse.ArgumentParser) -> None:
    _nids(parser)


def _must(parser: argparse.ArgumentParser) -> None:
    _nids(parser, required=True)


def _status(parser: argparse.ArgumentParser) -> None:
    _nids(parser)
    parser.add_argument("-f", "--filter", metavar="A|B", help="such as 'show_ready|show_off'")


def _switch(parser: argparse.ArgumentParser) -> None:
    _nids(parser, required=True)
    parser.add_argument("-r", "--reason", help="why")


def _cap(parser: argparse.ArgumentParser) -> None:
    _nids(parser, required=True)
    parser.add_argument("-N", "--node", type=int, metavar="WATTS", help="of the node; 0: no cap")
    parser.add_argument("-A", "--accel", type=int, metavar="WATTS", help="of its accelerators; 0: no cap")


def _frequencies(parser: argparse.ArgumentParser) -> None:
    _nids(parser, required=True)
    parser.add_argument("-m", "--min", type=int, required=True, metavar="KHZ")
    parser.add_argument("-M", "--max", type=int, required=True, metavar="KHZ")


def _sleep(parser: argparse.ArgumentParser) -> None:
    _nids(parser, required=True)
    parser.add_argument("-l", "--limit", type=int, required=True, metavar="STATE")


def _mode(parser: argparse.ArgumentParser) -> None:
    _nids(parser)
    parser.add_argument("-m", "--mode", required=True, choices=MODES[parser.prog.split()[-1]])


def _drives(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument("-n", "--nids", type=nid_list, metavar="LIST")
    either.add_argument("-c", "--cname", metavar="LIST", help="names of components, with commas between")


def _who(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-a", "--apid", type=_apid, help="such as 122232, or 4711.0 (a step)")
    parser.add_argument("-j", "--job", "--jobid", "--job-id", dest="job_id", metavar="JOB")
    _nids(parser)


def _energy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--start-time", metavar="'YYYY-MM-DD HH:MM:SS'")
    parser.add_argument("-e", "--end-time", metavar="'YYYY-MM-DD HH:MM:SS'")
    _who(parser)


def _counter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--time", metavar="'YYYY-MM-DD HH:MM:SS'")
    _who(parser)


def _power(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--start-time", metavar="'YYYY-MM-DD HH:MM:SS'")
    parser.add_argument("-w", "--window-len", type=int, metavar="SECONDS")


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


Applet = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[Options], Body]]
"""The call, the options, the request."""

APPLETS: dict[str, Applet] = {
    "node_rules": ("get_node_rules", _none, _plain),
    "node_status": ("get_node_status", _status, _plain),
    "node_on": ("node_on", _switch, _plain),
    "node_off": ("node_off", _switch, _plain),
    "node_reinit": ("node_reinit", _switch, _plain),
    "get_power_cap_capabilities": ("get_power_cap_capabilities", _some, _plain),
    "get_power_cap": ("get_power_cap", _some, _plain),
    "set_power_cap": ("set_power_cap", _cap, _caps),
    "get_freq_capabilities": ("cnctl", _must, _cnctl(_CAN, _FREQ)),
    "get_freq_limits": ("cnctl", _must, _cnctl(_GET, _FREQ, _MIN, _MAX)),
    # The lower limit twice: the first time it may be above the upper limit that still holds.
    "set_freq_limits": ("cnctl", _frequencies, _cnctl(_SET, _MIN, _MAX, _MIN)),
    "get_sleep_state_limit_capabilities": ("cnctl", _must, _cnctl(_CAN, _SLEEP)),
    "get_sleep_state_limit": ("cnctl", _must, _cnctl(_GET, _SLEEP)),
    "set_sleep_state_limit": ("cnctl", _sleep, _cnctl(_SET, _SLEEP)),
    "get_mcdram_capabilities": ("get_mcdram_capabilities", _some, _plain),
    "get_mcdram_cfg": ("get_mcdram_cfg", _some, _plain),
    "set_mcdram_cfg": ("set_mcdram_cfg", _mode, _plain),
    "get_numa_capabilities": ("get_numa_capabilities", _some, _plain),
    "get_numa_cfg": ("get_numa_cfg", _some, _plain),
    "set_numa_cfg": ("set_numa_cfg", _mode, _plain),
    "get_ssd_enable": ("get_ssd_enable", _some, _plain),
    "set_ssd_enable": ("set_ssd_enable", _mode, _plain),
    "get_ssds": ("get_ssds", _drives, _plain),
    "get_ssd_diags": ("get_ssd_diags", _drives, _plain),
    "get_node_energy": ("get_node_energy", _energy, _plain),
    "get_node_energy_stats": ("get_node_energy_stats", _energy, _plain),
    "get_node_energy_counter": ("get_node_energy_counter", _counter, _plain),
    "get_system_parameters": ("get_system_parameters", _none, _plain),
    "get_system_power": ("get_system_power", _power, _plain),
    "get_system_power_details": ("get_system_power_details", _power, _plain),
    "get_nid_map": ("get_nid_map", _some, _plain),
    "get_partition_map": ("get_partition_map", _none, _plain),
}
