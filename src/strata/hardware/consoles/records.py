"""What the API shows of what consoles print, and takes that is typed at them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from strata.core.texts import In, Out


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


class ConsoleKeys(In, frozen=True, kw_only=True):
    """What is typed at a console."""

    data: Annotated[bytes, Meta(min_length=1, max_length=4096)]
    """In base64, byte for byte: a newline is a carriage return (DQ==)."""


class ConsolePiece(Out, frozen=True, kw_only=True):
    """What a console printed, in base64, byte for byte."""

    data: bytes


class ConsoleHit(Out, frozen=True, kw_only=True):
    """A line that matched."""

    node: str
    line: ConsoleLine


class ConsoleHits(Out, frozen=True, kw_only=True):
    """All of them, or as many as were asked for. ``whole``: nothing was left out."""

    items: tuple[ConsoleHit, ...]
    whole: bool
