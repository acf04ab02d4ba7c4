"""What the site may draw, and the policies that keep to it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.control.texts import PLAIN, In, Out


class SitePowerView(Out, frozen=True, kw_only=True):
    """What the site may draw, and how that is kept. What only the controller that keeps it knows is None elsewhere."""

    limit: float | None
    ramp: float | None
    """Watts a minute."""
    band: float | None
    policy: str
    """The one that is enabled; empty: none."""
    controller: str
    """Who keeps it."""
    static: float | None
    """The most that all those draw that cannot be capped."""
    allowed: float | None
    """The most that may be drawn now, given all that is not known."""
    over: float | None
    """By how much that is above the limit; it is being lowered."""
    in_flight: int | None
    """Nodes with a command of which the outcome is not known."""
    error: str


class RehearsalView(Out, frozen=True, kw_only=True):
    """What came of a rehearsal."""

    author: str
    time: float
    nodes: int
    days: float
    limit: float
    peak: float


class PolicyView(Out, frozen=True, kw_only=True):
    """A power policy."""

    name: str
    doc: str
    enabled: bool
    limit: float | None
    author: str
    time: float
    digest: str
    rehearsed: RehearsalView | None
    """The newest rehearsal of this very content."""
    unrehearsed: str
    """Why it was taken without one."""


class PolicyDetail(PolicyView, frozen=True, kw_only=True):
    """And what it says."""

    text: str


class Policies(Out, frozen=True, kw_only=True):
    """All policies, by name, and where the site stands."""

    items: tuple[PolicyView, ...]
    site: SitePowerView


PolicyText = Annotated[str, Meta(min_length=1, max_length=100_000)]


class PolicySpec(In, frozen=True, kw_only=True):
    """A document. ``without_rehearsal`` says why it was not rehearsed."""

    text: PolicyText
    without_rehearsal: Annotated[str, Meta(pattern=PLAIN, max_length=500)] = ""


class RehearsalSpec(In, frozen=True, kw_only=True):
    """That a document was rehearsed, and what came of it."""

    text: PolicyText
    nodes: Annotated[int, Meta(ge=1, le=10_000_000)]
    days: Annotated[float, Meta(gt=0, le=366)]
    limit: Annotated[float, Meta(gt=0, le=1e12)]
    peak: Annotated[float, Meta(ge=0, le=1e12)]
