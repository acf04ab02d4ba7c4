"""What became of a request for many nodes, as the API shows it."""

from __future__ import annotations

from strata.control.texts import Out


class Failed(Out, frozen=True, kw_only=True):
    """Nodes for which something was not done, and why."""

    nodes: str
    """A folded nodeset."""
    reason: str


class ManyOutcome(Out, frozen=True, kw_only=True):
    """What became of a request for many nodes."""

    done: str
    """A folded nodeset."""
    done_count: int
    failed: tuple[Failed, ...] = ()
    failed_count: int = 0
