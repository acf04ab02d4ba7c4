"""Tasks that go on for as long as their controller does, and how they are ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def beside(tasks: set[asyncio.Task[T]], work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """Begin ``work`` beside everything else. It is in ``tasks`` until it is done: the loop alone would forget it."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def cancelled(task: asyncio.Task[None] | None) -> None:
    """End the task, if there is one, and wait until it has. Raises what it had failed with."""
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def all_cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """End all of them, and wait until they have. What they had failed with is passed over."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
