"""Work that is done time and again beside everything else, until it is stopped. A failure is told, and ends nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from strata.core.errors import StrataError
from strata.fleet.tasks import cancelled

log = logging.getLogger(__name__)


class Recurring:
    """``work``, then a ``pause`` of so many seconds (None: until ``soon``), and so on. ``trouble`` is what the log says
    where it fails."""

    def __init__(
        self, name: str, work: Callable[[], Awaitable[None]], pause: Callable[[], float | None], *, trouble: str
    ) -> None:
        self.error = ""
        """Why it failed the last time; empty: it did not."""
        self._name, self._work, self._pause, self._trouble = name, work, pause, trouble
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._go_on(), name=self._name)

    async def stop(self) -> None:
        """Stop, wherever it is."""
        task, self._task = self._task, None
        await cancelled(task)

    def soon(self) -> None:
        """Do it without a pause, the next time."""
        self._wake.set()

    async def _go_on(self) -> None:
        while True:
            try:
                await self._work()
                self.error = ""
            except (StrataError, OSError) as error:
                if str(error) != self.error:
                    log.warning(self._trouble, extra={"reason": str(error)})
                self.error = str(error)
            except Exception:
                log.exception(self._trouble)
                self.error = "an internal error; the log has it"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            self._wake.clear()
