"""Trouble of the service itself, looked for now and then: each kind says when it comes and when it is over."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

log = logging.getLogger(__name__)


class TroubleWatch(ABC):
    """Looks, for as long as ``run`` does. ``over``: what is said when the trouble is gone."""

    def __init__(self, every: float, over: str) -> None:
        self._every = every
        self._over = over
        self.trouble = ""
        """What is wrong; empty: nothing was at the last look."""

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(self._every)

    async def look(self) -> bool:
        """Look once; whether trouble came or went."""
        before, self.trouble = self.trouble, await self.find()
        changed = bool(before) != bool(self.trouble)
        if changed:
            log.log(logging.WARNING if self.trouble else logging.INFO, self.trouble or self._over)
        return changed

    @abstractmethod
    async def find(self) -> str:
        """What is wrong now; empty: nothing."""
