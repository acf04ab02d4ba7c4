"""An event loop whose time passes only when nothing is left to do: hours of a machine in seconds, the same every time.

For code that waits through asyncio alone: sockets would break the spell, and work meant for a thread is done at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
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
        return self.passed

    def run_in_executor(self, executor: Any, func: Callable[..., _T], *args: Any) -> asyncio.Future[_T]:  # type: ignore[override]
        """Do it here and now: threads have a time of their own."""
        done: asyncio.Future[_T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run ``main`` to its end in virtual time."""
    with asyncio.Runner(loop_factory=TimeWarpLoop) as runner:
        return runner.run(main)
