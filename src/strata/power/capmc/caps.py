"""Power caps: what can be capped, to what it is, and setting it. Whole-system questions are answered from columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core import units
from strata.core.distinct import without
from strata.power.capmc.bias import APPLIED, KIND
from strata.power.capmc.records import OFF, Mask, NodeTable, Positions
from strata.power.capmc.reply import (
    EBADE,
    EINVAL,
    NO_DATA,
    UNDEFINED,
    Reply,
    aside,
    columns,
    integers,
    objects,
    of_nids,
    quoted,
    reply,
    said,
)
from strata.power.capmc.request import Ask, nids_of, objects_of, shown, those_known
from strata.power.capmc.service import CapmcMachine
from strata.power.capping.terms import CapChange, Control
from strata.power.telemetry.columns import PowerRows, Uids

NOT_READY = "Invalid state, NID is not 'ready'"
NOT_COMPUTE = "Invalid type, not a compute node"
NOT_YET = "Could not lookup what it can be capped to: not known yet, ask again soon"
"""Of a node that was not read since the start. The first words make clients try again."""
UNPAID = "unpaid/"
"""Records: of each caller, the caps that its nodes were to fall to and did not."""
CONTROLS: Mapping[str, Control] = {"node": "node", "Node Power Limit": "node", "accel": "accel"}
"""What may be capped, by all names that clients have for it."""
_SHAPE = ("kind", "least", "most", "accel_least", "accel_most", "supply", "static", "powerup")


async def get_power_cap_capabilities(machine: CapmcMachine, ask: Ask) -> Reply:
    """What can be capped and how far: one group for each kind of node."""
    table = machine.nodes()
    at, unknown = those_known(table, nids_of(ask.body), compute=True)
    at = at[table.compute[at]]
    rows, nids = rated(machine, table.uids[at]), table.nids[at]
    groups = {"groups": await aside(len(at), lambda: _groups(rows, nids))}
    if unknown:
        return columns(groups, e=EBADE, err_msg=said(EBADE), nids=of_nids(unknown, EINVAL))
    return columns(groups)


def _groups(rows: PowerRows, nids: npt.NDArray[np.int64]) -> bytes:
    """Equal nodes together: a handful of groups, however many nodes."""
    shape = np.stack([np.nan_to_num(np.asarray(getattr(rows, name), dtype=np.float64), nan=-1.0) for name in _SHAPE])
    _, first, group = np.unique(shape, axis=1, return_index=True, return_inverse=True)
    found = []
    for number, example in enumerate(first.tolist()):
        members = integers(nids[group.reshape(-1) == number].tolist()).decode()
        found.append(f'{{{_capabilities(rows, example)},"nids":{members}}}')
    return objects(found)


def _capabilities(rows: PowerRows, at: int) -> str:
    """One group, without its nodes."""
    least, most = _watts(rows.least, at), _watts(rows.most, at)
    accel_least, accel_most = _watts(rows.accel_least, at), _watts(rows.accel_most, at)
    has_accel = not math.isnan(rows.accel_most[at])
    controls = []
    if not math.isnan(rows.most[at]):
        controls.append(f'{{"name":"node","desc":"Node manager control","min":{least},"max":{most}}}')
    if has_accel:
        controls.append(f'{{"name":"accel","desc":"Accelerator control","min":{accel_least},"max":{accel_most}}}')
    kind = rows.kinds[int(rows.kind[at])]
    supply = _watts(rows.supply, at) or most
    name = kind.name or f"{least}-{most}:{accel_least}-{accel_most}:{supply}"
    return (
        f'"name":{quoted(name)},"desc":{quoted(kind.desc or "Node")},"supply":{supply}'
        f',"host_limit_min":{max(0, least - accel_least)},"host_limit_max":{max(0, most - accel_most)}'
        f',"static":{_watts(rows.static, at)},"powerup":{_watts(rows.powerup, at)},"controls":[{",".join(controls)}]'
    )


def _watts(column: npt.NDArray[np.float64], at: int) -> int:
    value = column[at]
    return 0 if math.isnan(value) else round(float(value))


async def get_power_cap(machine: CapmcMachine, ask: Ask) -> Reply:
    """To what each node is capped; 0: it is not. Without a list: of every node that is ready, as only those have caps
    to tell of."""
    table, nids = machine.nodes(), nids_of(ask.body)
    at, unknown = those_known(table, nids, compute=True)
    at = at if len(nids) else at[table.ready[at]]
    rows = machine.rows(table.uids[at])
    applied = await machine.records(APPLIED)
    bad = ~table.compute[at] | ~table.ready[at] | np.isnan(rows.cap)
    texts = await aside(len(at), lambda: _told(table, at, rows, bad, applied, unknown))
    failed = bool(bad.any()) or bool(unknown)
    return columns({"nids": texts}, e=EBADE if failed else 0, err_msg=said(EBADE) if failed else "")


def _told(
    table: NodeTable,
    at: Positions,
    rows: PowerRows,
    bad: Mask,
    applied: Mapping[int, tuple[int, float]],
    unknown: Mapping[int, str],
) -> bytes:
    """The caps of many nodes, as JSON."""
    nids, uids = table.nids[at], rows.uids
    whole = np.where(bad, 0, rows.cap).round().astype(np.int64).tolist()
    accel = np.where(np.isnan(rows.accel_most), -1, np.nan_to_num(rows.accel_cap)).round().astype(np.int64).tolist()
    texts = [
        f'{{"nid":{nid},"controls":[{{"name":"node","val":{cap}}}]}}'
        if acc < 0
        else f'{{"nid":{nid},"controls":[{{"name":"node","val":{cap}}},{{"name":"accel","val":{acc}}}]}}'
        for nid, cap, acc in zip(nids.tolist(), whole, accel, strict=True)
    ]
    if applied:
        places = np.flatnonzero(np.isin(uids, np.fromiter(applied, np.int64, len(applied))) & ~bad)
        pairs = [applied[uid] for uid in uids[places].tolist()]
        watts, factors = np.array(pairs, np.float64).reshape(-1, 2).T
        made = _with_bias(watts, factors, rows, places).round().tolist()
        for place, (asked, bias), cap in zip(places.tolist(), pairs, made, strict=True):
            if whole[place] == cap:
                texts[place] = _biased(int(nids[place]), asked, bias, whole[place], accel[place])
    for place in np.flatnonzero(bad).tolist():
        e, why = _why_not(table, int(at[place]))
        texts[place] = _failed(int(nids[place]), e, why)
    return objects(texts + [_failed(nid, EINVAL, why) for nid, why in unknown.items()])


def _failed(nid: int, e: int, why: str) -> str:
    return f'{{"nid":{nid},"e":{e},"err_msg":{quoted(why)}}}'


def _biased(nid: int, asked: int, bias: float, cap: int, accel: int) -> str:
    more = f',{{"name":"accel","val":{accel}}}' if accel >= 0 else ""
    return (
        f'{{"nid":{nid},"controls":[{{"name":"node","val":{asked}}}{more}'
        f',{{"name":"node-biased","val":{cap}}},{{"name":"bias-factor","val":{bias}}}]}}'
    )


def _why_not(table: NodeTable, at: int) -> tuple[int, str]:
    if not table.compute[at]:
        return EINVAL, NOT_COMPUTE
    if not table.ready[at]:
        return EINVAL, NOT_READY
    return NO_DATA, said(NO_DATA)


async def set_power_cap(machine: CapmcMachine, ask: Ask) -> Reply:
    """Cap nodes and accelerators. Everything is checked before anything is done, and then done as far as it can be;
    what is not named goes to its default, which is no cap."""
    table, wanted = machine.nodes(), objects_of(ask.body)
    nids = np.array([one["nid"] for one in wanted], dtype=np.int64)
    at = table.find(nids)
    rows = machine.rows(table.uids[np.maximum(at, 0)] if len(table.uids) else np.empty(0, np.int64))
    node, accel, errors, absent = await aside(len(wanted), lambda: _checked(wanted, table, at, rows))
    if errors:
        return reply(e=EINVAL, err_msg=said(EINVAL), nids=of_nids(errors | absent, EINVAL))
    uids = table.uids[at]
    bias = await machine.records(KIND)
    factors = np.array([bias.get(uid, 1.0) for uid in uids.tolist()]) if bias else np.ones(len(uids))
    caps = _Caps(nids, uids, node.copy(), _with_bias(node, factors, rows), accel, factors, rows)
    # A node that leaves is no reason not to lower the others: who asks counts on what they free.
    here = np.array([nid not in absent for nid in nids.tolist()], dtype=np.bool_)
    held = await _held_back(machine, caps, here)
    refused = absent | dict.fromkeys(nids[held].tolist(), HELD_BACK)
    some = here & ~held
    if some.any() and (why := machine.no_room(uids[some], caps.node[some])):
        refused |= dict.fromkeys(nids[some].tolist(), why)
        some[:] = False
    failed = await _set(machine, caps, some) if some.any() else {}
    await _remember(machine, caps, refused | failed)
    if not refused and not failed:
        return reply()
    e = EBADE if some.any() else EINVAL
    return reply(e=e, err_msg=said(e), nids=of_nids(failed, EBADE) + of_nids(refused, EINVAL))


def _checked(
    wanted: Sequence[Mapping[str, Any]], table: NodeTable, at: Positions, rows: PowerRows
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], dict[int, str], dict[int, str]]:
    """Watts of nodes and of accelerators; by NID, what is wrong with the request, and who cannot be capped now."""
    seen: set[int] = set()
    errors: dict[int, str] = {}
    absent: dict[int, str] = {}
    node = np.zeros(len(wanted))
    accel = np.zeros(len(wanted))
    for place, one in enumerate(wanted):
        nid = one["nid"]
        try:
            if nid in seen:
                raise ValueError("Duplicate NID")
            seen.add(nid)
            if at[place] < 0:
                raise ValueError(UNDEFINED)
            if not table.compute[at[place]]:
                raise ValueError(NOT_COMPUTE)
            node[place], accel[place] = _controls(one, rows, place)
        except ValueError as error:
            errors[nid] = str(error)
        else:
            if not table.ready[at[place]]:
                absent[nid] = NOT_READY
    return node, accel, errors, absent


HELD_BACK = "not raised: what other nodes were to free for it was not freed"


class _Caps(msgspec.Struct, frozen=True):
    """What a request asks for; a row for each node. 0: no cap."""

    nids: npt.NDArray[np.int64]
    uids: Uids
    asked: npt.NDArray[np.float64]
    node: npt.NDArray[np.float64]
    """With its bias."""
    accel: npt.NDArray[np.float64]
    factors: npt.NDArray[np.float64]
    rows: PowerRows

    @property
    def now(self) -> npt.NDArray[np.float64]:
        """What each node may draw now."""
        return np.where(self.rows.cap > 0, self.rows.cap, np.nan_to_num(self.rows.most))

    @property
    def then(self) -> npt.NDArray[np.float64]:
        return np.where(self.node > 0, self.node, np.nan_to_num(self.rows.most))


async def _set(machine: CapmcMachine, caps: _Caps, some: Mask) -> dict[int, str]:
    """Set those; why not, by NID."""
    uids, rows = caps.uids[some], caps.rows
    nid_of = dict(zip(uids.tolist(), caps.nids[some].tolist(), strict=True))
    changes = [CapChange(control="node", uids=uids, watts=caps.node[some])]
    # Accelerators that are to have no cap, and have none, need not be told.
    other = some & ~np.isnan(rows.accel_most) & ((caps.accel > 0) | (rows.accel_cap != 0))
    if other.any():
        changes.append(CapChange(control="accel", uids=caps.uids[other], watts=caps.accel[other]))
    failed = await machine.set_caps(changes)
    await _note_bias(machine, uids, caps.asked[some], caps.factors[some], failed)
    return {nid_of[uid]: why for uid, why in failed.items()}


async def _held_back(machine: CapmcMachine, caps: _Caps, some: Mask) -> Mask:
    """Who is not raised since others did not fall. A scheduler lowers in one request and raises in the next, and hears
    nothing of what became of the first: what it counts on and does not have is taken from what it raises."""
    owed = await _owed(machine, caps.uids)
    gain = np.where(some, np.maximum(0.0, caps.then - caps.now), 0.0)
    held: Mask = (gain > 0) & (np.cumsum(gain) > max(0.0, gain.sum() - owed)) if owed else np.zeros(len(gain), np.bool_)
    return held


async def _owed(machine: CapmcMachine, asked_again: Uids) -> float:
    """Watts that nodes of this caller may draw above what it believes; of those that have their cap by now, or have no
    power, nothing is owed."""
    unpaid = await machine.records(UNPAID + machine.caller)
    uids = np.fromiter(unpaid, np.int64, len(unpaid))
    uids = without(uids, asked_again)
    uids = uids[np.isin(uids, machine.nodes().uids)]
    if not len(uids):
        return 0.0
    rows, off = machine.rows(uids), machine.those(uids).states == OFF
    now = np.where(off, 0.0, np.where(rows.cap > 0, rows.cap, np.nan_to_num(rows.most)))
    return float(np.maximum(0.0, now - np.array([unpaid[uid] for uid in uids.tolist()])).sum())


async def _remember(machine: CapmcMachine, caps: _Caps, failed: Mapping[int, str]) -> None:
    """Keep which decreases are owed; what was set, or is asked for otherwise now, is not any more."""
    known = await machine.records(UNPAID + machine.caller)
    news: dict[int, Any] = {}
    for nid, uid, now, then in zip(
        caps.nids.tolist(), caps.uids.tolist(), caps.now.tolist(), caps.then.tolist(), strict=True
    ):
        if nid in failed and then < now:
            news[uid] = then
        elif uid in known:
            news[uid] = None
    if news:
        await machine.keep(UNPAID + machine.caller, news)


def _with_bias(
    watts: npt.NDArray[np.float64],
    factors: npt.NDArray[np.float64],
    rows: PowerRows,
    places: Positions | slice = slice(None),
) -> npt.NDArray[np.float64]:
    """What caps (0: none) become by their factors, as far as the nodes take it."""
    least, most, supply = rows.least[places], rows.most[places], rows.supply[places]
    most = np.where(supply >= least, np.fmin(most, supply), most)
    found: npt.NDArray[np.float64] = np.fmin(np.fmax(np.rint(watts * factors), least), most)
    return np.where((watts > 0) & (factors != 1.0), found, watts)


async def _note_bias(
    machine: CapmcMachine,
    uids: npt.NDArray[np.int64],
    asked: npt.NDArray[np.float64],
    factors: npt.NDArray[np.float64],
    failed: Mapping[int, str],
) -> None:
    """Remember which caps are what a bias made of them."""
    known = await machine.records(APPLIED)
    news: dict[int, Any] = {}
    for uid, watts, factor in zip(uids.tolist(), asked.tolist(), factors.tolist(), strict=True):
        if uid in failed:
            continue
        if factor != 1.0 and watts:
            news[uid] = (round(watts), factor)
        elif uid in known:
            news[uid] = None
    if news:
        await machine.keep(APPLIED, news)


def _controls(one: Mapping[str, Any], rows: PowerRows, place: int) -> tuple[float, float]:
    """Watts of the node and of its accelerators that one object of a request asks for; ``ValueError`` says why not."""
    controls = one.get("controls")
    if not isinstance(controls, list):
        raise ValueError("Invalid command, 'control' is not an object")
    found: dict[Control, float] = {}
    for control in controls:
        if not isinstance(control, dict):
            raise ValueError("Invalid command, 'control' is not an object")
        said, value = control.get("name"), control.get("val")
        name = CONTROLS.get(said) if isinstance(said, str) else None
        if name is None:
            raise ValueError(f"Invalid control specified: {shown(said)}")
        if name in found:
            raise ValueError(f"Duplicate control specified: {name}")
        if type(value) is not int or value < 0:
            raise ValueError(f"Invalid value for control ({name})")
        least, most = (rows.least, rows.most) if name == "node" else (rows.accel_least, rows.accel_most)
        if math.isnan(most[place]):
            told = [rows.most[place], rows.cap[place], rows.power[place], rows.energy[place]]
            raise ValueError(NOT_YET if np.isnan(told).all() else f"Invalid control specified: {name}")
        if value and value < least[place]:
            raise ValueError(f"Control ({name}) value ({value}) is less than minimum ({least[place]:.0f})")
        if value > most[place]:
            raise ValueError(f"Control ({name}) value ({value}) is greater than maximum ({most[place]:.0f})")
        supply = rows.supply[place]
        found[name] = min(value, supply) if name == "node" and supply >= least[place] else value
    if not found:
        raise ValueError("No NID supported controls specified")
    return found.get("node", 0.0), found.get("accel", 0.0)


LABELS = ("powerup", "static")
"""Each is called as its column."""


def rated(machine: CapmcMachine, uids: Uids) -> PowerRows:
    """What is known of nodes, with what their labels say where nobody measured it."""
    rows = machine.rows(uids)
    found = {}
    for name in LABELS:
        words = machine.label(uids, name)
        known = {word: _label_watts(word) for word in set(words)}
        seen = getattr(rows, name)
        found[name] = np.where(np.isnan(seen), np.array([known[word] for word in words], dtype=np.float64), seen)
    return msgspec.structs.replace(rows, **found)


def _label_watts(text: str) -> float:
    """A label that is no power says nothing."""
    try:
        return float(units.watts(text))
    except ValueError:
        return math.nan
