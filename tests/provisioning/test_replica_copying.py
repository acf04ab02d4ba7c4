"""Fetching one file from sources that fail, stall, lie and die midway: what arrives is the file, or nothing."""

from __future__ import annotations

import asyncio
import hashlib
import random
from pathlib import Path

import pytest

from strata.core.errors import NotFound, Unavailable
from strata.fleet.alarm import Alarm
from strata.provisioning.images.release import CHUNK
from strata.provisioning.replication.copying import Copier, Wanted

DATA = random.Random(7).randbytes(5 * CHUNK + 1000)
CHUNKS = b"".join(hashlib.sha256(DATA[at : at + CHUNK]).digest() for at in range(0, len(DATA), CHUNK))
FILE = Wanted(name="blobs/x", digest=hashlib.sha256(DATA).hexdigest(), size=len(DATA))
SMALL = Wanted(name="blobs/y", digest=hashlib.sha256(b"small").hexdigest(), most=100)


class Source:
    """Gives ``DATA``, unless told otherwise."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data = data
        self.offsets: list[int] = []
        self.dies_at: int | None = None
        self.stalls = False
        self.lacks = False

    async def read(self, offset: int, length: int) -> bytes:
        self.offsets.append(offset)
        if self.lacks:
            raise NotFound("it is not on this controller")
        if self.stalls:
            await asyncio.Event().wait()
        if self.dies_at is not None and offset >= self.dies_at:
            raise Unavailable("broke off")
        return self.data[offset : offset + length]


class Site:
    """Sources by name, and a copier over them."""

    def __init__(self, directory: Path, **sources: Source) -> None:
        self.sources = sources
        self.part = directory / "part"
        self.alarms: list[Alarm] = []
        self.now = 0.0
        self.copier = self.another()

    def another(self, **options: float) -> Copier:
        async def read(source: str, name: str, offset: int, length: int) -> bytes:
            return await self.sources[source].read(offset, length)

        return Copier(read, self.alarms.append, silence=0.1, piece=CHUNK, clock=lambda: self.now, **options)

    async def copy(self, wanted: Wanted = FILE, *, chunks: bytes = b"") -> bytes:
        await self.copier.copy(wanted, self.part, list(self.sources), chunks=chunks)
        return self.part.read_bytes()


async def test_a_file_arrives_whole_with_and_without_its_size_and_its_chunks(tmp_path: Path) -> None:
    site = Site(tmp_path, a=Source())
    assert await site.copy() == DATA
    site.part.unlink()
    assert await site.copy(chunks=CHUNKS) == DATA
    site.part.unlink()
    site.sources["a"].data = b"small"
    assert await site.copy(SMALL) == b"small"
    assert site.part.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("trouble", ["lacks", "stalls"])
async def test_a_source_that_lacks_it_or_stalls_is_left_for_the_next(tmp_path: Path, trouble: str) -> None:
    site = Site(tmp_path, a=Source(), b=Source())
    setattr(site.sources["a"], trouble, True)
    assert await site.copy() == DATA
    assert site.sources["a"].offsets == [0]
    assert not site.alarms


async def test_a_source_that_dies_midway_is_gone_on_from_by_the_next(tmp_path: Path) -> None:
    site = Site(tmp_path, a=Source(), b=Source())
    site.sources["a"].dies_at = 3 * CHUNK
    assert await site.copy() == DATA
    assert site.sources["b"].offsets == [3 * CHUNK, 4 * CHUNK, 5 * CHUNK]


async def test_it_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    site = Site(tmp_path, a=Source())
    site.sources["a"].dies_at = 4 * CHUNK
    with pytest.raises(Unavailable, match="broke off"):
        await site.copy()
    site.sources["a"] = Source()
    site.copier = site.another()
    assert await site.copy() == DATA
    assert site.sources["a"].offsets == [4 * CHUNK, 5 * CHUNK]


async def test_a_wrong_chunk_is_found_at_once_and_its_source_is_told_of_and_not_asked_again(tmp_path: Path) -> None:
    wrong = bytearray(DATA)
    wrong[2 * CHUNK + 5] ^= 1
    site = Site(tmp_path, a=Source(bytes(wrong)), b=Source())
    assert await site.copy(chunks=CHUNKS) == DATA
    assert (site.sources["a"].offsets[-1], site.sources["b"].offsets[0]) == (2 * CHUNK, 2 * CHUNK)
    assert [(alarm.kind, alarm.peer) for alarm in site.alarms] == [("image-refused", "a")]
    site.part.unlink()
    del site.sources["b"]
    with pytest.raises(Unavailable, match="a sent it with errors"):
        await site.copy(chunks=CHUNKS)
    site.now = 601.0  # by then somebody may have mended it
    site.sources["a"].data = DATA
    assert await site.copy(chunks=CHUNKS) == DATA


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie", [bytes(len(DATA)), DATA + b"x", DATA[:-1], b"", DATA[:CHUNK] + bytes(CHUNK) + DATA[2 * CHUNK :]]
)
async def test_of_a_lie_nothing_is_left_but_an_alarm(tmp_path: Path, lie: bytes) -> None:
    """More than there is cannot be told from the file: no more than its size is ever asked for."""
    site = Site(tmp_path, a=Source(lie))
    if lie[: len(DATA)] == DATA:
        assert await site.copy() == DATA
        return
    with pytest.raises(Unavailable):
        await site.copy()
    assert [alarm.peer for alarm in site.alarms] == ["a"]
    site.sources["b"] = Source()
    assert await site.copy() == DATA


async def test_who_goes_on_from_anothers_wrong_beginning_is_not_blamed_for_it(tmp_path: Path) -> None:
    liar = Source(bytes(len(DATA)))
    liar.dies_at = 2 * CHUNK
    site = Site(tmp_path, a=liar, b=Source())
    assert await site.copy() == DATA
    assert not site.alarms
    assert site.sources["b"].offsets[:5] == [2 * CHUNK, 3 * CHUNK, 4 * CHUNK, 5 * CHUNK, 0]


async def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path, a=Source(bytes(10 * CHUNK)))
    with pytest.raises(Unavailable, match="more than 100 bytes"):
        await site.copy(SMALL)


async def test_a_source_that_gives_more_than_was_asked_for_is_refused(tmp_path: Path) -> None:
    async def read(source: str, name: str, offset: int, length: int) -> bytes:
        return bytes(length + 1)

    alarms: list[Alarm] = []
    with pytest.raises(Unavailable, match="bytes where there are"):
        await Copier(read, alarms.append).copy(FILE, tmp_path / "part", ["a"])
    assert len(alarms) == 1


async def test_nothing_is_fetched_where_the_disk_has_no_room(tmp_path: Path) -> None:
    site = Site(tmp_path, a=Source())
    huge = Wanted(name="blobs/z", digest="00", size=1 << 60)
    with pytest.raises(Unavailable, match="there is no room for 1048576 TiB"):
        await site.copy(huge)
    assert site.sources["a"].offsets == []


@pytest.mark.slow
async def test_all_files_together_keep_to_the_rate(tmp_path: Path) -> None:
    site = Site(tmp_path, a=Source())
    copier = site.another(rate=10e6)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.gather(*(copier.copy(FILE, tmp_path / name, ["a"]) for name in ("one", "two")))
    assert loop.time() - began > 0.8 * 2 * len(DATA) / 10e6


async def test_where_nobody_has_it_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no controller has it"):
        await Site(tmp_path).copy()
