"""The same by xname and by group, as the successor of the original service has it: nodes, and what feeds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from strata.core import xname
from strata.core.distinct import distinct, united
from strata.core.errors import BadRequest
from strata.power.capmc.nodes import asked_for, by_state, reason_of, told_by
from strata.power.capmc.records import DISABLED, NodeTable, Positions, Switch
from strata.power.capmc.reply import EINVAL, Refusal, Reply, columns, quoted, reply
from strata.power.capmc.request import Ask, flag, listed, shown, word
from strata.power.capmc.service import SYSTEM, CapmcMachine
from strata.power.telemetry.columns import Uids

_MOST_NAMES = 100_000
_CUT = ("Cabinet", "Chassis", "CabinetPDUController", "CabinetPDU", "CabinetPDUOutlet")
"""Types of components whose power is taken away in an emergency."""
_BAD = "invalid/duplicate xname"
_NO_RESTART = "not defined in power sequence for 'Reinit': what feeds others is switched, not restarted"


async def get_xname_status(machine: CapmcMachine, ask: Ask) -> Reply:
    """Xnames by state."""
    states, flags = asked_for(ask)
    names = _names(ask.body, "xnames")
    uids, bad = _found(machine, names, twice=False) if names else ([machine.below("all")], {})
    if bad:
        raise _wrong(bad)
    table = told_by(ask, machine.those(distinct(np.concatenate(uids))))
    return by_state(table, np.arange(len(table.uids)), states, flags, _placed(machine, table))


async def get_group_status(machine: CapmcMachine, ask: Ask) -> Reply:
    """For each group, its xnames by state."""
    states, flags = asked_for(ask)
    found = []
    for name in _group_names(ask.body):
        table = told_by(ask, machine.those(_members(machine, name)))
        one = by_state(table, np.arange(len(table.uids)), states, flags, _placed(machine, table)).body
        found.append(b'{"group":%s,%s' % (quoted(name).encode(), one[1:]))
    return columns({"groups": b"[" + b",".join(found) + b"]"})


async def emergency_power_off(machine: CapmcMachine, ask: Ask) -> Reply:
    """Take the power of cabinets, chassis, PDUs or the system away, now."""
    if not machine.may_press():
        raise Refusal(403, "the caller has no right to the emergency off")
    parts = []
    for name in _required(ask.body):
        uids = machine.below(name) if name in SYSTEM or _type(name) in _CUT else ()
        if not len(uids):
            raise Refusal(400, "failure validating xnames: Invalid component")
        parts.append(uids)
    uids = distinct(np.concatenate(parts))
    failed = await machine.emergency_off(uids, reason_of(ask) or "by CAPMC")
    return _told(machine, failed, {}, len(uids))


async def switch_xnames(machine: CapmcMachine, ask: Ask, *, to: Switch) -> Reply:
    """Power components on or off, or restart them. ``recursive``: with all that is in them. ``prereq``: with what feeds
    them. ``continue``: what is wrong in the list is told, and the rest is done."""
    recursive, prereq, go_on = (flag(ask.body, key) for key in ("recursive", "prereq", "continue"))
    if recursive and prereq:
        raise Refusal(400, "Bad Request: recursive and prereq options are mutually exclusive")
    names = _required(ask.body)
    found, bad = _found(machine, names, twice=go_on or flag(ask.body, "force"), recursive=recursive)
    if bad and not go_on:
        raise _wrong(bad)
    named = distinct(np.concatenate(found))
    uids = united(named, machine.feeders(named)) if prereq else named
    if to == "reinit" and (recursive or prereq):
        uids = uids[~machine.those(uids).feeds]  # what else was meant is restarted, and this stays on for it
    given = [uid for uid in machine.at_places(names) if uid >= 0]
    return await _switch(machine, ask, to, uids, given=np.array(given, dtype=np.int64), bad=bad, go_on=go_on)


async def switch_groups(machine: CapmcMachine, ask: Ask, *, to: Switch) -> Reply:
    """The same for all components of groups."""
    parts = [_members(machine, name) for name in _group_names(ask.body)]
    uids = distinct(np.concatenate(parts))
    if not len(uids):
        raise Refusal(404, "No components in group")
    return await _switch(machine, ask, to, uids, given=uids, bad={}, go_on=False)


async def _switch(
    machine: CapmcMachine, ask: Ask, to: Switch, uids: Uids, *, given: Uids, bad: Mapping[str, str], go_on: bool
) -> Reply:
    """``given``: who was named. A service node that only happens to be in what was named is left alone, and told; so is
    one that a person disabled."""
    if not len(uids):
        raise Refusal(400, "No nodes found to operate on")
    table = machine.those(uids)
    blocked, disabled = ~table.compute & ~table.feeds, table.states == DISABLED
    for mask, why in ((blocked, "xnames role blocked"), (disabled, "components disabled")):
        meant = uids[mask & np.isin(uids, given)]
        if len(meant) and not go_on:
            raise Refusal(400, f"{why}: {listed(machine.places(meant))}")
    failed = dict.fromkeys(uids[disabled].tolist(), "component disabled") | dict.fromkeys(
        uids[blocked].tolist(), "role blocked: not a compute node"
    )
    if to == "reinit":
        failed |= dict.fromkeys(uids[table.feeds].tolist(), _NO_RESTART)
    left = uids[~np.isin(uids, np.fromiter(failed, np.int64, len(failed)))]
    if len(left):
        failed |= await machine.switch(left, to, reason=reason_of(ask), force=flag(ask.body, "force"))
    return _told(machine, failed, bad, len(uids) + len(bad))


def _told(machine: CapmcMachine, failed: Mapping[int, str], bad: Mapping[str, str], total: int) -> Reply:
    if not failed and not bad:
        return reply()
    places = machine.places(np.fromiter(failed, np.int64, len(failed)))
    errors = [{"xname": place, "e": -1, "err_msg": why} for place, why in zip(places, failed.values(), strict=True)]
    errors += _errors(bad)
    return reply(e=-1, err_msg=f"Errors encountered with {len(errors)}/{total} Xnames", xnames=errors)


def _required(body: Mapping[str, Any]) -> list[str]:
    if body.get("xnames") is None:
        raise Refusal(400, "Bad Request: Missing required xnames parameter")
    names = _names(body, "xnames")
    if not names:
        raise Refusal(400, "Bad Request: Required xnames list is empty")
    return names


def _names(body: Mapping[str, Any], key: str) -> list[str]:
    given = body.get(key) or []
    if not isinstance(given, list) or len(given) > _MOST_NAMES:
        raise Refusal(400, f"Bad Request: {key} must be an array")
    return [word(name, key, 64) for name in given]


def _found(
    machine: CapmcMachine, names: Sequence[str], *, twice: bool, recursive: bool = False
) -> tuple[list[Uids], dict[str, str]]:
    """The nodes of these names, and which of the names are wrong. ``twice``: a name may be there again."""
    found: list[Uids] = []
    bad: dict[str, str] = {}
    seen: set[str] = set()
    for name, uid in zip(names, machine.at_places(names), strict=True):
        own = np.array([uid] if uid >= 0 else [], dtype=np.int64)
        if recursive or name in SYSTEM:
            own = united(own, machine.below(name))
        if not len(own) or (name in seen and not twice):
            bad[name] = _BAD
        seen.add(name)
        found.append(own)
    return found, bad


def _errors(bad: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"xname": shown(name), "e": EINVAL, "err_msg": why} for name, why in bad.items()]


def _wrong(bad: Mapping[str, str]) -> Refusal:
    return Refusal(400, "invalid argument", e=EINVAL, more={"xnames": _errors(bad)})


def _type(name: str) -> str:
    try:
        return xname.parse(name).type
    except BadRequest:
        return ""


def _group_names(body: Mapping[str, Any]) -> list[str]:
    names = _names(body, "groups")
    if not names:
        raise Refusal(400, "Bad Request: Missing required Group list")
    return names


def _members(machine: CapmcMachine, name: str) -> Uids:
    found = machine.group(name)
    if found is None:
        raise Refusal(400, f"Bad Request: invalid group: {shown(name)}")
    return found


def _placed(machine: CapmcMachine, table: NodeTable) -> Callable[[Positions], bytes]:
    def show(some: Positions) -> bytes:
        return b"[" + ",".join(map(quoted, machine.places(table.uids[some]))).encode() + b"]"

    return show
