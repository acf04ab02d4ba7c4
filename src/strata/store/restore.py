"""Bringing a store back from a backup."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, cast

from strata.core.errors import Corrupt, Refused
from strata.store.dump import check_dump, read_dump
from strata.store.open import open_store
from strata.store.protocol import Entry, Store
from strata.store.sqlite.file import set_aside

JUMP = 1_000_000
"""How far a restored store's revisions begin above all that is known to have been given. What was written after the
backup is lost, but its revisions may live on as fences and bookmarks, and must not be given again."""


class Loadable(Store, Protocol):
    """A store that can be filled at once. Every store of Strata's can."""

    async def load(self, entries: Iterable[Entry], above: int, *, overwrite: bool = False) -> None:
        """Hold ``entries`` and nothing else, at a revision above ``above`` and above its own."""
        ...


async def restore(path: Path, url: str, *, overwrite: bool = False) -> int:
    """Fill the store at ``url`` with the backup ``path``; return the new revision.

    The backup is checked first. A store that holds anything is refused unless ``overwrite``; a damaged SQLite store is
    then set aside, not deleted. Nobody else may be using the store meanwhile: while a controller is alive on a shared
    store, it is refused. (A SQLite store is one machine's; who runs there is the caller's to know.)
    """
    header = await asyncio.to_thread(check_dump, path)
    above = header.revision
    try:
        store = cast("Loadable", open_store(url))
    except Corrupt:
        if not overwrite:
            raise
        above = max(above, set_aside(Path(url.removeprefix("sqlite:"))))
        store = cast("Loadable", open_store(url))
    try:
        members = await store.range("controller/") if not url.startswith("sqlite:") else None
        if members is not None and members.entries:
            names = ", ".join(entry.key.removeprefix("controller/") for entry in members.entries)
            raise Refused(
                f"controllers work on this store: {names}",
                by="restore",
                where=url,
                hint="stop them first, on every machine",
            )
        await store.load(read_dump(path), above + JUMP, overwrite=overwrite)
        return await store.revision()
    finally:
        await store.close()
