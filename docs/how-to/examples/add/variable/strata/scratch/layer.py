"""Opens the layer on a fleet, and does its work: here, a file for each node stands for its disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.fleet.fleet import Fleet


async def open_scratch(fleet: Fleet) -> None:
    """One driver is all that it takes."""
    fleet.drive(ScratchDriver(fleet.settings.state_dir / "scratch"))


class ScratchDriver:
    """Implements ``strata.core.driver.Driver``: a batch of nodes at a time, and never in the way of the event loop."""

    name = "scratch"

    def __init__(self, disks: Path) -> None:
        self._disks = disks

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Format the disks, unless the lead has run out meanwhile."""
        if time.monotonic() >= batch.valid_until:
            return Outcomes.all(Outcome.FENCED, len(batch), "this controller no longer leads the node")
        await asyncio.to_thread(self._format, batch.names)
        return Outcomes.all(Outcome.DONE, len(batch))

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """What is there, never what was hoped."""
        formatted = await asyncio.to_thread(self._formatted)
        return {"scratch": Column.of("formatted" if name in formatted else "empty" for name in batch.names)}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """It answers for no guard."""
        return [f"nobody here knows the guard {guard}"] * len(batch)

    def _format(self, names: Sequence[str]) -> None:
        self._disks.mkdir(exist_ok=True)
        for name in names:
            (self._disks / name).touch()

    def _formatted(self) -> set[str]:
        return {disk.name for disk in self._disks.iterdir()} if self._disks.is_dir() else set()
