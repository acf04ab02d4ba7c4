"""What the registry's tests share: a small model, and a registry that follows its store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

import numpy as np

from strata.core.model import Layer, Model, Variable, values
from strata.core.node import Node
from strata.fleet.registry.changes import Changes
from strata.fleet.registry.edits import Edits
from strata.fleet.registry.registry import Registry
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Entry, Op, Page, Store

MODEL = Model.of(
    Layer(
        variables=(
            Variable(name="power", values=("off", "on")),
            Variable(name="image", open=True, lost_when={"os": values("down")}),
            Variable(name="os", values=("down", "up"), lost_when={"power": values("off")}),
        )
    )
)


def spec(name: str, **fields: object) -> Node:
    """A node to be created."""
    return Node(name=name, uid=0, **fields)  # type: ignore[arg-type]


class YieldingStore(MemoryStore):
    """Lets others run before every answer, as a store across a network does; so that writers do meet."""

    async def get(self, key: str) -> Entry | None:
        await asyncio.sleep(0)
        return await super().get(key)

    async def range(self, prefix: str, *, after: str = "", limit: int = 0, revision: int | None = None) -> Page:
        await asyncio.sleep(0)
        return await super().range(prefix, after=after, limit=limit, revision=revision)

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        await asyncio.sleep(0)
        return await super().txn(ops, expect=expect)


class Fleet:
    """A registry, its edits, and the changes that it has told so far."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.registry = Registry(store, MODEL)
        self.edits = Edits(self.registry, Ledger(store))
        self.told: list[Changes] = []

    async def settled(self) -> None:
        """Until the registry has seen everything that was written."""
        await self.registry.reached(await self.store.revision())

    def at(self, *names: str) -> np.ndarray:
        """The indices of nodes, in this order."""
        return np.array([self.registry.index_of(name) for name in names], dtype=np.int64)

    def names(self, nodes: np.ndarray) -> list[str]:
        """The names at indices, sorted."""
        return sorted(self.registry.names[index] for index in nodes.tolist())

    def goal(self, variable: str, name: str) -> tuple[str, ...]:
        """What is wanted of one node."""
        column = self.registry.desires.goals(variable)
        return column.table[column.codes[self.registry.index_of(name)]]

    async def create(self, *names: str) -> None:
        """Nodes with nothing but names."""
        results = await self.edits.create_nodes([spec(name) for name in names], "alice")
        assert all(result.ok for result in results)
        await self.settled()


@contextlib.asynccontextmanager
async def a_fleet(*names: str, store: Store | None = None) -> AsyncIterator[Fleet]:
    """A fleet with these nodes, whose registry follows the store."""
    fleet = Fleet(store or MemoryStore())
    fleet.told.append(await fleet.registry.load())

    async def follow() -> None:
        async for events in fleet.store.watch("", start=fleet.registry.revision + 1):
            fleet.told.append(fleet.registry.apply(events))

    task = asyncio.create_task(follow())
    try:
        if names:
            await fleet.create(*names)
        yield fleet
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if store is None:
            await fleet.store.close()
