"""The one interface to durable state. Implementations: ``memory``, ``sqlite``, ``etcd``.

Keys are ``/``-separated text, values are bytes. Every change of the store has a *revision*, one more than the
last; all operations of one transaction share one. A reader who lists at revision r and then watches from
r + 1 sees every later change once, in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True):
    """A key as it stands."""

    key: str
    value: bytes
    created: int
    """Revision at which the key came to be (since it was last absent)."""
    modified: int
    """Revision of the last change: what compare-and-swap compares."""
    lease: int = 0


class Page(msgspec.Struct, frozen=True):
    """A part of a range, in key order, all read at one ``revision``."""

    entries: tuple[Entry, ...]
    revision: int
    more: bool


class Put(msgspec.Struct, frozen=True):
    """Write ``key``. With a lease it disappears when the lease does."""

    key: str
    value: bytes
    lease: int = 0


class Delete(msgspec.Struct, frozen=True):
    """Remove ``key``, if it is there."""

    key: str


Op = Put | Delete


class Event(msgspec.Struct, frozen=True):
    """One change. ``value`` is None when the key was deleted (or its lease ended)."""

    revision: int
    key: str
    value: bytes | None


class Store(Protocol):
    """Durable, ordered, shared. Everything that is acknowledged survives kill -9."""

    max_ops: int
    """The most operations that one transaction takes."""

    async def get(self, key: str) -> Entry | None:
        """The key as it stands, linearisable."""
        ...

    async def range(self, prefix: str, *, after: str = "", limit: int = 0, revision: int | None = None) -> Page:
        """Keys that begin with ``prefix`` and sort above ``after``; ``limit`` 0 is no limit. With ``revision``:
        as it was then (raises ``Compacted`` if that is gone)."""
        ...

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        """Do all of ``ops`` or nothing; return the new revision. ``expect`` maps keys to the ``modified``
        revision that each must have now (0: must not exist); otherwise ``Conflict``. No key occurs twice."""
        ...

    async def revision(self) -> int:
        """The newest revision."""
        ...

    def watch(self, prefix: str, *, start: int) -> AsyncIterator[Sequence[Event]]:
        """Changes under ``prefix`` from revision ``start`` on (0: from now), in order, without gap or repeat,
        in batches that never split a revision; reconnects by itself. Raises ``Compacted`` when ``start`` (or, for
        a consumer that is too slow, the next revision) is gone: list again. Close with ``aclose()``."""
        ...

    async def grant(self, ttl: float) -> int:
        """A new lease that ends ``ttl`` seconds after its last renewal (measured on the monotonic clock)."""
        ...

    async def renew(self, lease: int) -> bool:
        """Prolong the lease by its ttl; False if it has ended."""
        ...

    async def revoke(self, lease: int) -> None:
        """End the lease now; its keys go."""
        ...

    async def compact(self, revision: int) -> None:
        """Forget what only readers of revisions before ``revision`` could see."""
        ...

    async def backup(self, path: Path) -> int:
        """Write a consistent copy, while others write; return the revision that it holds."""
        ...

    async def check(self) -> list[str]:
        """Look at every stored byte; what is wrong, in words. Empty: sound."""
        ...

    async def close(self) -> None:
        """Let go of files, connections and tasks."""
        ...
