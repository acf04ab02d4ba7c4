"""How far somebody has got in something: what is kept across restarts, without knowing where."""

from __future__ import annotations

from typing import Protocol


class Marks(Protocol):
    """Remembers texts by name. ``strata.hardware.events.log.EventLog`` does, in its file."""

    def mark(self, name: str) -> str:
        """As it was set; empty: never."""
        ...

    def set_mark(self, name: str, value: str) -> None:
        """Remember it."""
        ...
