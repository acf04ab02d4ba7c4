"""One file, fetched whole from whoever has it and checked as it comes.

A source that fails is left for the next one, which goes on where the file is; after a restart too. Whatever a source
says, nothing is believed but the digest. Knows nothing of what files are for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from strata.core.errors import Corrupt, StrataError, Unavailable
from strata.fleet.alarm import Alarm, AlarmSink
from strata.fleet.disk import require_room
from strata.provisioning.images.release import CHUNK
from strata.provisioning.replication.files import PIECE, SILENCE

log = logging.getLogger(__name__)

Read = Callable[[str, str, int, int], Awaitable[bytes]]
"""``read(controller, name, offset, length)``: bytes of a file there, fewer than ``length`` only where it ends."""

RATE = 200e6
"""Bytes a second, all files together: nodes that boot need the network too."""
SHUNNED = 600.0
"""Seconds for which a source is not asked again for a file that it gave wrongly."""
ASKED_LAST = 60.0
"""Seconds for which others are asked before a source that failed."""
_AGAIN = 1 << 20
"""Bytes that are hashed at once."""


FIRST, LAST = 1.0, 60.0
"""Seconds."""

Attempt = tuple[str, ...]
"""What was tried, with whom."""


class PuttingOff:
    """What failed lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[Attempt, tuple[float, float]] = {}

    def failed(self, what: Attempt) -> None:
        """It failed just now."""
        now = self._clock()
        self._until = {one: (until, waited) for one, (until, waited) in self._until.items() if now - until < LAST}
        wait = min(LAST, max(FIRST, 2 * self._until.get(what, (0.0, 0.0))[1]))
        self._until[what] = (now + wait, wait)

    def done(self, what: Attempt) -> None:
        """It went well."""
        self._until.pop(what, None)

    def seconds(self, what: Attempt) -> float:
        """How long it is still put off; 0: not at all."""
        return max(0.0, self._until.get(what, (0.0, 0.0))[0] - self._clock())

    @property
    def soonest(self) -> float:
        """Seconds until something is due; ``LAST`` where nothing is put off."""
        left = [self.seconds(what) for what in self._until]
        return min([wait for wait in left if wait > 0], default=LAST)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be fetched."""

    name: str
    """As ``files.Library`` knows it."""
    digest: str
    """Its SHA-256, in hexadecimal digits."""
    size: int | None = None
    """Its bytes; None: not known before."""
    most: int = 4 << 20
    """Bytes that it has at most, where its size is not known."""
    chunks: str = ""
    """The name of the list of its chunks' digests; empty: it has none."""


class Pace:
    """Holds all together to a rate."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = 0.0

    async def spent(self, size: int) -> None:
        """Wait until more may be fetched after ``size`` bytes."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + size / self._rate
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)


class Copier:
    """Fetches files."""

    def __init__(
        self,
        read: Read,
        alarm: AlarmSink,
        *,
        rate: float = RATE,
        silence: float = SILENCE,
        piece: int = PIECE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._alarm = alarm
        self._pace = Pace(rate)
        self._silence = silence
        self._piece = piece
        self._clock = clock
        self._shunned: dict[tuple[str, str], float] = {}
        """Source and file → until when it is not asked for it."""
        self._last: dict[str, float] = {}
        """Source → until when all others are asked before it."""

    async def copy(self, wanted: Wanted, part: Path, sources: Sequence[str], *, chunks: bytes = b"") -> None:
        """Fetch a file into ``part``, from one of ``sources``; ``Unavailable`` if none gave it. ``chunks``: the list of
        its chunks' digests, by which a wrong one is found at once. What is in ``part`` already is gone on from."""
        now = self._clock()
        self._shunned = {key: until for key, until in self._shunned.items() if until > now}
        reasons = []
        for source in sorted(sources, key=lambda source: self._last.get(source, now) > now):
            if (source, wanted.name) in self._shunned:
                reasons.append(f"{source} sent it with errors")
                continue
            try:
                await self._copy_from(source, wanted, part, chunks)
                return
            except Corrupt as error:
                self._shunned[source, wanted.name] = now + SHUNNED
                self._alarm(Alarm(kind="image-refused", message=f"{wanted.name}: {error.detail}", peer=source))
                reasons.append(error.detail)
            except (StrataError, TimeoutError) as error:
                self._last[source] = now + ASKED_LAST
                reasons.append(error.detail if isinstance(error, StrataError) else f"controller {source} is too slow")
            log.info("a file was not fetched", extra={"file": wanted.name, "source": source, "reason": reasons[-1]})
        raise Unavailable("; ".join(reasons) or "no controller has it", where=wanted.name)

    async def _copy_from(self, source: str, wanted: Wanted, part: Path, chunks: bytes) -> None:
        """From one source, the rest of the file."""
        done, offset = await asyncio.to_thread(_resumed, part, wanted, chunks)
        begun = offset
        if (wanted.size or 0) > offset:
            needed = (wanted.size or 0) - offset
            await asyncio.to_thread(require_room, part.parent, needed, part.name, "make room: strata image gc")
        while wanted.size is None or offset < wanted.size:
            length = self._piece if wanted.size is None else min(self._piece, wanted.size - offset)
            async with asyncio.timeout(self._silence):
                data = await self._read(source, wanted.name, offset, length)
            short = len(data) < length
            if len(data) > length or (short and wanted.size is not None):
                raise Corrupt(f"controller {source} gave {len(data)} bytes where there are {length}", where=wanted.name)
            if wanted.size is None and offset + len(data) > wanted.most:
                raise Corrupt(f"controller {source} gives more than {wanted.most} bytes", where=wanted.name)
            if chunks and not await asyncio.to_thread(_are_chunks, data, chunks, offset):
                raise Corrupt(f"controller {source} gave a wrong chunk", where=wanted.name)
            await asyncio.to_thread(_append, part, data, offset, done)
            offset += len(data)
            if short:
                break
            await self._pace.spent(len(data))
        if done.hexdigest() == wanted.digest:
            return
        part.unlink(missing_ok=True)
        if begun:  # what was there before may have been the wrong part of it
            await self._copy_from(source, wanted, part, chunks)
            return
        raise Corrupt(f"controller {source} gave something else", where=wanted.name)


def _resumed(part: Path, wanted: Wanted, chunks: bytes) -> tuple[hashlib._Hash, int]:
    """What an earlier attempt left, as far as it is of use: hashed again, and its bytes."""
    done = hashlib.sha256()
    try:
        with part.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            if wanted.size is None or size > wanted.size:
                size = 0  # whether one whose size nobody knows is whole cannot be seen
            if chunks:
                size -= size % CHUNK
            file.truncate(size)
            file.seek(0)
            while data := file.read(_AGAIN):
                done.update(data)
            return done, size
    except FileNotFoundError:
        return done, 0


def _append(part: Path, data: bytes, offset: int, done: hashlib._Hash) -> None:
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.seek(offset)
        file.write(data)
    done.update(data)


def _are_chunks(data: bytes, chunks: bytes, offset: int) -> bool:
    """Whether ``data``, which begins at ``offset`` (a chunk's beginning), is what the list says."""
    view = memoryview(data)
    for start in range(0, len(data), CHUNK):
        at = (offset + start) // CHUNK * 32
        if hashlib.sha256(view[start : start + CHUNK]).digest() != chunks[at : at + 32]:
            return False
    return True
