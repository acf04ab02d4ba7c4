"""A node's past."""

from __future__ import annotations

from collections.abc import Mapping

from strata.core.texts import Out


class TransitionView(Out, frozen=True, kw_only=True):
    """One change of one fact."""

    time: float
    variable: str
    old: str
    new: str
    source: str
    cause: str


class HistoryPage(Out, frozen=True, kw_only=True):
    """Changes of a node, newest first."""

    items: tuple[TransitionView, ...]
    next: str | None


class ManyTransition(TransitionView, frozen=True, kw_only=True):
    """One change of one fact, of several nodes at once."""

    nodes: str
    """Folded."""


class PastView(Out, frozen=True, kw_only=True):
    """The facts of a node as they were at ``time``."""

    node: str
    time: float
    facts: Mapping[str, str]
