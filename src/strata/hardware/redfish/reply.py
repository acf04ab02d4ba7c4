"""Telling sense from nonsense in what a controller answers."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec

from strata.core.decoding import UNREADABLE
from strata.core.errors import Conflict, DeviceError, NotOffered, OutcomeUnknown
from strata.hardware.redfish.bmc import Bmc, Json
from strata.hardware.redfish.wire import Reply

BUSY_STATUSES = (429, 503)
ABSENT_STATUSES = (404, 405, 501)

MOST_WAIT = 300.0
"""Seconds; a controller that asks for more is asked again after this long."""


class Answer(NamedTuple):
    """A reply that made sense."""

    status: int
    body: Json
    etag: str
    location: str
    retry_after: float = 0.0


def judge(bmc: Bmc, method: str, path: str, reply: Reply, now: float, *, private: bool = False) -> Answer:
    """The answer in ``reply``, or an error. What is said to a ``private`` request is not repeated: some echo it."""
    status, request = reply.status, f"{method} {path}"
    said = ("" if private else reply.body[:300].decode("utf-8", "replace")) or f"({status})"
    if 300 <= status < 400:
        where = reply.headers.get("Location", "")[:200]
        raise DeviceError(
            f"it redirects elsewhere ({where}), which is not followed",
            node=bmc.base,
            request=request,
            hint="give it the address that it wants to go by",
        )
    if status == 412:
        raise Conflict("it refused: a newer fence or version is there", where=bmc.base)
    if status in BUSY_STATUSES:
        seconds = wait(reply) or 5.0
        bmc.quiet_until = now + seconds
        raise DeviceError(f"busy: it asks for {seconds:.0f} s", node=bmc.base, request=request, reply=said)
    if status >= 400:
        words = "" if private else message(reply.body)
        if status in ABSENT_STATUSES:
            raise NotOffered(f"it answered {status} to {request}{words}", node=bmc.base, request=request, reply=said)
        raise DeviceError(f"it answered {status}{words}", node=bmc.base, request=request, reply=said)
    body: object = {}
    if reply.body.strip():
        try:
            body = msgspec.json.decode(reply.body)
        except UNREADABLE as wrong:
            if method != "GET":
                raise OutcomeUnknown(f"the reply to {request} is not JSON", where=bmc.base) from wrong
            raise DeviceError("the reply is not JSON", node=bmc.base, request=request, reply=said) from wrong
    if not isinstance(body, dict):
        raise DeviceError("the reply is not a JSON object", node=bmc.base, request=request, reply=said)
    headers = reply.headers
    later = wait(reply) if "Retry-After" in headers else 0.0
    return Answer(status, body, headers.get("ETag", ""), headers.get("Location", ""), later)


def wait(reply: Reply) -> float:
    """Seconds that ``Retry-After`` asks for, as a number or as a date; 0 where it does not say."""
    told = reply.headers.get("Retry-After", "")
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
        error = msgspec.json.decode(body, type=_ErrorBody).error
        told = next((info.message for info in error.info if info.message), "") or error.message
    except UNREADABLE:
        told = "" if body.lstrip()[:1] in (b"<", b"{", b"") else body[:200].decode("utf-8", "replace")
    words = "".join(c if c.isprintable() else " " for c in told[:200]).strip()
    return f": {words}" if words else ""
