"""Names that something changed about: gathered for a moment, then told together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

_GATHER = 0.05  # seconds in which changes are gathered before they are told


class News:
    """Gathers names for ``tell``. ``note`` must be called in the loop."""

    def __init__(self, tell: Callable[[Collection[str]], None]) -> None:
        self._tell = tell
        self._names: set[str] = set()
        self._telling: asyncio.TimerHandle | None = None
        self._over = False

    def note(self, name: str) -> None:
        """Something changed about it: tell soon, together with what else changes."""
        self._names.add(name)
        if self._telling is None and not self._over:
            self._telling = asyncio.get_running_loop().call_later(_GATHER, self._told)

    def hush(self) -> None:
        """What is noted from now on is not told; what was noted before still is, unless ``stop`` comes first."""
        self._over = True

    def stop(self) -> None:
        """Tell nothing any more."""
        self._over = True
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _told(self) -> None:
        self._telling = None
        names, self._names = self._names, set()
        self._tell(names)
