"""Power policies as documents in the store, and which of their contents were rehearsed. At most one is enabled.

Keys: ``power/policy/NAME``, ``power/rehearsed/DIGEST``. What is refused, and to whom, is in ``service_policies``.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable

import msgspec

from strata.core.errors import Conflict, NotFound
from strata.power.policy import Policy
from strata.power.policy_file import parse
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Delete, Op, Put, Store

PREFIX = "power/policy/"
REHEARSED = "power/rehearsed/"


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One document, as it was put."""

    name: str
    text: str
    digest: str
    enabled: bool
    author: str
    time: float
    unrehearsed: str = ""
    """Why it was taken without a rehearsal; empty: there was one."""

    def policy(self) -> Policy:
        """What it says."""
        return _parsed(self.text, self.name)


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """That a content was rehearsed, and what came of it."""

    digest: str
    author: str
    time: float
    nodes: int
    days: float
    limit_w: float
    peak_w: float


class PolicyBook:
    """The records, level with the store."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._policies: dict[str, PolicyRecord] = {}
        self._rehearsed: dict[str, Rehearsal] = {}
        self._follow = Followed(store, PREFIX, self._take, self._policies.clear)
        self._follow_rehearsed = Followed(store, REHEARSED, self._take_rehearsed, self._rehearsed.clear)

    async def start(self) -> None:
        """Read all, and follow changes."""
        await self._follow.start()
        await self._follow_rehearsed.start()

    async def stop(self) -> None:
        """End that."""
        await self._follow.stop()
        await self._follow_rehearsed.stop()

    @property
    def policies(self) -> list[PolicyRecord]:
        """All, by name."""
        return [self._policies[name] for name in sorted(self._policies)]

    @property
    def enabled(self) -> PolicyRecord | None:
        """The one that runs."""
        return next((one for one in self._policies.values() if one.enabled), None)

    def get(self, name: str) -> PolicyRecord:
        """One of them, or ``NotFound``."""
        if name not in self._policies:
            raise NotFound(
                f"no such power policy: {name[:80]}", where="policy", hint="list them with: strata power policy list"
            )
        return self._policies[name]

    def rehearsal(self, digest: str) -> Rehearsal | None:
        """The newest rehearsal of a content."""
        return self._rehearsed.get(digest)

    async def put(self, record: PolicyRecord) -> PolicyRecord:
        """Create or replace. One that is enabled stays enabled, with its new content."""
        detail = {"digest": record.digest, "unrehearsed": record.unrehearsed}

        def kept(before: PolicyRecord | None) -> PolicyRecord:
            return msgspec.structs.replace(record, enabled=before is not None and before.enabled)

        return await self._change(record.author, record.name, "power-policy.put", kept, detail)

    async def enable(self, author: str, name: str, now: float) -> PolicyRecord:
        """Make it the one that runs; another that did is disabled, in the same transaction."""
        while True:
            found, revisions = await self._read()
            if name not in found:
                self.get(name)
            changed = [
                msgspec.structs.replace(one, enabled=one.name == name, author=author, time=now)
                for one in found.values()
                if one.enabled != (one.name == name)
            ]
            if not changed:
                return found[name]
            ops: list[Op] = [Put(PREFIX + one.name, msgspec.msgpack.encode(one)) for one in changed]
            expect = {PREFIX + key: revision for key, revision in revisions.items()}
            try:
                revision = await self._ledger.commit(author, "power-policy.enable", name, ops, expect)
            except Conflict:
                continue
            for one in changed:
                self._follow.wrote(PREFIX + one.name, msgspec.msgpack.encode(one), revision)
            return self.get(name)

    async def disable(self, author: str, name: str, now: float) -> PolicyRecord:
        """Let it run no longer. Caps stay as they are."""

        def off(before: PolicyRecord | None) -> PolicyRecord:
            return msgspec.structs.replace(before or self.get(name), enabled=False, author=author, time=now)

        return await self._change(author, name, "power-policy.disable", off, {})

    async def delete(self, author: str, name: str) -> None:
        """Remove it, unless it runs."""
        entry = await self._store.get(PREFIX + name)
        if entry is None or msgspec.msgpack.decode(entry.value, type=PolicyRecord).enabled:
            self.get(name)
            raise Conflict(
                "it runs", where=f"power policy {name}", hint=f"disable it first: strata power policy disable {name}"
            )
        key = PREFIX + name
        revision = await self._ledger.commit(author, "power-policy.delete", name, [Delete(key)], {key: entry.modified})
        self._follow.wrote(key, None, revision)

    async def note_rehearsal(self, rehearsal: Rehearsal) -> None:
        """Remember that a content was rehearsed."""
        key, value = REHEARSED + rehearsal.digest, msgspec.msgpack.encode(rehearsal)
        detail = {"nodes": rehearsal.nodes, "limit_w": rehearsal.limit_w, "peak_w": rehearsal.peak_w}
        revision = await self._ledger.commit(
            rehearsal.author, "power-policy.rehearse", rehearsal.digest[:16], [Put(key, value)], None, detail
        )
        self._follow_rehearsed.wrote(key, value, revision)

    async def _change(
        self,
        author: str,
        name: str,
        action: str,
        make: Callable[[PolicyRecord | None], PolicyRecord],
        detail: dict[str, str],
    ) -> PolicyRecord:
        key = PREFIX + name
        while True:
            entry = await self._store.get(key)
            record = make(None if entry is None else msgspec.msgpack.decode(entry.value, type=PolicyRecord))
            value = msgspec.msgpack.encode(record)
            expect = {key: 0 if entry is None else entry.modified}
            try:
                revision = await self._ledger.commit(author, action, name, [Put(key, value)], expect, detail)
            except Conflict:
                continue  # somebody was faster: again, on top of theirs
            self._follow.wrote(key, value, revision)
            return record

    async def _read(self) -> tuple[dict[str, PolicyRecord], dict[str, int]]:
        found, revisions = dict[str, PolicyRecord](), dict[str, int]()
        for entry in (await self._store.range(PREFIX)).entries:
            record = msgspec.msgpack.decode(entry.value, type=PolicyRecord)
            found[record.name], revisions[record.name] = record, entry.modified
        return found, revisions

    def _take(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(PREFIX)
        if value is None:
            self._policies.pop(name, None)
        else:
            self._policies[name] = msgspec.msgpack.decode(value, type=PolicyRecord)

    def _take_rehearsed(self, key: str, value: bytes | None) -> None:
        digest = key.removeprefix(REHEARSED)
        if value is None:
            self._rehearsed.pop(digest, None)
        else:
            self._rehearsed[digest] = msgspec.msgpack.decode(value, type=Rehearsal)


@functools.lru_cache(maxsize=64)
def _parsed(text: str, name: str) -> Policy:
    """It is asked for at every turn, and changes once a month."""
    return parse(text, source=name)


def digest_of(text: str) -> str:
    """What a content is known by: any change makes it another."""
    return hashlib.sha256(text.encode()).hexdigest()
