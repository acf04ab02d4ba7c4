"""The store for many machines: an etcd v3 cluster, spoken to through its JSON gateway.

Etcd's own revisions are used, plus a constant that is 0 until a backup is restored into the cluster (a restored store's
revisions must go on from the backup's). A transaction whose answer was lost is tried again only in a form that
cannot happen twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from strata.core.errors import BadRequest, Compacted, NotFound, OutcomeUnknown, StrataError, Unavailable
from strata.core.urls import refuse_login
from strata.store.dump import DumpWriter
from strata.store.etcd import watch
from strata.store.etcd.gateway import (
    AlreadyThere,
    EtcdSettings,
    Gateway,
    NotAsked,
    OutOfRange,
    Retry,
    TooBig,
    Unanswered,
)
from strata.store.etcd.wire import (
    AlarmReply,
    KeepAlive,
    LeaseReply,
    Names,
    RangeReply,
    TxnReply,
    seal,
    to_entry,
    unseal,
)
from strata.store.keys import check_txn, compacted, conflict, in_future, not_empty
from strata.store.lease import check_ttl, lease_gone, new_lease_id
from strata.store.protocol import Delete, Entry, Event, Op, Page, Put

PAGE_BYTES = 2 << 20
"""What one reply of a large range should weigh; the gateway passes on 4 MiB."""


class _Meta(msgspec.Struct):
    offset: int = 0
    restoring: bool = False


class EtcdStore:
    """Keys under ``/prefix/`` of an etcd cluster."""

    max_ops = 128

    def __init__(self, endpoints: Sequence[str], prefix: str = "strata", settings: EtcdSettings | None = None) -> None:
        self._gateway = Gateway(list(endpoints), settings or EtcdSettings())
        self._names = Names(prefix)
        self._offset: int | None = None
        self._newest = 0
        self._closed = False

    @classmethod
    def from_url(cls, url: str) -> EtcdStore:
        """From ``etcd://host:port,host:port/prefix``."""
        hosts, _, prefix = url.removeprefix("etcd://").partition("/")
        refuse_login(url, "--store", hint="Strata knows no logins of etcd: let it in by its address")
        endpoints = [host for host in hosts.split(",") if host]
        if not endpoints or not all(host.rpartition(":")[2].isdigit() for host in endpoints):
            raise BadRequest("give etcd://HOST:PORT[,HOST:PORT...][/PREFIX]", where=repr(url)[:200])
        return cls(endpoints, prefix.strip("/") or "strata")

    async def get(self, key: str) -> Entry | None:
        offset = await self._ready()
        reply = await self._range({"key": self._names.key(key)})
        return to_entry(self._names, reply.kvs[0], offset) if reply.kvs else None

    async def range(self, prefix: str, *, after: str = "", limit: int = 0, revision: int | None = None) -> Page:
        while True:
            entries: list[Entry] = []
            at, more = 0, False
            try:
                async for page in self._pages(prefix, after=after, limit=limit, revision=revision):
                    entries += page.entries
                    at, more = page.revision, page.more
                return Page(tuple(entries), at, more)
            except Compacted:
                # Compacted between two pages: the caller asked for now, and now is later.
                if revision is not None:
                    raise

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        check_txn(ops, expect, self.max_ops)
        expect = expect or {}
        offset = await self._ready()
        # The first key to be changed must not have changed since: so the transaction can be sent twice, not done twice.
        guard = ops[0].key if ops and len(expect) < self.max_ops and not any(op.key in expect for op in ops) else None
        since = self._newest
        retry = Retry(self._gateway)
        while True:
            endpoint = self._gateway.current()
            try:
                reply = await self._gateway.once(
                    endpoint, "/v3/kv/txn", self._txn_body(ops, expect, offset, guard, since), TxnReply
                )
            except (NotAsked, Unanswered) as error:
                await retry.after(endpoint, error)
                continue
            except TooBig as error:
                raise BadRequest(f"the transaction is too large for etcd: {error}", hint="split it") from error
            except NotFound as error:
                raise lease_gone(next(op.lease for op in ops if isinstance(op, Put) and op.lease)) from error
            self._newest = max(self._newest, reply.header.revision)
            if reply.succeeded:
                return reply.header.revision + offset
            if retry.doubtful:
                return await self._settle(ops, since) + offset
            self._raise_conflict(expect, reply, offset)
            since = self._newest  # Only our guard refused: somebody else wrote the key before we did.

    async def revision(self) -> int:
        offset = await self._ready()
        return (await self._range({"key": self._names.meta, "count_only": True})).header.revision + offset

    async def watch(self, prefix: str, *, start: int) -> AsyncIterator[Sequence[Event]]:
        try:
            offset = await self._ready()
            start = start or await self.revision() + 1
            stream = watch.follow(self._gateway, self._names, prefix, start, offset)
            async with contextlib.aclosing(stream):
                async for events in stream:
                    yield events
        except Unavailable:
            if not self._closed:
                raise

    async def grant(self, ttl: float) -> int:
        check_ttl(ttl)
        lease = new_lease_id()
        with contextlib.suppress(AlreadyThere):  # by an earlier attempt of ours, whose answer was lost
            await self._gateway.ask("/v3/lease/grant", {"TTL": str(math.ceil(ttl)), "ID": str(lease)}, LeaseReply)
        return lease

    async def renew(self, lease: int) -> bool:
        reply = await self._gateway.ask("/v3/lease/keepalive", {"ID": str(lease)}, KeepAlive)
        return reply.result.ttl > 0

    async def revoke(self, lease: int) -> None:
        with contextlib.suppress(NotFound):  # it had ended
            await self._gateway.ask("/v3/lease/revoke", {"ID": str(lease)}, LeaseReply)

    async def compact(self, revision: int) -> None:
        offset = await self._ready()
        newest = await self.revision()
        if revision > newest:
            raise in_future(revision, newest)
        if revision - offset < 1:
            return
        with contextlib.suppress(OutOfRange):  # that, or more, was compacted before
            await self._gateway.ask("/v3/kv/compaction", {"revision": str(revision - offset)}, RangeReply)

    async def backup(self, path: Path) -> int:
        revision = await self.revision()
        writer = await asyncio.to_thread(DumpWriter, path, revision)
        try:
            async for page in self._pages("", revision=revision):
                await asyncio.to_thread(writer.add, page.entries)
            await asyncio.to_thread(writer.finish)
        except BaseException:
            writer.abandon()
            raise
        return revision

    async def check(self) -> list[str]:
        await self._ready()
        alarms = await self._gateway.ask("/v3/maintenance/alarm", {"action": "GET"}, AlarmReply)
        found = [f"etcd has raised the alarm {alarm.alarm}" for alarm in alarms.alarms]
        revision = await self.revision() - (self._offset or 0)
        digests: dict[str, str] = {}
        for endpoint in self._gateway.endpoints:
            try:
                digests[endpoint] = await self._check_when_there(endpoint, revision, found)
            except (NotAsked, Unanswered, OutOfRange, StrataError) as error:
                found.append(f"member {endpoint} cannot be read through: {error}")
        if len(set(digests.values())) > 1:
            found.append(
                f"members differ at revision {revision}: {', '.join(f'{e} {d[:8]}' for e, d in digests.items())}"
            )
        return found

    async def close(self) -> None:
        self._closed = True
        await self._gateway.close()

    async def load(self, entries: Iterable[Entry], above: int, *, overwrite: bool = False) -> None:
        """Hold ``entries`` and nothing else, at a revision above ``above``; for restoring. Nobody else may use
        the store meanwhile. Not one transaction: until it is done the store refuses to be used."""
        meta = await self._read_meta()
        offset = self._offset = meta.offset
        page = await self.range("", limit=1)
        if page.entries and not overwrite and not meta.restoring:
            raise not_empty(page.entries[0].key)
        await self._put_meta(_Meta(offset, restoring=True))
        everything = {"key": self._names.key(""), "range_end": self._names.end("")}
        await self._gateway.ask("/v3/kv/deleterange", everything, RangeReply)
        batch: list[Op] = []
        size = 0
        for entry in entries:
            batch.append(Put(entry.key, entry.value))
            size += len(entry.key) + len(entry.value)
            if len(batch) == self.max_ops or size > PAGE_BYTES // 4:
                await self.txn(batch)
                batch, size = [], 0
        await self.txn(batch)
        self._offset = offset + max(0, above - await self.revision())
        await self._put_meta(_Meta(self._offset))

    async def _ready(self) -> int:
        if self._offset is None:
            meta = await self._read_meta()
            if meta.restoring:
                raise Unavailable(
                    "a restore into this store did not finish", where=self._gateway.where, hint="restore it again"
                )
            self._offset = meta.offset
        return self._offset

    async def _read_meta(self) -> _Meta:
        reply = await self._range({"key": self._names.meta})
        return msgspec.json.decode(unseal("meta", reply.kvs[0].value), type=_Meta) if reply.kvs else _Meta()

    async def _put_meta(self, meta: _Meta) -> None:
        value = seal("meta", msgspec.json.encode(meta))
        await self._gateway.ask("/v3/kv/put", {"key": self._names.meta, "value": value}, RangeReply)

    async def _range(self, body: dict[str, Any]) -> RangeReply:
        try:
            reply = await self._gateway.ask("/v3/kv/range", body, RangeReply)
        except OutcomeUnknown as error:
            raise Unavailable(error.detail, where=error.where, hint=error.hint) from error
        self._newest = max(self._newest, reply.header.revision)
        return reply

    async def _pages(
        self, prefix: str, *, after: str = "", limit: int = 0, revision: int | None = None
    ) -> AsyncIterator[Page]:
        """The range in pieces that the gateway passes on, all at one revision."""
        offset = await self._ready()
        at = 0 if revision is None else revision - offset
        if revision is not None and at < 1:
            raise compacted(revision, offset + 1)
        start = max(self._names.key(prefix), self._names.key(after) + b"\0") if after else self._names.key(prefix)
        size, left = 500, limit
        while True:
            ask = min(size, left) if limit else size
            body = {"key": start, "range_end": self._names.end(prefix), "limit": str(ask), "revision": str(at)}
            try:
                reply = await self._range(body)
            except TooBig:
                size = max(1, size // 4)
                continue
            except OutOfRange as error:
                if error.compacted:
                    oldest = await watch.compacted_revision(self._gateway, self._names)
                    raise compacted(at + offset, oldest + offset) from error
                raise in_future(at + offset, await self.revision()) from error
            at = at or reply.header.revision
            left -= len(reply.kvs)
            yield Page(tuple(to_entry(self._names, kv, offset) for kv in reply.kvs), at + offset, reply.more)
            if not reply.more or (limit and left <= 0):
                return
            start = reply.kvs[-1].key + b"\0"
            weight = sum(len(kv.value) + len(kv.key) for kv in reply.kvs) // len(reply.kvs)
            size = max(1, min(5000, PAGE_BYTES // (weight + 64)))

    def _txn_body(
        self, ops: Sequence[Op], expect: Mapping[str, int], offset: int, guard: str | None, since: int
    ) -> dict[str, Any]:
        name = self._names.key
        compare: list[dict[str, Any]] = [
            {"key": name(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(max(0, revision - offset))}
            for key, revision in expect.items()
        ]
        if guard is not None:
            compare.append({"key": name(guard), "target": "MOD", "result": "LESS", "mod_revision": str(since + 1)})
        success: list[dict[str, Any]] = [
            {"request_put": {"key": name(op.key), "value": seal(op.key, op.value), "lease": str(op.lease)}}
            if isinstance(op, Put)
            else {"request_delete_range": {"key": name(op.key)}}
            for op in ops
        ]
        failure = [{"request_range": {"key": name(key), "keys_only": True}} for key in expect]
        return {"compare": compare, "success": success, "failure": failure}

    def _raise_conflict(self, expect: Mapping[str, int], reply: TxnReply, offset: int) -> None:
        for (key, expected), part in zip(expect.items(), reply.responses, strict=True):
            kvs = part.response_range.kvs if part.response_range else []
            found = kvs[0].mod_revision + offset if kvs else 0
            if found != expected:
                raise conflict(key, expected, found)

    async def _settle(self, ops: Sequence[Op], since: int) -> int:
        """An attempt of which we do not know, and a later one was refused: did the first happen? It did if what it
        would have written is there, all of it at one revision."""
        gets = [{"request_range": {"key": self._names.key(op.key)}} for op in ops]
        reply = await self._gateway.ask("/v3/kv/txn", {"success": gets}, TxnReply)
        revisions = set()
        for op, part in zip(ops, reply.responses, strict=True):
            kvs = part.response_range.kvs if part.response_range else []
            if isinstance(op, Delete) is bool(kvs) or (kvs and kvs[0].value != seal(op.key, getattr(op, "value", b""))):
                revisions.add(-1)
            elif kvs:
                revisions.add(kvs[0].mod_revision)
        if len(revisions) == 1 and (revision := revisions.pop()) > since:
            return revision
        raise OutcomeUnknown(
            "the answer to a transaction was lost and others wrote meanwhile",
            where=self._gateway.where,
            hint="read before trying again",
        )

    async def _check_when_there(self, endpoint: str, revision: int, found: list[str]) -> str:
        """Check a member; one that is a little behind gets the time to come to that revision."""
        settings, clock = self._gateway.settings, asyncio.get_running_loop().time
        deadline = clock() + settings.patience
        while True:
            try:
                return await self._check_member(endpoint, revision, found)
            except OutOfRange as error:
                if error.compacted or clock() > deadline:
                    raise
            await asyncio.sleep(settings.pause)

    async def _check_member(self, endpoint: str, revision: int, found: list[str]) -> str:
        """Read what one member itself has, verify it, and return its digest."""
        digest = hashlib.sha256()
        start = self._names.key("")
        while True:
            body = {
                "key": start,
                "range_end": self._names.end(""),
                "limit": "200",
                "revision": str(revision),
                "serializable": True,
            }
            reply = await self._gateway.once(endpoint, "/v3/kv/range", body, RangeReply)
            for kv in reply.kvs:
                digest.update(kv.key + b"\0" + kv.value)
                try:
                    to_entry(self._names, kv, 0)
                except StrataError as error:
                    found.append(f"member {endpoint}: {error}")
            if not reply.more:
                return digest.hexdigest()
            start = reply.kvs[-1].key + b"\0"
