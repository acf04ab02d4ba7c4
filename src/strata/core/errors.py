"""Every error that Strata raises on purpose, in one tree.

StrataError
├── BadRequest      your input: says which field, what was found, what would be accepted
│   ├── NotFound    the thing that you named is not there
│   └── TooSlow     your request did not arrive in time
├── Denied          you may not: says which right is missing (never what you would have seen)
│   └── Unauthenticated  we do not know who you are: no credential, or not one of ours
├── Conflict        someone else changed it first: carries the current revision
├── Compacted       that far back nothing is kept any more: list again, then watch from there
├── Refused         a guard, budget, hold or freeze said no: carries which, and how to override
├── Unavailable     a part that we need is away (store, disk, peer): nothing was changed, try later
│   └── Corrupt     stored data failed its check: never served, restore from a backup
├── DeviceError     the hardware answered wrongly: carries node, request, reply
│   └── NotOffered  the hardware has no such thing
└── OutcomeUnknown  no answer: look before trying again
    └── InternalFault  a fault of ours in the work for one node: the log says more, the other nodes are not concerned
"""

from __future__ import annotations

from typing import ClassVar


class StrataError(Exception):
    """Base of all. ``detail`` says what was wrong, ``where`` names the place, ``hint`` what to do."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.detail}" if self.where else self.detail
        return f"{text} ({self.hint})" if self.hint else text


class BadRequest(StrataError):
    """The caller's input is wrong; nothing was changed."""

    status = 400
    title = "Bad request"


class NotFound(BadRequest):
    """The named thing does not exist."""

    status = 404
    title = "Not found"


class TooSlow(BadRequest):
    """The request's body did not arrive in time; nothing was changed."""

    status = 408
    title = "Timeout"


class Denied(StrataError):
    """The caller lacks the right."""

    status = 403
    title = "Denied"


class Unauthenticated(Denied):
    """No credential, or one that is not (or no longer) good. Says which, and never the credential."""

    status = 401
    title = "Not authenticated"


class Conflict(StrataError):
    """Somebody else changed it first. Read again, decide again; ``revision`` is the current one."""

    status = 409
    title = "Conflict"

    def __init__(self, detail: str, *, revision: int = 0, where: str = "", hint: str = "") -> None:
        super().__init__(detail, where=where, hint=hint)
        self.revision = revision


class Compacted(StrataError):
    """The asked-for revision is older than what is kept; ``oldest`` is the first that is."""

    status = 410
    title = "Compacted"

    def __init__(self, detail: str, *, oldest: int = 0, where: str = "", hint: str = "") -> None:
        super().__init__(detail, where=where, hint=hint)
        self.oldest = oldest


class Refused(StrataError):
    """A brake (guard, budget, hold, freeze) said no; ``by`` names it."""

    status = 409
    title = "Refused"

    def __init__(self, detail: str, *, by: str = "", where: str = "", hint: str = "") -> None:
        super().__init__(detail, where=where, hint=hint)
        self.by = by


class Unavailable(StrataError):
    """A part that is needed cannot be reached or written; nothing was changed."""

    status = 503
    title = "Unavailable"


class Corrupt(Unavailable):
    """Stored data failed its check and is not served."""

    title = "Corrupt data"


class DeviceError(StrataError):
    """A device answered, and the answer is wrong."""

    status = 502
    title = "Device error"

    def __init__(self, detail: str, *, node: str = "", request: str = "", reply: str = "", hint: str = "") -> None:
        super().__init__(detail, where=node, hint=hint)
        self.node = node
        self.request = request
        self.reply = reply


class NotOffered(DeviceError):
    """The device does not offer what was asked of it; asking again will not help."""

    status = 409
    title = "Not offered by the hardware"


class OutcomeUnknown(StrataError):
    """A device did not answer: the effect may or may not have happened."""

    status = 504
    title = "Outcome unknown"


class InternalFault(OutcomeUnknown):
    """Something unforeseen was raised in the work for one node. Made in ``strata.core.fault_isolation`` only."""

    status = 502
    title = "Internal error with one node"
