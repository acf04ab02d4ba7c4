"""Tasks that go on for as long as their controller does."""

from __future__ import annotations

import asyncio
import contextlib


async def cancelled(task: asyncio.Task[None]) -> None:
    """End the task, and wait until it has. Raises what it had failed with."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
