"""What a node's console says of its kernel's death is a fact as soon as its agent is silent too."""

from __future__ import annotations

import asyncio

import numpy as np

from strata.fleet.controller.controller import Controller
from strata.fleet.tasks import all_cancelled, beside
from strata.provisioning.agents.driver import NodeDriver


class Panics:
    """Takes panics. ``close`` ends what is under way."""

    def __init__(self, controller: Controller, driver: NodeDriver) -> None:
        self._controller = controller
        self._driver = driver
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, node: str, said: str) -> None:
        """The kernel of ``node`` says that it dies, and why."""
        if self._controller.leads(node):
            beside(self._tasks, self._look(node, said), name=f"panic {node}")

    async def close(self) -> None:
        """Look at nobody any more."""
        await all_cancelled(self._tasks)

    async def _look(self, node: str, said: str) -> None:
        if await self._driver.panicked(node) and (index := self._controller.registry.find(node)) >= 0:
            self._controller.record_event(np.array([index], dtype=np.int64), f"its kernel died: {said}", "console")
