"""From a store's address to the store."""

from __future__ import annotations

from pathlib import Path

from strata.core.errors import BadRequest
from strata.store.protocol import Store

FORMS = "memory:, sqlite:PATH or etcd://HOST:PORT[,HOST:PORT...][/PREFIX]"


def open_store(url: str) -> Store:
    """The store that ``url`` names: ``memory:``, ``sqlite:PATH``, ``etcd://host:port,host:port/prefix``.

    Parts that a store needs are imported only when it is asked for.
    """
    kind, colon, rest = url.partition(":")
    if kind == "memory" and colon and not rest:
        from strata.store.memory import MemoryStore

        return MemoryStore()
    if kind == "sqlite" and rest:
        from strata.store.sqlite.store import SqliteStore

        return SqliteStore(Path(rest))
    if kind == "etcd" and rest.startswith("//"):
        from strata.store.etcd.store import EtcdStore

        return EtcdStore.from_url(url)
    raise BadRequest(f"is no address of a store; use {FORMS}", where=repr(url)[:200])
