"""Errors as Redfish tells them: a status, and an ``error`` object with messages from a registry.

Every refusal and failure of ``/redfish`` leaves through here. As in ``strata.api.problem``: what an unexpected error
was about goes to the log, never to the client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from strata.api.redfish.protocol.messages import clean, message, own_message
from strata.api.redfish.protocol.route import Json, Reply
from strata.core.errors import (
    BadRequest,
    Conflict,
    Denied,
    DeviceError,
    NotFound,
    OutcomeUnknown,
    Refused,
    StrataError,
    Unauthenticated,
    Unavailable,
)
from strata.core.redact import redact

log = logging.getLogger(__name__)

RETRY_AFTER = 5
"""Seconds after which a client may try again when a part of the service is away."""

# The first that fits: subclasses come before their bases.
_OWN: tuple[tuple[type[StrataError], str], ...] = (
    (Unauthenticated, "NotAuthenticated"),
    (Denied, "Denied"),
    (NotFound, "NotFound"),
    (BadRequest, "BadRequest"),
    (Refused, "Refused"),
    (Conflict, "Conflict"),
    (Unavailable, "Unavailable"),
    (DeviceError, "DeviceError"),
    (OutcomeUnknown, "OutcomeUnknown"),
)


class Rejected(StrataError):
    """A request that the protocol itself refuses, with the messages that say why."""

    def __init__(self, status: int, messages: Sequence[Json], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(str(messages[0]["Message"]))
        self.code = status
        self.messages = tuple(messages)
        self.headers = headers or {}


def rejected(status: int, key: str, *args: str, about: str = "", hint: str = "") -> Rejected:
    """A refusal with one of the Base messages."""
    return Rejected(status, [message(key, *args, about=about, resolution=hint)])


def reply_to(error: BaseException, path: str, *, conditional: bool = False) -> Reply:
    """The answer that tells ``error``. ``conditional``: the request named the state that it expects."""
    if isinstance(error, Rejected):
        return Reply(status=error.code, body=error_body(error.messages), headers=error.headers)
    if not isinstance(error, StrataError):
        log.error("Redfish request failed unexpectedly", exc_info=error)
        return Reply(status=500, body=error_body([message("InternalError")]))
    own = own_message(_own_key(error), redact(str(error)), resolution=error.hint)
    if isinstance(error, Unauthenticated):
        return Reply(status=401, body=error_body([message("NoValidSession"), own]))
    if isinstance(error, Denied):
        return Reply(status=403, body=error_body([message("InsufficientPrivilege"), own]))
    if isinstance(error, NotFound):
        return Reply(status=404, body=error_body([message("ResourceMissingAtURI", path), own]))
    if isinstance(error, Conflict) and conditional:
        return Reply(status=412, body=error_body([message("PreconditionFailed"), own]))
    if isinstance(error, Unavailable):
        busy = message("ServiceTemporarilyUnavailable", str(RETRY_AFTER))
        return Reply(status=503, body=error_body([busy, own]), headers={"Retry-After": str(RETRY_AFTER)})
    return Reply(status=error.status, body=error_body([own]))


def error_body(messages: Sequence[Json]) -> Json:
    """The ``error`` object: one message is told by itself, of several the first stands for all in ``code``."""
    first = messages[0]
    return {
        "error": {
            "code": first["MessageId"],
            "message": clean(str(messages[-1]["Message"])),
            "@Message.ExtendedInfo": list(messages),
        }
    }


def _own_key(error: StrataError) -> str:
    return next((key for kind, key in _OWN if isinstance(error, kind)), "Unavailable")
