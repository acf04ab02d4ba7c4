"""Which state nodes are in, and switching them: by NID, by xname, by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from strata.power.capmc.machine import FLAGS, STATES, CapmcMachine, Mask, NodeTable, Positions, Switch
from strata.power.capmc.reply import EINVAL, Refusal, Reply, columns, integers, of_nids, quoted, reply
from strata.power.capmc.request import Ask, flag, listed, nids_of, shown, word
from strata.power.columns import Uids

_MOST_NAMES = 100_000


async def node_rules(machine: CapmcMachine, ask: Ask) -> Reply:
    """How long switching takes, and how often it may be asked for."""
    return reply(**msgspec.structs.asdict(machine.rules))


async def node_status(machine: CapmcMachine, ask: Ask) -> Reply:
    """NIDs by state; states that nobody is in are left out."""
    states, flags = _filter(ask.body.get("filter"))
    table = machine.nodes()
    nids = nids_of(ask.body)
    at = table.find(nids)
    if (at < 0).any():
        raise Refusal(400, f"nids not found: {listed(np.unique(nids[at < 0]).tolist())}")
    at = np.unique(at) if len(nids) else np.arange(len(table.nids))
    return _by_state(table, at, states, flags, lambda some: integers(table.nids[some].tolist()))


def _by_state(
    table: NodeTable, at: Positions, states: Sequence[str], flags: Sequence[str], show: Callable[[Positions], bytes]
) -> Reply:
    held = table.states[at]
    parts = {}
    for state in sorted(states):
        some = at[held == STATES.index(state)]
        if len(some):
            parts[state] = show(some)
    marked = {}
    for name in flags:
        mask = table.flags.get(name)
        if mask is not None and mask[at].any():
            marked[name] = show(at[mask[at]])
    if marked:
        parts["flags"] = b"{" + b",".join(b'"%s":%s' % (name.encode(), text) for name, text in marked.items()) + b"}"
    return columns(parts)


def _filter(text: Any) -> tuple[Sequence[str], Sequence[str]]:
    """Which states and which flags are asked for."""
    if text is None or text == "":
        return STATES, FLAGS
    states: list[str] = []
    flags: list[str] = []
    for part in word(text, "filter").split("|"):
        name = part.strip().removeprefix("show_")
        if part.strip() == "show_all":
            return STATES, FLAGS
        if not part.strip().startswith("show_") or name not in (*STATES, *FLAGS):
            raise Refusal(400, f"invalid filter string: {shown(part.strip())}")
        (states if name in STATES else flags).append(name)
    return states or STATES, flags


# switching


async def node_on(machine: CapmcMachine, ask: Ask) -> Reply:
    """Power nodes on, and have them booted."""
    return await _switch_nids(machine, ask, "on")


async def node_off(machine: CapmcMachine, ask: Ask) -> Reply:
    """Shut nodes down, and power them off."""
    return await _switch_nids(machine, ask, "off")


async def node_reinit(machine: CapmcMachine, ask: Ask) -> Reply:
    """Restart nodes, so that what was staged takes effect."""
    return await _switch_nids(machine, ask, "reinit")


async def _switch_nids(machine: CapmcMachine, ask: Ask, to: Switch) -> Reply:
    nids = nids_of(ask.body, required=True)
    table = machine.nodes()
    if not len(table.nids):
        raise Refusal(404, "No nodes in machine")
    at = table.find(nids)
    if (at < 0).any() or len(np.unique(nids)) < len(nids):
        bad = np.unique(nids[(at < 0) | _repeated(nids)])
        raise Refusal(400, f"invalid/duplicate nids: {listed(bad.tolist())}")
    failed = await _switch(machine, ask, table, np.unique(at), to)
    if not failed:
        return reply()
    nid_of = dict(zip(table.uids[at].tolist(), table.nids[at].tolist(), strict=True))
    errors = {nid_of[uid]: why for uid, why in failed.items()}
    return reply(e=-1, err_msg=f"Errors encountered with {len(errors)}/{len(nids)} NIDs", nids=of_nids(errors, EINVAL))


async def _switch(machine: CapmcMachine, ask: Ask, table: NodeTable, at: Positions, to: Switch) -> Mapping[int, str]:
    service = at[~table.compute[at]]
    if len(service):
        raise Refusal(400, f"Invalid type, not a compute node: {listed(table.nids[service].tolist())}")
    disabled = at[table.states[at] == STATES.index("disabled")]
    if len(disabled):
        raise Refusal(400, f"NIDs are disabled: {listed(table.nids[disabled].tolist())}")
    reason = word(ask.body.get("reason", ""), "reason")
    return await machine.switch(table.uids[at], to, reason=reason, force=flag(ask.body, "force"))


def _repeated(values: Uids) -> Mask:
    _, first, counts = np.unique(values, return_inverse=True, return_counts=True)
    mask: Mask = counts[first] > 1
    return mask


# by xname and by group, as the successor of the original service has it


async def xname_on(machine: CapmcMachine, ask: Ask) -> Reply:
    """Power components on."""
    return await _switch_xnames(machine, ask, "on")


async def xname_off(machine: CapmcMachine, ask: Ask) -> Reply:
    """Power components off."""
    return await _switch_xnames(machine, ask, "off")


async def xname_reinit(machine: CapmcMachine, ask: Ask) -> Reply:
    """Restart components."""
    return await _switch_xnames(machine, ask, "reinit")


async def get_xname_status(machine: CapmcMachine, ask: Ask) -> Reply:
    """Xnames by state."""
    states, flags = _filter(ask.body.get("filter"))
    table = machine.nodes()
    names = _names(ask.body, "xnames")
    uids = _nodes_at(machine, names) if names else table.uids
    return _by_state(table, _positions(table, uids), states, flags, _placed(machine, table))


async def group_on(machine: CapmcMachine, ask: Ask) -> Reply:
    """Power groups of nodes on."""
    return await _switch_groups(machine, ask, "on")


async def group_off(machine: CapmcMachine, ask: Ask) -> Reply:
    """Power groups of nodes off."""
    return await _switch_groups(machine, ask, "off")


async def group_reinit(machine: CapmcMachine, ask: Ask) -> Reply:
    """Restart groups of nodes."""
    return await _switch_groups(machine, ask, "reinit")


async def get_group_status(machine: CapmcMachine, ask: Ask) -> Reply:
    """For each group, its xnames by state."""
    states, flags = _filter(ask.body.get("filter"))
    table, found = machine.nodes(), []
    for name in _group_names(ask.body):
        at = _positions(table, _members(machine, name))
        one = _by_state(table, at, states, flags, _placed(machine, table)).body
        found.append(b'{"group":%s,%s' % (quoted(name).encode(), one[1:]))
    return columns({"groups": b"[" + b",".join(found) + b"]"})


async def emergency_power_off(machine: CapmcMachine, ask: Ask) -> Reply:
    """Take the power of cabinets, chassis or the system away, now."""
    if not machine.may_press():
        raise Refusal(403, "the caller has no right to the emergency off")
    names = _names(ask.body, "xnames")
    if not names:
        raise Refusal(400, "Bad Request: Required xnames list is empty")
    parts = []
    for name in names:
        kind = name.lstrip("x0123456789")
        if name not in ("s0", "all") and kind.rstrip("0123456789") not in ("", "c", "m", "mp", "mpj"):
            raise Refusal(400, "failure validating xnames: Invalid component")
        uids = machine.below(name)
        if not len(uids):
            raise Refusal(400, "failure validating xnames: Invalid component")
        parts.append(uids)
    uids = np.unique(np.concatenate(parts))
    failed = await machine.emergency_off(uids, word(ask.body.get("reason", ""), "reason") or "by CAPMC")
    return _failed_places(machine, failed, len(uids))


async def _switch_xnames(machine: CapmcMachine, ask: Ask, to: Switch) -> Reply:
    names = _names(ask.body, "xnames")
    if not names:
        raise Refusal(400, "Bad Request: Missing required xnames list")
    if flag(ask.body, "recursive") and flag(ask.body, "prereq"):
        raise Refusal(400, "Bad Request: Recursive and Prereq options are mutually exclusive")
    uids = _nodes_at(machine, names, recursive=flag(ask.body, "recursive"))
    table = machine.nodes()
    failed = await _switch(machine, ask, table, _positions(table, uids), to)
    return _failed_places(machine, failed, len(uids))


async def _switch_groups(machine: CapmcMachine, ask: Ask, to: Switch) -> Reply:
    parts = [_members(machine, name) for name in _group_names(ask.body)]
    uids = np.unique(np.concatenate(parts))
    table = machine.nodes()
    failed = await _switch(machine, ask, table, _positions(table, uids), to)
    return _failed_places(machine, failed, len(uids))


def _failed_places(machine: CapmcMachine, failed: Mapping[int, str], total: int) -> Reply:
    if not failed:
        return reply()
    places = machine.places(np.array(list(failed), dtype=np.int64))
    errors = [{"xname": place, "e": -1, "err_msg": why} for place, why in zip(places, failed.values(), strict=True)]
    return reply(e=-1, err_msg=f"Errors encountered with {len(failed)}/{total} Xnames", xnames=errors)


def _names(body: Mapping[str, Any], key: str) -> list[str]:
    given = body.get(key) or []
    if not isinstance(given, list) or len(given) > _MOST_NAMES:
        raise Refusal(400, f"Bad Request: {key} must be an array")
    return [word(name, key, 64) for name in given]


def _nodes_at(machine: CapmcMachine, names: Sequence[str], *, recursive: bool = False) -> Uids:
    """The nodes of these names, each of which must be there once."""
    found: list[int] = []
    bad: list[str] = []
    for name, uid in zip(names, machine.at_places(names), strict=True):
        below = machine.below(name).tolist() if uid < 0 and recursive else [uid] if uid >= 0 else []
        if not below:
            bad.append(name)
        found += below
    seen: set[str] = set()
    bad += [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    if bad:
        errors = [{"xname": shown(name), "e": EINVAL, "err_msg": "invalid/duplicate xname"} for name in bad]
        raise Refusal(400, "invalid argument", e=EINVAL, more={"xnames": errors})
    return np.unique(np.array(found, dtype=np.int64))


def _group_names(body: Mapping[str, Any]) -> list[str]:
    names = _names(body, "groups")
    if not names:
        raise Refusal(400, "Bad Request: Missing required groups list")
    return names


def _members(machine: CapmcMachine, name: str) -> Uids:
    found = machine.group(name)
    if found is None:
        raise Refusal(400, f"Bad Request: invalid group: {shown(name)}")
    return found


def _positions(table: NodeTable, uids: Uids) -> Positions:
    return np.flatnonzero(np.isin(table.uids, uids))


def _placed(machine: CapmcMachine, table: NodeTable) -> Callable[[Positions], bytes]:
    def show(some: Positions) -> bytes:
        return b"[" + ",".join(map(quoted, machine.places(table.uids[some]))).encode() + b"]"

    return show
