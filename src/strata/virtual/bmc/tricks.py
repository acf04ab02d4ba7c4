"""What each trick does to a request and its reply. ``mischief`` decides when one is played."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from strata.virtual.bmc.http import Manner, Reply, Request
from strata.virtual.bmc.mischief import Prankster, Trick
from strata.virtual.redfish.bmc import SESSIONS, Bmc
from strata.virtual.redfish.body import done, error

_CHANGES = frozenset({"POST", "PATCH", "PUT", "DELETE"})
_IN_BODY = frozenset({
    Trick.NULL, Trick.STRINGS, Trick.ABSURD, Trick.POWER_NULL, Trick.POWER_LIE, Trick.NO_ACTIONS, Trick.HOSTILE,
    Trick.WRONG_TYPES,
})  # fmt: skip
_BROKEN = b'\xae \\ud800 \x07"'
"""How a text ends that is not UTF-8, within JSON."""
_CROWD = 1_000_000
_TEXTS = re.compile(rb'("(?:Name|Model|Manufacturer|Product)":"[^"\\]*)"')
_POISON = "<script>alert(1)</script>\x1b[2J\x00\u202e" + "A" * 10_000
_KEPT = frozenset({"target", "Id", "MemberId"})


def before(tricks: set[Trick], prankster: Prankster, bmc: Bmc, request: Request, path: str) -> Reply | None:
    """The reply of a BMC that does nothing of what it was asked; None: it does."""
    if Trick.SILENT in tricks:
        return Reply(204, manner=Manner.NEVER)
    if Trick.DROP_BEFORE in tricks:
        return Reply(204, manner=Manner.CLOSED)
    if Trick.BUSY in tricks:
        wait = (("Retry-After", str(prankster.retry_after)),)
        return error(503, "ServiceTemporarilyUnavailable", "Busy.", wait)
    if Trick.EXPIRED in tricks:
        bmc.sessions.clear()
        return error(401, "NoValidSession", "The session has expired.")
    if Trick.HTML in tricks:
        return Reply(200, b"<html><body>Please log in</body></html>", kind="text/html")
    if Trick.REDIRECT in tricks:
        return Reply(307, headers=(("Location", "http://elsewhere.invalid/redfish/v1/"),))
    if Trick.REDIRECT_HOME in tricks:
        return Reply(307, headers=(("Location", request.path),))
    login = path.rstrip("/") == SESSIONS and request.method == "POST"
    if Trick.FULL in tricks and login:
        return error(503, "SessionLimitExceeded", "All sessions are in use.", (("Retry-After", "30"),))
    if Trick.PRECONDITION in tricks and request.method in _CHANGES and not login:
        return error(412, "PreconditionFailed", "The resource has changed: its ETag is another.")
    if Trick.NOT_THERE in tricks and not login and not path.startswith(SESSIONS) and path.count("/") > 3:
        return error(501, "NotImplemented", "Not implemented.")
    if Trick.IGNORED in tricks and request.method == "POST" and path.endswith(("Reset", "PowerControl")):
        return done()
    return None


def after(tricks: set[Trick], reply: Reply) -> Reply:
    """The spoilt reply of a BMC that did what it was asked."""
    if Trick.DROP_AFTER in tricks:
        return reply._replace(manner=Manner.CLOSED)
    if Trick.CUT in tricks:
        return reply._replace(status=200, body=reply.body or b'{"error": {}}', manner=Manner.CUT)
    if Trick.ENDLESS in tricks:
        return reply._replace(status=200, manner=Manner.ENDLESS)
    if Trick.ACCEPTED in tricks and reply.status < 300:
        return reply._replace(status=202, body=b"", headers=())
    if Trick.HEADERS in tricks:
        return reply._replace(headers=(*reply.headers, ("X-Motto", "A" * (1 << 20))))
    if reply.status == 200 and reply.body and tricks & _IN_BODY:
        reply = reply._replace(body=msgspec.json.encode(_spoil(msgspec.json.decode(reply.body), tricks)))
    if Trick.BAD_BYTES in tricks:
        return reply._replace(body=_TEXTS.sub(lambda found: found[1] + _BROKEN, reply.body))
    if Trick.MEMBERS in tricks and b'"Members"' in reply.body:
        return reply._replace(body=_crowd())
    return reply


@cache
def _crowd() -> bytes:
    return b'{"Members":[' + b",".join([b'{"@odata.id":"/redfish/v1/Systems/1"}'] * _CROWD) + b"]}"


def _spoil(value: object, tricks: set[Trick]) -> object:
    if isinstance(value, dict):
        if Trick.WRONG_TYPES in tricks and "@odata.id" not in value:
            return [[key, _spoil(item, tricks)] for key, item in value.items()]
        return {
            key: _spoil_property(key, item, tricks)
            for key, item in value.items()
            if key != "Actions" or Trick.NO_ACTIONS not in tricks
        }
    if isinstance(value, list):
        return [_spoil(item, tricks) for item in value]
    if Trick.NULL in tricks:
        return None
    if isinstance(value, float | int):
        value = -1e300 if Trick.ABSURD in tricks else value
        return str(value) if Trick.STRINGS in tricks else value
    if Trick.HOSTILE in tricks and isinstance(value, str) and not value.startswith("/"):
        return value + _POISON
    return value


def _spoil_property(key: str, value: object, tricks: set[Trick]) -> object:
    if key.startswith("@") or key in _KEPT:
        return value
    if key == "PowerState" and Trick.POWER_NULL in tricks:
        return None
    if key == "PowerState" and Trick.WRONG_TYPES in tricks:
        return 7
    if isinstance(value, list) and Trick.WRONG_TYPES in tricks:
        return {str(place): _spoil(item, tricks) for place, item in enumerate(value)}
    if key == "PowerState" and Trick.POWER_LIE in tricks:
        return "Off" if value == "On" else "On"
    return _spoil(value, tricks)
