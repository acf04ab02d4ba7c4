"""Which applet answers which path, and whether it only reads. The whole of CAPMC in one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from strata.power.capmc import bias, caps, cnctl, components, drives, energy, nodes, staged, system
from strata.power.capmc.reply import Reply
from strata.power.capmc.request import Ask
from strata.power.capmc.service import CapmcMachine

Answer = Callable[[CapmcMachine, Ask], Awaitable[Reply]]


class Applet(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    answer: Answer
    changes: bool = False
    """It needs the right to change power."""
    get: bool = False
    """It may be asked for with GET, too."""


def _reads(*answers: Answer, get: bool = False) -> dict[str, Applet]:
    return {answer.__name__: Applet(answer=answer, get=get) for answer in answers}


def _changes(*answers: Answer) -> dict[str, Applet]:
    return {answer.__name__: Applet(answer=answer, changes=True) for answer in answers}


def _switches(kind: str, switch: Callable[..., Awaitable[Reply]]) -> dict[str, Applet]:
    return {f"{kind}_{to}": Applet(answer=partial(switch, to=to), changes=True) for to in ("on", "off", "reinit")}


def _staged(setting: staged.Setting) -> dict[str, Applet]:
    return {
        f"get_{setting.key}": Applet(answer=partial(staged.get_mode, setting=setting)),
        f"set_{setting.key}": Applet(answer=partial(staged.set_mode, setting=setting), changes=True),
        f"clr_{setting.key}": Applet(answer=partial(staged.clear_mode, setting=setting), changes=True),
    }


APPLETS: dict[str, Applet] = {
    **_reads(
        caps.get_power_cap_capabilities, caps.get_power_cap, bias.get_power_bias, bias.compute_power_bias,
        drives.get_ssds, drives.get_ssd_diags, staged.cnselect,
        energy.get_node_energy, energy.get_node_energy_stats, energy.get_node_energy_counter,
        system.get_nid_map, components.get_xname_status, components.get_group_status,
    ),
    **_reads(
        system.get_system_parameters, system.get_system_power, system.get_system_power_details,
        system.get_partition_map, system.health, get=True,
    ),
    **_changes(
        components.emergency_power_off, caps.set_power_cap, bias.set_power_bias, bias.clr_power_bias,
        bias.set_power_bias_data,
        cnctl.cnctl,
    ),
    **_switches("node", nodes.switch_nids),
    **_switches("xname", components.switch_xnames),
    **_switches("group", components.switch_groups),
    **_staged(staged.MCDRAM),
    **_staged(staged.NUMA),
    **_staged(staged.SSD),
    "get_mcdram_cfg": Applet(answer=staged.get_mcdram_cfg),
    "get_mcdram_capabilities": Applet(answer=partial(staged.get_capabilities, setting=staged.MCDRAM)),
    "get_numa_capabilities": Applet(answer=partial(staged.get_capabilities, setting=staged.NUMA)),
    "get_node_rules": Applet(answer=nodes.node_rules, get=True),
    "node_rules": Applet(answer=nodes.node_rules, get=True),
    "get_node_status": Applet(answer=nodes.node_status),
    "node_status": Applet(answer=nodes.node_status),
}  # fmt: skip
"""By the last part of the path. The command's own names for two of them are understood as well."""

READS_BY_FUNCTION = "cnctl"
"""The one whose request says whether it changes anything."""


def changes(applet: str, ask: Ask) -> bool:
    """Whether the request would change something."""
    if applet == READS_BY_FUNCTION:
        data = ask.body.get("data")
        return not isinstance(data, dict) or data.get("PWR_Function") == cnctl.SET
    return APPLETS[applet].changes
