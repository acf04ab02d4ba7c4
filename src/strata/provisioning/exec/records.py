"""Commands run on nodes: what is asked for, and what comes of it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from strata.core.texts import In, Out, SelectText

MOST_STDIN = 2**20
ArgvText = Annotated[str, Meta(max_length=4096, pattern=r"^[^\u0000]*$")]


class ExecRequest(In, frozen=True, kw_only=True):
    """Run ``argv`` on every selected node. ``where``: empty for the personality's first member, ``minos``, or a
    member's name."""

    select: SelectText
    argv: Annotated[tuple[ArgvText, ...], Meta(min_length=1, max_length=256)]
    where: Annotated[str, Meta(pattern=r"^([a-z0-9][a-z0-9_.-]{0,62})?$(?!\n)", max_length=63)] = ""
    timeout: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    stdin: Annotated[bytes, Meta(max_length=MOST_STDIN)] | None = None
    """What it reads on its standard input, in base64: at most 1 MiB. It is not kept, and not in the audit log. None:
    nothing."""


class ExecResult(Out, frozen=True, kw_only=True):
    """What came of it on one node. ``exit`` null: it did not run to its end, and ``error`` says why."""

    node: str
    exit: int | None
    output: str
    """Text; what is none is replaced. Standard output and standard error together, as they came."""
    truncated: bool
    error: str


class ExecView(Out, frozen=True, kw_only=True):
    """A run over many nodes. ``items``: the results after ``after``, in the order in which they came; ``next`` is the
    ``after`` for those that follow."""

    id: str
    argv: tuple[str, ...]
    author: str
    created: float
    state: Literal["running", "done", "cancelled"]
    total: int
    done: int
    failed: int
    items: tuple[ExecResult, ...]
    next: int
