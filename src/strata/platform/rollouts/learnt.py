"""What mutations took on this very machine, and how often they failed: by what the engine of this controller saw. Kept
in a file of its own: without it, or where it is damaged, everything is learnt anew."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.host.private_file import write_private
from strata.core.model import UNKNOWN
from strata.engine.effects import Effects
from strata.engine.faults import EVENT
from strata.fleet.columns import grown
from strata.fleet.controller.controller import Controller

_MEMORY = 10_000
"""Nodes after which older ones count for less: a machine changes."""


class Learnt(msgspec.Struct, kw_only=True):
    """One mutation: on how many nodes it succeeded and failed, and how long it took on the mean."""

    succeeded: int = 0
    failed: int = 0
    seconds: float = 0.0

    def took(self, seconds: float, nodes: int) -> None:
        """It succeeded on so many nodes, in so many seconds on the mean."""
        known = min(self.succeeded, _MEMORY)
        self.seconds = (self.seconds * known + seconds * nodes) / (known + nodes)
        self.succeeded += nodes

    @property
    def failure_rate(self) -> float:
        """The part of the tries that failed."""
        return self.failed / max(1, self.failed + self.succeeded)


class Lessons:
    """What was learnt of all mutations."""

    def __init__(self, controller: Controller, file: Path) -> None:
        self._controller = controller
        self._file = file
        self._saved = b""
        self._found: dict[str, Learnt] = {}
        self._began: dict[str, npt.NDArray[np.float64]] = {}
        controller.noticed.append(self._notice)

    def load(self) -> None:
        """Begin with what was learnt before; of mutations that there are no more, nothing."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            kept = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Learnt])
            self._found = {name: one for name, one in kept.items() if name in self._controller.model.mutations}

    async def save(self) -> None:
        """Keep it, whole or not at all. Where that cannot be, it is learnt anew after a restart."""
        data = msgspec.json.encode(self._found)
        if not self._found or data == self._saved:
            return
        self._saved = data
        with contextlib.suppress(OSError):
            await asyncio.to_thread(write_private, self._file, data)

    @property
    def all(self) -> Mapping[str, Learnt]:
        """By mutation; those that were never done are not in it."""
        return self._found

    def _notice(self, effects: Effects) -> None:
        model, now = self._controller.model, self._controller.clock.now()
        for change in effects.changes:
            mutation = model.mutations.get(change.cause)
            # What is forgotten when a mutation begins is a change, too, and not its end.
            if mutation is not None and change.variable == mutation.variable and change.new not in ("", UNKNOWN):
                began = self._began_at(mutation.name)[change.nodes]
                if len(known := began[np.isfinite(began)]):
                    self._of(mutation.name).took(float((now - known).mean()), len(known))
            elif change.variable == EVENT and (name := change.new.partition(" failed: ")[0]) in model.mutations:
                self._of(name).failed += len(change.nodes)
        for act in effects.acts:
            self._began_at(act.mutation)[act.nodes] = now

    def _began_at(self, mutation: str) -> npt.NDArray[np.float64]:
        """When it was last begun on each node; NaN: not since we look."""
        size = self._controller.engine.progress.size
        self._began[mutation] = grown(self._began.get(mutation, np.zeros(0)), size, np.nan)
        return self._began[mutation]

    def _of(self, mutation: str) -> Learnt:
        return self._found.setdefault(mutation, Learnt())
