"""What the API shows of what consoles print."""

from __future__ import annotations

from typing import Literal

from strata.core.texts import Out


class ConsoleLine(Out, frozen=True, kw_only=True):
    """One line of a console, or one kernel message that came by the network."""

    id: int
    """Its place in the node's stream: what to resume after."""
    time: float
    source: Literal["serial", "syslog", "netconsole", "agent", "strata"]
    text: str


class ConsoleView(Out, frozen=True, kw_only=True):
    """How a node's console is captured."""

    node: str
    way: Literal["redfish", "ipmi", "socket", "none"]
    connected: bool
    trouble: str
    lines: int
    bytes: int
    last: float | None


class ConsoleQuery(Out, frozen=True, kw_only=True):
    """What to look for."""

    select: str = "*"
    text: str
    regex: bool = False
    since: float | None = None
    until: float | None = None
    limit: int = 100


class ConsoleHit(Out, frozen=True, kw_only=True):
    """A line that matched."""

    node: str
    line: ConsoleLine


class ConsoleHits(Out, frozen=True, kw_only=True):
    """All of them, or as many as were asked for. ``whole``: nothing was left out."""

    items: tuple[ConsoleHit, ...]
    whole: bool
