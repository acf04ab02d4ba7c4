"""Frequency and sleep-state limits, in the words of the Power API: ``cnctl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strata.core.errors import StrataError
from strata.power.capmc.caps import NOT_COMPUTE, NOT_READY
from strata.power.capmc.reply import EBADE, EINVAL, SUCCESS, Refusal, Reply, of_nids, reply, said
from strata.power.capmc.request import Ask, chosen, nids_of, shown
from strata.power.capmc.service import CapmcMachine
from strata.power.limits.inband import Attribute, Change, Inband, Value, troubles
from strata.power.telemetry.columns import Uids

ATTRIBUTES: Mapping[str, Attribute] = {
    "PWR_ATTR_FREQ": "freq",
    "PWR_ATTR_FREQ_LIMIT_MIN": "freq-min",
    "PWR_ATTR_FREQ_LIMIT_MAX": "freq-max",
    "PWR_ATTR_CSTATE_LIMIT": "sleep-limit",
}
CAN, GET, SET = FUNCTIONS = ("PWR_ObjAttrValueCapabilities", "PWR_ObjAttrGetValues", "PWR_ObjAttrSetValues")
_FAILED = -1
_MOST_ATTRIBUTES = 16
_LONGEST = 1000

Told = tuple[Sequence[Mapping[str, Any]], str]
"""Of one node: its attributes as the reply has them, and what went wrong."""


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
    function = data.get("PWR_Function")
    if function not in FUNCTIONS:
        raise Refusal(400, f"Bad Request: invalid PWR_Function: {shown(function)}")
    changes = _changes(words, attributes) if function == SET else []
    table = machine.nodes()
    at = chosen(table, nids)
    service = table.nids[at[~table.compute[at]]].tolist()
    if function == SET and service:
        raise Refusal(200, said(EINVAL), e=EINVAL, more={"nids": of_nids(dict.fromkeys(service, NOT_COMPUTE), EINVAL)})
    if machine.inband is None:
        return reply(e=EBADE, err_msg=said(EBADE))
    reached = at[table.ready[at]]
    told = await _ask(machine, machine.inband, table.uids[reached], function, words, changes)
    by_nid = dict(zip(table.nids[reached].tolist(), told, strict=True))
    replies = [_node(nid, by_nid.get(nid, ((), NOT_READY))) for nid in table.nids[at].tolist()]
    failed = any(one["data"]["PWR_ReturnCode"] for one in replies)
    return reply(e=EBADE if failed else 0, err_msg=said(EBADE) if failed else SUCCESS, nids=replies)


def _changes(words: Sequence[str], given: Sequence[Mapping[str, Any]]) -> list[Change]:
    """What a request sets. A range that cannot be is refused before anything is changed."""
    changes = [(ATTRIBUTES[name], _number(one)) for name, one in zip(words, given, strict=True)]
    wanted = dict(changes)
    if "freq-min" in wanted and "freq-max" in wanted and wanted["freq-min"] > wanted["freq-max"]:
        low, high = wanted["freq-min"], wanted["freq-max"]
        raise Refusal(400, f"Bad Request: PWR_ATTR_FREQ_LIMIT_MIN {low} is above PWR_ATTR_FREQ_LIMIT_MAX {high}")
    return changes


async def _ask(
    machine: CapmcMachine,
    inband: Inband,
    uids: Uids,
    function: str,
    words: Sequence[str],
    changes: Sequence[Change],
) -> Sequence[Told]:
    """Of each node, in the order of ``uids``."""
    names, attributes = machine.names(uids), [ATTRIBUTES[word] for word in words]
    if function == CAN:
        choices = [await inband.choices(names, attribute) for attribute in attributes]
        return [_choices(words, [found[name] for found in choices]) for name in names]
    if function == GET:
        read = await inband.get(names, attributes)
        return [_values(words, read[name], timed=True) for name in names]
    done = await machine.set_limits(uids, changes)
    return [_values(words, done[uid], timed=False) for uid in uids.tolist()]


def _choices(words: Sequence[str], found: Sequence[Sequence[int] | StrataError]) -> Told:
    attributes = []
    for name, values in zip(words, found, strict=True):
        if isinstance(values, StrataError):
            return (), str(values)
        attributes.append({"PWR_AttrName": name, "PWR_AttrValueCapabilities": list(values), "PWR_ReturnCode": 0})
    return attributes, ""


def _values(words: Sequence[str], values: Sequence[Value] | StrataError, *, timed: bool) -> Told:
    if isinstance(values, StrataError):
        return (), str(values)
    found: list[Mapping[str, Any]] = []
    for name, value in zip(words, values, strict=True):
        one: dict[str, Any] = {"PWR_AttrName": name, "PWR_ReturnCode": _FAILED if value.trouble else 0}
        if timed and not value.trouble:
            seconds = int(value.time)
            one["PWR_AttrValue"] = value.value
            one["PWR_TimeSeconds"] = seconds
            one["PWR_TimeNanoseconds"] = int((value.time - seconds) * 1e9)
        found.append(one)
    return found, troubles(words, values)


def _node(nid: int, told: Told) -> dict[str, Any]:
    attributes, trouble = told
    return {
        "nid": nid,
        "data": {
            "PWR_Attrs": attributes,
            "PWR_ReturnCode": _FAILED if trouble else 0,
            "PWR_ErrorMessages": trouble[:_LONGEST] or None,
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
