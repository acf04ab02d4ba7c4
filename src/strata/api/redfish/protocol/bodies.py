"""Reading what clients send: which properties a change may name, which parameters an action takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from strata.api.redfish.protocol.errors import Rejected, rejected
from strata.api.redfish.protocol.messages import message
from strata.api.redfish.protocol.route import Call, Json, Reply
from strata.api.redfish.resources.tasks import accepted
from strata.core.errors import Refused
from strata.fleet.operations.records import Operation
from strata.hardware.bmc.records import ManyOutcome

_BY_TYPE: Mapping[type, tuple[type, ...]] = {
    bool: (bool,),
    float: (int, float),
    str: (str,),
    dict: (dict,),
    list: (list,),
    int: (int,),
}

DONE = Reply(status=204)


def change(call: Call, writable: Mapping[str, type], resource: Json) -> Json:
    """The properties that a PATCH sets. It may name only writable ones; ``resource`` is what it would change."""
    body = dict(call.body or {})
    said = [_refusal(name, value, writable, resource) for name, value in body.items() if not name.startswith("@")]
    if wrong := [found for found in said if found]:
        raise Rejected(400, wrong)
    if not said:
        raise rejected(400, "NoOperation")
    return body


def part(given: Json, name: str, writable: Mapping[str, type], resource: Json) -> Json:
    """The same for an object within the body."""
    said = [_refusal(key, value, writable, resource.get(name) or {}, f"{name}/") for key, value in given[name].items()]
    if wrong := [found for found in said if found]:
        raise Rejected(400, wrong)
    return dict(given[name])


def _refusal(name: str, value: Any, writable: Mapping[str, type], resource: Json, within: str = "") -> Json | None:
    if name not in writable:
        key = "PropertyNotWritable" if name in resource else "PropertyUnknown"
        return message(key, name, about=within + name)
    if value is None or _is(value, writable[name]):
        return None
    return message("PropertyValueTypeError", str(value)[:80], name, about=within + name)


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, _BY_TYPE[kind]) and (kind is bool or not isinstance(value, bool))


def parameters(call: Call, action: str, accepted: Mapping[str, type], needed: Iterable[str] = ()) -> Json:
    """What an action was given: no unknown parameter, none of another type, all that it needs."""
    body = dict(call.body or {})
    for name, value in body.items():
        if name.startswith("@"):
            continue
        if name not in accepted:
            raise rejected(400, "ActionParameterUnknown", action, name, about=name)
        if value is not None and not _is(value, accepted[name]):
            raise rejected(400, "ActionParameterValueTypeError", str(value)[:80], name, action, about=name)
    for name in needed:
        if body.get(name) is None:
            raise rejected(400, "ActionParameterMissing", action, name, about=name)
    return body


def one_of(value: str, allowed: Iterable[str], name: str, action: str = "") -> str:
    if value in allowed:
        return value
    if action:
        raise rejected(400, "ActionParameterValueNotInList", value, name, action, about=name)
    raise rejected(400, "PropertyValueNotInList", value, name, about=name)


def missing(name: str) -> Rejected:
    """A property that a change must have."""
    return rejected(400, "PropertyMissing", name, about=name)


def done(outcome: ManyOutcome | Operation) -> Reply:
    """What became of a request for nodes: all done; none (an error); some, with what was not; or it goes on."""
    if isinstance(outcome, Operation):
        return accepted(outcome)
    if not outcome.failed_count:
        return DONE
    reasons = [f"{failed.nodes}: {failed.reason}" for failed in outcome.failed]
    if not outcome.done_count:
        raise Refused("; ".join(reasons)[:2000], by="")
    said = [message("GeneralError", resolution=reason) | {"Message": reason[:400]} for reason in reasons]
    return Reply(status=200, body={"@Message.ExtendedInfo": said})
