"""An event loop whose time passes only when nothing is left to do: hours of a machine in seconds, the same every time.

For code that waits through asyncio alone. Threads and sockets would break the spell; neither is used under it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class _Jump(selectors.SelectSelector):
    """Instead of waiting, the clock is put forward."""

    loop: TimeWarpLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits for something that no clock will bring")
        self.loop.passed += max(0.0, timeout)
        return super().select(0)


class TimeWarpLoop(asyncio.SelectorEventLoop):
    """``passed`` is the virtual time in seconds since the start."""

    def __init__(self) -> None:
        self.passed = 0.0
        jump = _Jump()
        jump.loop = self
        super().__init__(jump)

    def time(self) -> float:
        """Virtual seconds."""
        return self.passed


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run ``main`` to its end in virtual time."""
    with asyncio.Runner(loop_factory=TimeWarpLoop) as runner:
        return runner.run(main)
