"""What each trick does to a request and its reply. ``mischief`` decides when one is played."""

from __future__ import annotations

import msgspec

from strata.virtual.http import Manner, Reply, Request
from strata.virtual.mischief import Prankster, Trick
from strata.virtual.redfish_body import done, error
from strata.virtual.redfish_tree import SESSIONS, Bmc

_CHANGES = frozenset({"POST", "PATCH", "PUT", "DELETE"})
_IN_BODY = frozenset({
    Trick.NULL, Trick.STRINGS, Trick.ABSURD, Trick.POWER_NULL, Trick.POWER_LIE, Trick.NO_ACTIONS, Trick.HOSTILE,
})  # fmt: skip
_POISON = "<script>alert(1)</script>\x1b[2J\x00\u202e" + "A" * 10_000
_KEPT = frozenset({"target", "Id", "MemberId"})


def before(tricks: set[Trick], prankster: Prankster, bmc: Bmc, request: Request, path: str) -> Reply | None:
    """The reply of a controller that does nothing of what it was asked; None: it does."""
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
    if Trick.IGNORED in tricks and request.method == "POST" and path.endswith(("Reset", "PowerControl")):
        return done()
    return None


def after(tricks: set[Trick], reply: Reply) -> Reply:
    """The spoilt reply of a controller that did what it was asked."""
    if Trick.DROP_AFTER in tricks:
        return reply._replace(manner=Manner.CLOSED)
    if Trick.CUT in tricks:
        return reply._replace(status=200, body=reply.body or b'{"error": {}}', manner=Manner.CUT)
    if Trick.ENDLESS in tricks:
        return reply._replace(status=200, manner=Manner.ENDLESS)
    if Trick.ACCEPTED in tricks and reply.status < 300:
        return reply._replace(status=202, body=b"", headers=())
    if reply.status == 200 and reply.body and tricks & _IN_BODY:
        return reply._replace(body=msgspec.json.encode(_spoil(msgspec.json.decode(reply.body), tricks)))
    return reply


def _spoil(value: object, tricks: set[Trick]) -> object:
    if isinstance(value, dict):
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
    if key == "PowerState" and Trick.POWER_LIE in tricks:
        return "Off" if value == "On" else "On"
    return _spoil(value, tricks)
