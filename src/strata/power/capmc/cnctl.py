"""Frequency and sleep-state limits, in the words of the Power API: ``cnctl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from strata.core.errors import StrataError
from strata.power.capmc.machine import CapmcMachine
from strata.power.capmc.reply import EBADE, SUCCESS, Refusal, Reply, reply, said
from strata.power.capmc.request import Ask, chosen, nids_of, shown
from strata.power.inband import Attribute, Value

ATTRIBUTES: Mapping[str, Attribute] = {
    "PWR_ATTR_FREQ": "freq",
    "PWR_ATTR_FREQ_LIMIT_MIN": "freq-min",
    "PWR_ATTR_FREQ_LIMIT_MAX": "freq-max",
    "PWR_ATTR_CSTATE_LIMIT": "sleep-limit",
}
_FAILED = -1
_MOST_ATTRIBUTES = 16

Found = Mapping[str, Sequence[Mapping[str, Any]] | StrataError]


async def cnctl(machine: CapmcMachine, ask: Ask) -> Reply:
    """Read or change limits that the nodes' kernels keep."""
    nids = nids_of(ask.body, required=True)
    data = ask.body.get("data")
    if not isinstance(data, dict):
        raise Refusal(400, "Bad Request: invalid data")
    attributes = data.get("PWR_Attrs")
    if not isinstance(attributes, list) or not 0 < len(attributes) <= _MOST_ATTRIBUTES:
        raise Refusal(400, "Bad Request: invalid PWR_Attrs")
    words: list[Any] = [one.get("PWR_AttrName") if isinstance(one, dict) else None for one in attributes]
    for name in words:
        if name not in ATTRIBUTES:
            raise Refusal(400, f"Bad Request: invalid PWR_AttrName: {shown(name)}")
    table = machine.nodes()
    at = chosen(table, nids)
    if machine.inband is None:
        return reply(e=EBADE, err_msg=said(EBADE))
    reached = at[table.ready[at]]
    names = machine.names(table.uids[reached])
    found = await _do(machine, names, data.get("PWR_Function"), words, attributes)
    by_nid = dict(zip(table.nids[reached].tolist(), names, strict=True))
    replies = [_node(nid, by_nid, found) for nid in table.nids[np.unique(at)].tolist()]
    failed = any(one["data"]["PWR_ReturnCode"] for one in replies)
    return reply(e=EBADE if failed else 0, err_msg=said(EBADE) if failed else SUCCESS, nids=replies)


async def _do(
    machine: CapmcMachine, names: Sequence[str], function: Any, words: Sequence[str], given: Sequence[Mapping[str, Any]]
) -> Found:
    assert machine.inband is not None
    attributes = [ATTRIBUTES[name] for name in words]
    match function:
        case "PWR_ObjAttrValueCapabilities":
            choices = [await machine.inband.choices(names, attribute) for attribute in attributes]
            return {name: _merge(words, [found[name] for found in choices]) for name in names}
        case "PWR_ObjAttrGetValues":
            read = await machine.inband.get(names, attributes)
            return {name: _values(words, read[name], timed=True) for name in names}
        case "PWR_ObjAttrSetValues":
            changes = [(attribute, _number(one)) for attribute, one in zip(attributes, given, strict=True)]
            done = await machine.inband.set(names, changes)
            return {name: _values(words, done[name], timed=False) for name in names}
        case _:
            raise Refusal(400, f"Bad Request: invalid PWR_Function: {shown(function)}")


def _merge(
    words: Sequence[str], found: Sequence[Sequence[int] | StrataError]
) -> Sequence[Mapping[str, Any]] | StrataError:
    attributes = []
    for name, values in zip(words, found, strict=True):
        if isinstance(values, StrataError):
            return values
        attributes.append({"PWR_AttrName": name, "PWR_AttrValueCapabilities": list(values), "PWR_ReturnCode": 0})
    return attributes


def _values(
    words: Sequence[str], values: Sequence[Value] | StrataError, *, timed: bool
) -> Sequence[Mapping[str, Any]] | StrataError:
    if isinstance(values, StrataError):
        return values
    found: list[Mapping[str, Any]] = []
    for name, value in zip(words, values, strict=True):
        one: dict[str, Any] = {"PWR_AttrName": name, "PWR_ReturnCode": _FAILED if value.trouble else 0}
        if timed and not value.trouble:
            seconds = int(value.time)
            one["PWR_AttrValue"] = value.value
            one["PWR_TimeSeconds"] = seconds
            one["PWR_TimeNanoseconds"] = int((value.time - seconds) * 1e9)
        found.append(one)
    return found


def _node(nid: int, names: Mapping[int, str], found: Found) -> dict[str, Any]:
    attributes = found.get(names[nid]) if nid in names else None
    trouble: str | None = None
    if nid not in names:
        trouble = "Invalid state, NID is not 'ready'"
    elif isinstance(attributes, StrataError):
        trouble = str(attributes)
    shown_ = [] if trouble or attributes is None or isinstance(attributes, StrataError) else list(attributes)
    # The first of two settings of the same limit may fail harmlessly: the last one counts.
    last = {one["PWR_AttrName"]: one["PWR_ReturnCode"] for one in shown_}
    code = _FAILED if trouble or any(last.values()) else 0
    return {
        "nid": nid,
        "data": {
            "PWR_Attrs": shown_,
            "PWR_ReturnCode": code,
            "PWR_ErrorMessages": trouble,
            "PWR_Messages": None,
            "PWR_MajorVersion": 0,
            "PWR_MinorVersion": 1,
        },
    }


def _number(attribute: Mapping[str, Any]) -> int:
    value = attribute.get("PWR_AttrValue")
    if type(value) is int:
        return value
    if not isinstance(value, str) or not value.isdecimal() or len(value) > 12:
        raise Refusal(400, f"Bad Request: invalid PWR_AttrValue: {shown(value)}")
    return int(value)
