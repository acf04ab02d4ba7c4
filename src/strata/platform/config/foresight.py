"""The fleet's description as it would be after a write: read from the store, with the write on top. Nothing is written.

What documents select, which of them rules and what follows from a group is worked out by the registry itself, so that a
plan and what happens cannot differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from strata.core.model import Model
from strata.fleet.registry.registry import PREFIXES, Registry
from strata.store.protocol import Event, Op, Put, Store

_FEW = 1000
"""Up to so many nodes are read one by one."""


async def foreseen(store: Store, model: Model, ops: Sequence[Op], *, whole: bool = False) -> Registry:
    """A registry of its own, as if ``ops`` had been written. Where they are about a few nodes and nothing else, only
    those are in it, unless it must be ``whole``: what is wanted of a node depends on no other."""
    few = {op.key for op in ops if op.key.startswith("node/")}
    only = not whole and len(few) <= _FEW and not any(op.key.startswith(PREFIXES) and op.key not in few for op in ops)
    events: list[Event] = []
    revision: int | None = None
    for prefix in PREFIXES:
        if only and prefix == "node/":
            continue  # what is written stands in for what is there
        page = await store.range(prefix, revision=revision)
        revision = page.revision if revision is None else revision
        events += [Event(entry.modified, entry.key, entry.value) for entry in page.entries]
    after = (revision or 0) + 1
    events += [Event(after, op.key, op.value if isinstance(op, Put) else None) for op in ops]
    # In a thread: with 100,000 nodes it takes a second or two, and others go on meanwhile.
    return await asyncio.to_thread(_made, store, model, events)


def _made(store: Store, model: Model, events: Sequence[Event]) -> Registry:
    registry = Registry(store, model)
    registry.apply(events)
    return registry
