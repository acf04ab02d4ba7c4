"""Holds and freezes: what a person puts on a node so that nothing acts on it, and takes off again."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from strata.core import intset
from strata.core.errors import BadRequest, Conflict, NotFound
from strata.core.node import Freeze, Hold
from strata.fleet.columns import NOBODY, Indices
from strata.fleet.history.transitions import FactChange
from strata.fleet.registry.editor import NOTES, Done, Editor, absent, check_words, encode, folded
from strata.store.protocol import Delete, Op, Put
from strata.store.records import ATTEMPTS, too_contended

HOLD = "hold"
"""The name under which the history of nodes has holds and releases."""

RETRY = "retry"
"""The key of the last request to forget failures: runs of uids."""


class BrakeEdits(Editor):
    """Writes to ``hold/``, ``freeze/`` and ``retry``."""

    async def hold(self, nodes: Indices, reason: str, author: str) -> Done:
        """Take nodes out of automation. Those that are held already keep their hold and its author."""
        reason = check_words("reason", reason)
        record = encode(Hold(reason=reason, author=author, since=time.time()))
        return await self._each(
            nodes, "hold.set", author, lambda key, there: None if there else Put(key, record), f"held: {reason}"
        )

    async def release(self, nodes: Indices, author: str) -> Done:
        """Give nodes back to automation. Only the holds that are seen now are taken off."""
        return await self._each(
            nodes, "hold.release", author, lambda key, there: Delete(key) if there else None, "released"
        )

    async def freeze(self, scope: str, reason: str, author: str) -> int:
        """Put the brake on for ``fleet``, ``group:NAME`` or ``node:NAME``; again is fine. The new revision."""
        self._check_scope(scope)
        record = Freeze(scope=scope, reason=check_words("reason", reason), author=author, since=time.time())
        detail = {"reason": record.reason}
        return await self.ledger.commit(
            author, "freeze.set", scope, [Put(f"freeze/{scope}", encode(record))], None, detail
        )

    async def thaw(self, scope: str, author: str) -> int:
        """Take the brake off; ``NotFound`` if it is not on."""
        key = f"freeze/{scope}"
        entry = await self.store.get(key)
        if entry is None:
            raise NotFound("it is not frozen", where=scope[:80], hint="list the freezes with: strata freeze --list")
        return await self.ledger.commit(author, "freeze.thaw", scope, [Delete(key)], {key: entry.modified})

    async def retry(self, nodes: Indices, author: str) -> Done:
        """Ask every controller to forget the failures of nodes. What they have learnt is in their memory, so the
        request is a row that they all watch."""
        if not len(nodes):
            return Done(NOBODY, self.registry.revision)
        names = folded(self.registry.names[index] for index in nodes.tolist())
        runs = encode(intset.pack(self.registry.uids[nodes]))
        revision = await self.ledger.commit(author, "node.retry", names, [Put(RETRY, runs)])
        return Done(nodes, revision)

    def _check_scope(self, scope: str) -> None:
        kind, _, name = scope.partition(":")
        if scope == "fleet":
            return
        if kind == "group" and name:
            self.registry.groups.mask(name)
        elif kind == "node" and name:
            self.registry.index_of(name)
        else:
            raise BadRequest("a scope is fleet, group:NAME or node:NAME", where=repr(scope)[:80])

    async def _each(
        self, nodes: Indices, action: str, author: str, change: Callable[[str, bool], Op | None], words: str
    ) -> Done:
        """Change the holds of many nodes in several commits. One that somebody else changed meanwhile is left alone.
        ``words``: what the history of the nodes says of it."""
        names = {f"hold/{self.registry.names[index]}": index for index in nodes.tolist()}
        seen = await self._holds(list(names))
        left = [op for key in names if (op := change(key, key in seen)) is not None]
        changed: list[int] = []
        revision, attempts = self.registry.revision, 0
        while left:
            batch = next(self.batches(left, NOTES))
            expect = {op.key: seen.get(op.key, 0) for op in batch}
            target = folded(op.key.removeprefix("hold/") for op in batch)
            uids = self.registry.uids[[names[op.key] for op in batch]]
            notes = self.noted([FactChange(HOLD, "", words, author, "", uids)])
            expect |= absent(notes)
            try:
                revision = await self.ledger.commit(
                    author, action, target, [*batch, *notes], expect, {"count": len(batch)}
                )
            except Conflict:
                attempts += 1
                if attempts > ATTEMPTS:
                    raise too_contended("holds") from None
                now = await self._holds([op.key for op in left])
                left = [op for op in left if now.get(op.key, 0) == seen.get(op.key, 0)]
                continue
            changed.extend(names[op.key] for op in batch)
            left = left[len(batch) :]
        return Done(np.array(sorted(changed), dtype=np.int64) if changed else NOBODY, revision)

    async def _holds(self, keys: list[str]) -> dict[str, int]:
        """The revisions of those holds that exist, read now."""
        if len(keys) <= 16:
            return {key: entry.modified for key, entry in (await self.present(keys)).items()}
        page = await self.store.range("hold/")
        wanted = set(keys)
        return {entry.key: entry.modified for entry in page.entries if entry.key in wanted}
