"""Power caps: what can be capped, to what it is, and setting it. Whole-system questions are answered from columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core import units
from strata.power.capmc.bias import APPLIED, KIND
from strata.power.capmc.records import Mask, NodeTable, Positions
from strata.power.capmc.reply import (
    EBADE,
    EINVAL,
    NO_DATA,
    Reply,
    aside,
    columns,
    integers,
    objects,
    of_nids,
    partial,
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
    """Cap nodes and accelerators. Everything is checked before anything is done; what is not named goes to its
    default, which is no cap."""
    table, wanted = machine.nodes(), objects_of(ask.body)
    nids = np.array([one["nid"] for one in wanted], dtype=np.int64)
    at = table.find(nids)
    rows = machine.rows(table.uids[np.maximum(at, 0)] if len(table.uids) else np.empty(0, np.int64))
    seen: set[int] = set()
    errors: dict[int, str] = {}
    node = np.zeros(len(nids))
    accel = np.zeros(len(nids))
    for place, one in enumerate(wanted):
        nid = one["nid"]
        try:
            if nid in seen:
                raise ValueError("Duplicate NID")
            seen.add(nid)
            if at[place] < 0:
                raise ValueError("Undefined NID")
            if not table.compute[at[place]]:
                raise ValueError(NOT_COMPUTE)
            if not table.ready[at[place]]:
                raise ValueError(NOT_READY)
            node[place], accel[place] = _controls(one, rows, place)
        except ValueError as error:
            errors[nid] = str(error)
    if errors:
        return reply(e=EINVAL, err_msg=said(EINVAL), nids=of_nids(errors, EINVAL))
    asked = node.copy()
    bias = await machine.records(KIND)
    uids = table.uids[at]
    factors = np.array([bias.get(uid, 1.0) for uid in uids.tolist()]) if bias else np.ones(len(uids))
    node = _with_bias(node, factors, rows)
    if why := machine.no_room(uids, node):
        return reply(e=EINVAL, err_msg=said(EINVAL), nids=of_nids(dict.fromkeys(nids.tolist(), why), EINVAL))
    changes = [CapChange(control="node", uids=uids, watts=node)]
    # Accelerators that are to have no cap, and have none, need not be told.
    other = ~np.isnan(rows.accel_most) & ((accel > 0) | (rows.accel_cap != 0))
    if other.any():
        changes.append(CapChange(control="accel", uids=uids[other], watts=accel[other]))
    failed = await machine.set_caps(changes)
    await _note_bias(machine, uids, asked, factors, failed)
    if failed:
        nid_of = dict(zip(uids.tolist(), nids.tolist(), strict=True))
        return partial({nid_of[uid]: why for uid, why in failed.items()})
    return reply()


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
        name, value = control.get("name"), control.get("val")
        if name not in ("node", "accel"):
            raise ValueError(f"Invalid control specified: {shown(name)}")
        if name in found:
            raise ValueError(f"Duplicate control specified: {name}")
        if type(value) is not int or value < 0:
            raise ValueError(f"Invalid value for control ({name})")
        least, most = (rows.least, rows.most) if name == "node" else (rows.accel_least, rows.accel_most)
        if math.isnan(most[place]):
            raise ValueError(f"Invalid control specified: {name}")
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
