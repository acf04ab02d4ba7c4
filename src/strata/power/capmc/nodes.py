"""Which state nodes are in, and switching them, by NID."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from strata.core.distinct import distinct
from strata.power.capmc.records import DISABLED, FLAGS, STATES, Mask, NodeTable, Positions, Switch
from strata.power.capmc.reply import EINVAL, Refusal, Reply, columns, integers, of_nids, reply
from strata.power.capmc.request import Ask, flag, listed, nids_of, shown, word
from strata.power.capmc.service import CapmcMachine
from strata.power.telemetry.columns import Uids

SOFTWARE = ("hsm", "hms", "sm", "smd", "software")
HARDWARE = ("redfish", "hardware")
"""Where the successor of the original service may be told to look. The hardware knows on, off and undefined."""


async def node_rules(machine: CapmcMachine, ask: Ask) -> Reply:
    """How long switching takes, and how often it may be asked for."""
    return reply(**msgspec.structs.asdict(machine.rules))


async def node_status(machine: CapmcMachine, ask: Ask) -> Reply:
    """NIDs by state; states that nobody is in are left out."""
    states, flags = asked_for(ask)
    table = told_by(ask, machine.nodes())
    nids = nids_of(ask.body)
    at = table.find(nids)
    if (at < 0).any():
        raise Refusal(400, f"nids not found: {listed(distinct(nids[at < 0]).tolist())}")
    at = distinct(at) if len(nids) else np.arange(len(table.nids))
    return by_state(table, at, states, flags, lambda some: integers(table.nids[some].tolist()))


def by_state(
    table: NodeTable, at: Positions, states: Sequence[str], flags: Sequence[str], show: Callable[[Positions], bytes]
) -> Reply:
    """Nodes of a table by state and flag, written as ``show`` does it."""
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


def told_by(ask: Ask, table: NodeTable) -> NodeTable:
    """The states as the source tells them that a request names."""
    source = word(ask.body.get("source") or "", "source")
    if source and source.lower() not in SOFTWARE + HARDWARE:
        raise Refusal(400, f"unknown status source '{shown(source)}'")
    return msgspec.structs.replace(table, states=table.hardware) if source.lower() in HARDWARE else table


def asked_for(ask: Ask) -> tuple[Sequence[str], Sequence[str]]:
    """Which states and which flags a request is about."""
    parts = [part.strip() for part in word(ask.body.get("filter") or "show_all", "filter").split("|")]
    for part in parts:
        if part != "show_all" and (not part.startswith("show_") or part[5:] not in (*STATES, *FLAGS)):
            raise Refusal(400, f"invalid filter string: {shown(part)}")
    names = [part.removeprefix("show_") for part in parts]
    if "all" in names:
        return STATES, FLAGS
    return [name for name in names if name in STATES] or STATES, [name for name in names if name in FLAGS]


async def switch_nids(machine: CapmcMachine, ask: Ask, *, to: Switch) -> Reply:
    """Power nodes on and have them booted, shut them down and power them off, or restart them (``reinit``) so that
    what was staged takes effect."""
    nids = nids_of(ask.body, required=True)
    table = machine.nodes()
    if not len(table.nids):
        raise Refusal(404, "No nodes in machine")
    at = table.find(nids)
    if (at < 0).any() or len(distinct(nids)) < len(nids):
        bad = distinct(nids[(at < 0) | _repeated(nids)])
        raise Refusal(400, f"invalid/duplicate nids: {listed(bad.tolist())}")
    service = at[~table.compute[at]]
    if len(service):
        raise Refusal(400, f"Invalid type, not a compute node: {listed(table.nids[service].tolist())}")
    disabled = at[table.states[at] == DISABLED]
    if len(disabled):
        raise Refusal(400, f"NIDs are disabled: {listed(table.nids[disabled].tolist())}")
    failed = await machine.switch(table.uids[at], to, reason=reason_of(ask), force=flag(ask.body, "force"))
    if not failed:
        return reply()
    nid_of = dict(zip(table.uids[at].tolist(), table.nids[at].tolist(), strict=True))
    errors = {nid_of[uid]: why for uid, why in failed.items()}
    return reply(e=-1, err_msg=f"Errors encountered with {len(errors)}/{len(nids)} NIDs", nids=of_nids(errors, EINVAL))


def reason_of(ask: Ask) -> str:
    return word(ask.body.get("reason", ""), "reason")


def _repeated(values: Uids) -> Mask:
    _, first, counts = np.unique(values, return_inverse=True, return_counts=True)
    mask: Mask = counts[first] > 1
    return mask
