"""Tasks that go on for as long as their controller does, and how they are ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any


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
