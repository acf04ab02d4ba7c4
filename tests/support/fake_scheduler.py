"""A workload manager that behaves: it drains, begins jobs where it may, is slow, fails, and forgets nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from strata.core.errors import StrataError
from strata.schedulers.protocol import NodeSeen

IDLE = NodeSeen(state="idle", understood=True, drained=False)


class FakeScheduler:
    """Implements ``strata.schedulers.protocol.Scheduler``."""

    def __init__(self, *names: str) -> None:
        self.nodes: dict[str, NodeSeen] = dict.fromkeys(names, IDLE)
        self.looks = 0
        self.told: list[tuple[str, ...]] = []
        """What was done, to whom: ``("drain", "n1", "n2")``."""
        self.reasons: list[str] = []
        self.error: StrataError | None = None
        """Instead of every answer."""
        self.refuses: StrataError | None = None
        """Instead of doing what it is told."""
        self.gate: asyncio.Event | None = None
        """Looks do not come back before it is set."""
        self.looking = asyncio.Event()
        """Set when a look has begun."""

    def be(self, name: str, **more: object) -> None:
        """Something happens there by itself."""
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], **more)

    async def look(self) -> Mapping[str, NodeSeen]:
        self.looks += 1
        found = dict(self.nodes)
        self.looking.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return found

    async def drain(self, names: Sequence[str], reason: str) -> None:
        self._do("drain", names)
        self.reasons.append(reason)
        for name in names:
            self.be(name, drained=True, ours=True, reason=reason, by="root")

    async def resume(self, names: Sequence[str]) -> None:
        self._do("resume", names)
        for name in names:
            assert self.nodes[name].ours, "only what is ours is resumed"
            self.be(name, drained=False, ours=False, reason="", by="")

    def _do(self, what: str, names: Sequence[str]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.told.append((what, *names))
