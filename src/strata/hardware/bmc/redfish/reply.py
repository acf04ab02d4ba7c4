"""Telling sense from nonsense in what a BMC answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec

from strata.core.errors import Conflict, DeviceError, NotOffered, OutcomeUnknown
from strata.core.input.foreign import one_line, read_json, read_text
from strata.hardware.bmc.redfish.connections import Reply
from strata.hardware.bmc.redfish.endpoint import Endpoint, Json, items

BUSY_STATUSES = (429, 503)
ABSENT_STATUSES = (404, 405, 501)

MOST_WAIT = 300.0
"""Seconds; a BMC that asks for more is asked again after this long."""

_NUMBER = (int, float)
TYPES: Mapping[str, type | tuple[type, ...]] = {
    "PowerState": str, "Members": list, "Status": dict, "Links": dict, "Actions": dict,
    "Reading": _NUMBER, "ReadingCelsius": _NUMBER, "PowerConsumedWatts": _NUMBER,
}  # fmt: skip
"""What the properties that matter here are by the standard, where they are not null. Another type is read as well as it
can be, and told."""
MOST_CHECKED = 256
"""Members whose types are looked at."""


class Answer(NamedTuple):
    """A reply that made sense."""

    status: int
    body: Json
    etag: str
    location: str
    retry_after: float = 0.0


def judge(bmc: Endpoint, method: str, path: str, reply: Reply, now: float, *, private: bool = False) -> Answer:
    """The answer in ``reply``, or an error. What is said to a ``private`` request is not repeated: some echo it."""
    status, request = reply.status, f"{method} {path}"
    said = ("" if private else read_text(reply.body[:300])) or f"({status})"
    if 300 <= status < 400:
        where = header(reply, "Location")[:200]
        raise DeviceError(
            f"it redirects elsewhere ({where}), which is not followed",
            node=bmc.base,
            request=request,
            hint="set the node's bmc to that address, if it is the right one",
        )
    if status == 412:
        raise Conflict("it refused: a newer command or change was there first", where=bmc.base)
    if status in BUSY_STATUSES:
        seconds = wait(reply) or 5.0
        bmc.quiet_until = now + seconds
        raise DeviceError(f"busy: it asks to wait {seconds:.0f} s", node=bmc.base, request=request, reply=said)
    if status >= 400:
        words = "" if private else message(reply.body)
        if status in ABSENT_STATUSES:
            raise NotOffered(f"it answered {status} to {request}{words}", node=bmc.base, request=request, reply=said)
        if status >= 500 and method == "GET":
            bmc.flaw = f"it answered {status} to {request}{words}"
        raise DeviceError(f"it answered {status}{words}", node=bmc.base, request=request, reply=said)
    body: object = {}
    if reply.body.strip():
        try:
            body, flaw = read_json(reply.body)
        except ValueError as wrong:
            bmc.flaw = f"the reply to {request} is not JSON"
            if method != "GET":
                raise OutcomeUnknown(f"the reply to {request} is not JSON", where=bmc.base) from wrong
            raise DeviceError("the reply is not JSON", node=bmc.base, request=request, reply=said) from wrong
        if flaw and not private:
            bmc.flaw = f"{flaw} (the reply to {request})"
    if not isinstance(body, dict):
        bmc.flaw = f"the reply to {request} is not a JSON object"
        raise DeviceError("the reply is not a JSON object", node=bmc.base, request=request, reply=said)
    if method == "GET" and (odd := _odd(body)):
        bmc.flaw = f"{odd} (in the reply to {request})"
    later = wait(reply) if "retry-after" in reply.headers else 0.0
    return Answer(status, body, header(reply, "ETag"), header(reply, "Location"), later)


def header(reply: Reply, name: str) -> str:
    """A header; bytes in it that are not UTF-8 come as halves of surrogate pairs, and would break whoever sends, stores
    or shows them."""
    return one_line(reply.headers.get(name.lower(), ""))


def _odd(body: Json) -> str:
    """The first property with a type that the standard does not allow; empty: none was seen."""
    for part in (body, *items(body, "Members")[:MOST_CHECKED]):
        for name in TYPES.keys() & part.keys():
            value = part[name]
            if value is None and name != "Members":
                continue
            if not isinstance(value, TYPES[name]) or (isinstance(value, bool) and TYPES[name] is not bool):
                shown = one_line(str(value)[:40]) if isinstance(value, str | int | float) else type(value).__name__
                return f"{name} is of the wrong type: {shown!r}"
    return ""


def wait(reply: Reply) -> float:
    """Seconds that ``Retry-After`` asks for, as a number or as a date; 0 where it does not say."""
    told = header(reply, "Retry-After")
    if told.isdecimal():
        return min(float(told[:9]), MOST_WAIT)
    try:
        return min(max(0.0, parsedate_to_datetime(told).timestamp() - time.time()), MOST_WAIT)
    except (TypeError, ValueError, OverflowError):
        return 0.0


class _Info(msgspec.Struct):
    message: str = msgspec.field(default="", name="Message")
    message_id: str = msgspec.field(default="", name="MessageId")


class _Error(msgspec.Struct):
    message: str = ""
    info: list[_Info] = msgspec.field(default_factory=list, name="@Message.ExtendedInfo")


class _ErrorBody(msgspec.Struct):
    error: _Error


def message(body: bytes) -> str:
    """What an error says: the first detailed message, else the general one, else plain text (a page says nothing)."""
    try:
        error = msgspec.convert(read_json(body).value, _ErrorBody).error
        told = next((info.message for info in error.info if info.message), "") or error.message
    except (ValueError, msgspec.ValidationError):
        told = "" if body.lstrip()[:1] in (b"<", b"{", b"") else read_text(body[:200])
    words = "".join(c if c.isprintable() else " " for c in told[:200]).strip()
    return f": {words}" if words else ""
