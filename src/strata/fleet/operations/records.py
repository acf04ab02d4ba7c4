"""Operations: work on many nodes that is accepted, tracked and cancellable; what is kept of one, and who does it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from strata.core.texts import Out

PREFIX = "job/"
"""Where they are kept. Stores that were written before they were called operations have them there."""
MOST_ERRORS = 100
"""Failures that are kept by name; the rest are only counted."""

OperationState = Literal["pending", "running", "done", "failed", "cancelled"]


class OperationError(Out, frozen=True, kw_only=True):
    """What went wrong with one node of an operation; without a node: with all of it."""

    node: str
    detail: str


class Operation(Out, frozen=True, kw_only=True):
    """Work on many nodes: accepted, tracked, cancellable. ``errors`` holds the first 100."""

    id: str
    kind: str
    state: OperationState = "pending"
    total: int = 0
    """How many nodes it is about."""
    done: int = 0
    failed: int = 0
    errors: tuple[OperationError, ...] = ()
    author: str
    created: float
    finished: float | None = None

    @property
    def over(self) -> bool:
        """Nothing will happen to it any more."""
        return self.state in ("done", "failed", "cancelled")


class OperationPage(Out, frozen=True, kw_only=True):
    """A part of all operations, newest first."""

    items: tuple[Operation, ...]
    next: str | None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one chunk of work did. Yielded after it is done."""

    position: Any
    """Where to go on from after a restart: anything that MessagePack holds."""
    done: int = 0
    """Nodes that went well."""
    failed: Sequence[tuple[str, str]] = ()
    """(node, why) of those that did not."""
    durable: bool = False
    """Write it down before the work goes on: for what must not be done twice."""


Work = Callable[[Mapping[str, Any], Any], AsyncIterator[Step]]
"""``work(arguments, position)``: does an operation chunk by chunk, from ``position`` on (None: the beginning). After a
crash the last chunks may be done again, so doing one twice must be the same as once."""


class OperationRow(Operation, frozen=True, kw_only=True, omit_defaults=True):
    """An operation as it is stored: with what only the controllers that work on it need."""

    arguments: Mapping[str, Any] = {}
    position: Any = None
    owner: str = ""
    """The controller that works on it, and which start of it."""
    instance: str = ""
    cancel: bool = False
    """Somebody asked for it to stop."""

    def shown(self) -> Operation:
        """What people see of it."""
        return msgspec.convert(self, Operation, from_attributes=True)

    def after(self, step: Step) -> OperationRow:
        """The operation with a chunk counted in."""
        errors = (*self.errors, *(OperationError(node=node, detail=why) for node, why in step.failed))[:MOST_ERRORS]
        return msgspec.structs.replace(
            self,
            done=self.done + step.done,
            failed=self.failed + len(step.failed),
            errors=errors,
            position=step.position,
        )

    def ended(self, state: OperationState, now: float, why: str = "") -> OperationRow:
        """The operation when it is over."""
        last = (OperationError(node="", detail=why),) if why else ()
        errors = (*self.errors[: MOST_ERRORS - len(last)], *last)
        return msgspec.structs.replace(self, state=state, finished=now, errors=errors)


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OperationRow).decode


def decode(value: bytes) -> OperationRow:
    """Read a row."""
    try:
        return _decode(value)
    except msgspec.ValidationError:  # errors were once kept as pairs
        row = msgspec.msgpack.decode(value)
        row["errors"] = [{"node": node, "detail": why} for node, why in row.get("errors", ())]
        return msgspec.convert(row, OperationRow)
