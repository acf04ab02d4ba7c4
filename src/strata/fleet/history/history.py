"""What each node was, when: an index by node of the store's transition log, in a local file.

The file holds nothing that the log does not; if it is missing, damaged or of another format it is made anew, and filled
again from what the store still has (``last_revision`` is then 0). Never blocks the event loop.
"""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw
import numpy as np
import numpy.typing as npt

from strata.core.errors import BadRequest, Compacted, Corrupt, Unavailable
from strata.core.nodeset import fold
from strata.core.texts import ListOf
from strata.fleet.history.file import HistoryFile
from strata.fleet.history.records import HistoryPage, ManyTransition, TransitionView
from strata.fleet.history.transitions import Transition
from strata.store.side_file import FileThread

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class History:
    """The index. Made by ``History.open``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last_revision = 0
        """The store's revision up to which everything is in: watch ``transition/`` from the next one on."""
        self._writer = _Worker(path)
        self._reader = _Worker(path)

    @classmethod
    async def open(cls, path: Path) -> History:
        """Open the index, or begin a new one where there is none that can be read."""
        history = cls(path)
        history.last_revision = await history._writer.run(lambda file: file.watermark())
        return history

    async def close(self) -> None:
        """Let go of the file and the threads."""
        await self._writer.close()
        await self._reader.close()

    async def append(self, batch: Sequence[tuple[int, Transition]], through: int = 0) -> int:
        """Add rows of the log, each with its revision, in order; how many node changes that was. What is in already is
        passed over. ``through``: a later revision up to which there are no more rows."""
        added = await self._writer.run(lambda file: file.append(batch, through))
        revisions = [revision for revision, _ in batch]
        self.last_revision = max(self.last_revision, through, *revisions[-1:])
        return added

    async def of_node(
        self,
        uid: int,
        *,
        since: float | None = None,
        until: float | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> HistoryPage:
        """A node's changes between two times (Unix, both inside), newest first. ``before`` is a page's ``next``."""
        low = float("-inf") if since is None else since
        high = float("inf") if until is None else until
        cursor = _cursor(before)
        rows = await self._reader.run(lambda file: file.of_node(uid, low, high, cursor, limit + 1))
        items = tuple(change for _, change in rows[:limit])
        return HistoryPage(items=items, next=str(rows[limit - 1][0]) if len(rows) > limit else None)

    async def of_nodes(
        self, names: Mapping[int, str], *, since: float | None = None, until: float | None = None, limit: int = 100
    ) -> ListOf[ManyTransition]:
        """Changes of several nodes (uid → name), newest first; one that several had together is told once."""
        low = float("-inf") if since is None else since
        high = float("inf") if until is None else until

        def look(file: HistoryFile) -> dict[int, tuple[TransitionView, list[str]]]:
            found: dict[int, tuple[TransitionView, list[str]]] = {}
            for uid, name in names.items():
                for seq, change in file.of_node(uid, low, high, None, limit):
                    found.setdefault(seq, (change, []))[1].append(name)
            return found

        found = await self._reader.run(look)
        newest = (found[seq] for seq in sorted(found, reverse=True)[:limit])
        return ListOf(items=tuple(ManyTransition.of(change, nodes=fold(whom)) for change, whom in newest))

    async def state_at(self, uid: int, time: float) -> dict[str, str]:
        """The value of every variable at a past time; a variable of which nothing was known by then is left out.
        ``Compacted`` beyond retention."""

        def look(file: HistoryFile) -> tuple[float, dict[str, str]]:
            return file.cut(), file.state_at(uid, time)

        cut, state = await self._reader.run(look)
        if time < cut:
            oldest = clock.strftime("%Y-%m-%d %H:%M:%SZ", clock.gmtime(cut))
            raise Compacted(
                "no history is kept from that time any more", where="time", hint=f"ask for {oldest} or later"
            )
        return state

    async def prune(self, before: float, living: npt.NDArray[np.int64] | None = None) -> int:
        """Drop what is older than ``before``; how many node changes went. The last values before it stay, so that
        ``state_at`` is right from there on; those of nodes that are not among the ``living`` uids go too. Done in
        slices: appends go on meanwhile."""
        await self._writer.run(lambda file: file.begin_prune(before))
        gone = 0
        for first in await self._writer.run(lambda file: list(file.slices())):
            gone += await self._writer.run(partial(_prune_slice, first=first, before=before, living=living))
        await self._writer.run(lambda file: file.end_prune(before))
        return gone


class _Worker:
    """The file in a thread, and what becomes of its errors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = FileThread("history", partial(_open, path))
        self.close = self._thread.close

    async def run(self, work: Callable[[HistoryFile], _T]) -> _T:
        try:
            return await self._thread.run(work)
        except (apsw.FullError, apsw.IOError, apsw.CantOpenError, apsw.BusyError, apsw.ReadOnlyError) as error:
            raise Unavailable(f"the history cannot be used now: {error}", where=self._path.name) from None
        except apsw.CorruptError as error:
            _damaged(self._path).touch()
            hint = "start the service anew: the history is then filled again from the store"
            raise Corrupt(f"the history is damaged: {error}", where=self._path.name, hint=hint) from None


def _prune_slice(file: HistoryFile, first: int, before: float, living: npt.NDArray[np.int64] | None) -> int:
    return file.prune_slice(first, before, living)


def _open(path: Path) -> HistoryFile:
    if not _damaged(path).exists():
        try:
            file = HistoryFile(path)
            file.watermark()
            return file
        except (apsw.NotADBError, apsw.CorruptError):
            log.warning("the history is damaged and is begun anew", extra={"file": path.name})
    # Nothing is lost: it is an index of the store's log.
    for part in (path, Path(f"{path}-wal"), Path(f"{path}-shm"), _damaged(path)):
        part.unlink(missing_ok=True)
    return HistoryFile(path)


def _damaged(path: Path) -> Path:
    """Is there when damage was met in use: the file is not trusted at the next start."""
    return Path(f"{path}-damaged")


def _cursor(text: str | None) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20 and (number := int(text)) < 2**63:
        return number
    raise BadRequest("not a cursor of this list", where="cursor", hint="begin again without it")
