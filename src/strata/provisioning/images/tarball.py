"""Reads what a tar holds that somebody else wrote. Strict, and bounded in memory by what an honest archive needs.

The standard library's reader believes headers: a negative size takes it back to where it was, for ever; a name of a
gibibyte is read as a whole; a damaged header is taken for the end. This one refuses all that, and says where. It knows
ustar, GNU's long names and sparse files, and pax; it yields what is there and touches no file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Literal, NoReturn

import msgspec

from strata.core.errors import BadRequest

Kind = Literal["file", "dir", "link", "hardlink", "fifo", "device"]
Reader = tuple[tuple[int, int], ...]
"""Of a sparse file: offset and length of what is not a hole, in order."""

BLOCK = 512
MOST_ABOUT = 1 << 20
"""Bytes that long names and attributes of one entry may have: a hundred times what a file system would take."""
_MOST_BEFORE = 16  # headers that say something of the one behind them
_MOST_PIECES = 100_000  # of a sparse file
_MOST_SIZE = 1 << 50
_KINDS: dict[bytes, Kind] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"S": "file",
    b"1": "hardlink",
    b"2": "link",
    b"3": "device",
    b"4": "device",
    b"5": "dir",
    b"6": "fifo",
}
_XATTR = "SCHILY.xattr."
_NONE: dict[str, str] = {}  # one for all that have none: there are millions of them
_ONE_ENTRY_ONLY = ("path", "linkpath", "size", "GNU.sparse.")


class Entry(msgspec.Struct, kw_only=True, gc=False):
    """One thing in the archive. Nothing about it has been checked but that it can be read."""

    name: str
    kind: Kind
    mode: int
    uid: int
    gid: int
    mtime: int
    size: int
    """Bytes of a file, holes and all."""
    target: str
    xattrs: dict[str, str]
    at: int
    """Where in the archive its bytes are."""
    pieces: Reader | None = None

    @property
    def stored(self) -> int:
        """Bytes that the archive holds of it."""
        return self.size if self.pieces is None else sum(length for _, length in self.pieces)


class Body:
    """The bytes of a file in an archive, holes as zeros. Several may read from one open archive in turns."""

    def __init__(self, file: IO[bytes], at: int, size: int, pieces: Reader | None = None) -> None:
        """The three say what they say in ``Entry``."""
        self._file = file
        self._at = at  # where the next stored byte is
        self._pieces = list(reversed(pieces if pieces is not None else ((0, size),)))
        self._place = 0
        self._size = size

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes; fewer only at the end."""
        left = self._size - self._place
        want = left if size < 0 else min(size, left)
        out = bytearray()
        while want:
            piece = self._next(want)
            out += piece
            want -= len(piece)
            self._place += len(piece)
        return bytes(out)

    def _next(self, want: int) -> bytes:
        if not self._pieces:
            return bytes(want)
        start, length = self._pieces[-1]
        if self._place < start:
            return bytes(min(want, start - self._place))
        here = min(want, start + length - self._place)
        if not here:
            self._pieces.pop()
            return b""
        self._file.seek(self._at)
        data = self._file.read(here)
        if len(data) < here:
            raise BadRequest("the archive became shorter while it was read", where="archive")
        self._at += here
        return data


def entries(file: IO[bytes], where: str = "archive") -> Iterator[Entry]:
    """What a plain tar holds, in order. ``BadRequest`` says what is wrong with it; ``where`` is put before."""
    return _Reader(file, where).entries()


class _Reader:
    def __init__(self, file: IO[bytes], where: str) -> None:
        self._file = file
        self._where = where
        self._size = file.seek(0, os.SEEK_END)
        self._at = 0
        self._all: dict[str, str] = {}  # said of all entries that follow

    def entries(self) -> Iterator[Entry]:
        while True:
            header, long_name, long_target, about = self._header()
            if header is None:
                return
            yield self._entry(header, long_name, long_target, {**self._all, **about})

    def _header(self) -> tuple[bytes | None, str | None, str | None, dict[str, str]]:
        """The next header, and what those before it say of it. None: the archive ends here."""
        long_name = long_target = None
        about: dict[str, str] = {}
        room = MOST_ABOUT
        for _ in range(_MOST_BEFORE):
            block = self._block()
            if block is None:
                if long_name is not None or long_target is not None or about:
                    self._wrong("it ends after a header that speaks of another")
                return None, None, None, {}
            kind = block[156:157]
            if kind not in (b"L", b"K", b"x", b"X", b"g"):
                return block, long_name, long_target, about
            data = self._small(block, room)
            room -= len(data)
            if kind == b"L":
                long_name = _text(data)
            elif kind == b"K":
                long_target = _text(data)
            elif kind == b"g":
                self._take_for_all(self._records(data))
            else:
                about |= self._records(data)
        return self._wrong(f"more than {_MOST_BEFORE} headers that speak of one entry")

    def _entry(self, header: bytes, long_name: str | None, long_target: str | None, about: dict[str, str]) -> Entry:
        kind = _KINDS.get(header[156:157])
        name = about.get("path", long_name)
        if name is None:
            name = _text(header[:100])
            if header[257:263] == b"ustar\0" and header[345]:
                name = f"{_text(header[345:500])}/{name}"
        if kind is None:
            self._wrong(f"an entry of an unknown type {header[156:157]!r}", name)
        if kind == "file" and name.endswith("/"):
            kind = "dir"  # as it was written before there were types
        stored = self._size_of(header, about, name)
        size, pieces = stored, None
        if kind == "file":
            size, pieces, stored, name = self._holes(header, about, stored, name)
        else:
            size = stored = 0
        at = self._at
        if at + stored > self._size:
            self._wrong("it ends in the middle of a file", name)
        self._at = at + -(-stored // BLOCK) * BLOCK
        return Entry(
            name=name,
            kind=kind,
            mode=self._number(header[100:108], "mode", name),
            uid=self._either(about, "uid", header[108:116], name),
            gid=self._either(about, "gid", header[116:124], name),
            mtime=_seconds(about["mtime"]) if "mtime" in about else self._time(header[136:148]),
            size=size,
            target=about.get("linkpath", long_target if long_target is not None else _text(header[157:257])),
            xattrs={key.removeprefix(_XATTR): about[key] for key in about if key.startswith(_XATTR)} or _NONE,
            at=at,
            pieces=pieces,
        )

    def _block(self) -> bytes | None:
        """The next header's block, its sum checked; None at the end."""
        self._file.seek(self._at)
        block = self._file.read(BLOCK)
        if not block or not block.strip(b"\0"):
            return None  # what may come after it is not of the archive, as for every other tar
        if len(block) < BLOCK:
            self._wrong("it ends in the middle of a header")
        self._at += BLOCK
        said = _octal(block[148:156])
        found = sum(block) - sum(block[148:156]) + 8 * ord(" ")
        if said != found and said != found - 256 * sum(byte > 127 for byte in block[:148] + block[156:]):
            self._wrong(f"what is at byte {self._at - BLOCK} is no header")
        return block

    def _small(self, block: bytes, room: int) -> bytes:
        """What stands behind a header that speaks of another."""
        size = self._number(block[124:136], "size", "")
        if size > room:
            self._wrong(f"names or attributes of more than {MOST_ABOUT >> 10} KiB for one entry")
        self._file.seek(self._at)
        data = self._file.read(size)
        if len(data) < size:
            self._wrong("it ends in the middle of a name")
        self._at += -(-size // BLOCK) * BLOCK
        return data

    def _records(self, data: bytes) -> dict[str, str]:
        """The records of a pax header: length, space, key, ``=``, value, line feed."""
        found: dict[str, str] = {}
        spread: dict[str, list[str]] = {"GNU.sparse.offset": [], "GNU.sparse.numbytes": []}
        at = 0
        while at < len(data) and data[at]:
            space = data.find(b" ", at, at + 20)
            digits = data[at:space] if space > 0 else b""
            end = at + (int(digits) if digits.isdigit() else 0)
            key, equals, value = data[space + 1 : end - 1].partition(b"=")
            if end <= space or end > len(data) or data[end - 1 : end] != b"\n" or not equals:
                self._wrong("a pax header that cannot be read")
            name, text = _decoded(key), _decoded(value)
            if name in spread:
                spread[name].append(text)  # the oldest of three ways to say it repeats the key
            else:
                found[name] = text
            at = end
        if spread["GNU.sparse.offset"] or spread["GNU.sparse.numbytes"]:
            if len(spread["GNU.sparse.offset"]) != len(spread["GNU.sparse.numbytes"]):
                self._wrong("a sparse file whose map is not whole")
            pairs = zip(spread["GNU.sparse.offset"], spread["GNU.sparse.numbytes"], strict=True)
            found["GNU.sparse.map"] = ",".join(number for pair in pairs for number in pair)
        return found

    def _take_for_all(self, records: dict[str, str]) -> None:
        for key in records:
            if key.startswith(_ONE_ENTRY_ONLY):
                self._wrong(f"a header for all entries that sets {key[:40]!r}, which each has of its own")
        self._all |= {key: value for key, value in records.items() if key in ("uid", "gid", "mtime")}

    def _size_of(self, header: bytes, about: dict[str, str], name: str) -> int:
        if "size" not in about:
            return self._number(header[124:136], "size", name)
        return self._decimal(about["size"], "size", name)

    def _holes(
        self, header: bytes, about: dict[str, str], stored: int, name: str
    ) -> tuple[int, Reader | None, int, str]:
        """Size, map, stored bytes and name of a file, sparse or not."""
        if header[156:157] == b"S":
            pieces, size = self._old_map(header, name)
        elif about.get("GNU.sparse.major") == "1" and about.get("GNU.sparse.minor") == "0":
            numbers, used = self._map_in_front(stored, name)
            stored -= used
            pieces = self._pairs(numbers, name)
            size = self._decimal(about.get("GNU.sparse.realsize", ""), "size", name)
        elif "GNU.sparse.map" in about:
            pieces = self._pairs(about["GNU.sparse.map"].split(","), name)
            size = self._decimal(about.get("GNU.sparse.size", ""), "size", name)
        else:
            return stored, None, stored, name
        end = 0
        for start, length in pieces:
            if start < end or start + length > size:
                self._wrong("a sparse file whose pieces overlap, or lie outside of it", name)
            end = start + length
        if sum(length for _, length in pieces) != stored:
            self._wrong("a sparse file of which another number of bytes is there than its map says", name)
        return size, tuple(piece for piece in pieces if piece[1]), stored, about.get("GNU.sparse.name", name)

    def _old_map(self, header: bytes, name: str) -> tuple[list[tuple[int, int]], int]:
        pieces: list[tuple[int, int]] = []
        size = self._number(header[483:495], "size", name)
        block, count, more_at, start = header, 4, 482, 386
        while True:
            for number in range(count):
                field = block[start + 24 * number : start + 24 * number + 24]
                if not field.strip(b"\0 "):
                    break
                pieces.append((self._number(field[:12], "size", name), self._number(field[12:], "size", name)))
            if not block[more_at]:
                return pieces, size
            self._file.seek(self._at)
            block, count, more_at, start = self._file.read(BLOCK), 21, 504, 0
            self._at += BLOCK
            if len(block) < BLOCK or len(pieces) > _MOST_PIECES:
                self._wrong("a sparse file whose map does not end", name)

    def _map_in_front(self, stored: int, name: str) -> tuple[list[str], int]:
        """The map of a sparse file that stands before its bytes; and how many of its bytes that is."""
        numbers: list[str] = []
        rest, used, wanted = b"", 0, 1
        while len(numbers) < wanted:
            if used >= stored or wanted > 2 * _MOST_PIECES:
                self._wrong("a sparse file whose map does not end", name)
            self._file.seek(self._at)
            rest += self._file.read(BLOCK)
            self._at, used = self._at + BLOCK, used + BLOCK
            *lines, rest = rest.split(b"\n")
            numbers += [_decoded(line) for line in lines]
            if numbers:
                wanted = 1 + 2 * self._decimal(numbers[0], "size", name)
            if len(rest) > 24 and len(numbers) < wanted:
                self._wrong("a sparse file whose map cannot be read", name)
        return numbers[1:wanted], used

    def _pairs(self, numbers: list[str], name: str) -> list[tuple[int, int]]:
        if len(numbers) % 2 or len(numbers) > 2 * _MOST_PIECES:
            self._wrong("a sparse file whose map is not whole, or too long", name)
        values = [self._decimal(number, "size", name) for number in numbers]
        return list(zip(values[::2], values[1::2], strict=True))

    def _either(self, about: dict[str, str], key: str, field: bytes, name: str) -> int:
        return self._decimal(about[key], key, name) if key in about else self._number(field, key, name)

    def _decimal(self, text: str, what: str, name: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 16) or int(text) > _MOST_SIZE:
            self._wrong(f"a {what} that cannot be: {text[:40]!r}", name)
        return int(text)

    def _number(self, field: bytes, what: str, name: str) -> int:
        if field[0] & 0x80:
            # Two's complement, for what has no room in octal digits.
            value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
            if field[0] & 0x40 or value > _MOST_SIZE:
                self._wrong(f"a {what} that cannot be: negative, or beyond all bounds", name)
            return value
        value = _octal(field)
        if value < 0:
            self._wrong(f"a {what} that is no number: {field.strip(bytes(1))[:40]!r}", name)
        return value

    def _time(self, field: bytes) -> int:
        """Nothing depends on it: what cannot be read, or was before 1970, is 1970."""
        if field[0] & 0x80:
            return 0 if field[0] & 0x40 else int.from_bytes(field[1:], "big")
        return max(_octal(field), 0)

    def _wrong(self, what: str, name: str = "") -> NoReturn:
        where = f"{self._where}, {name[:200]!r}" if name else self._where
        raise BadRequest(f"is not a sound tar archive: {what}", where=where, hint="make the archive again")


def _octal(field: bytes) -> int:
    """-1: no number."""
    text = field.split(b"\0", 1)[0].strip(b" ")
    if not text:
        return 0
    return int(text, 8) if not text.strip(b"01234567") else -1


def _text(field: bytes) -> str:
    return _decoded(field.split(b"\0", 1)[0])


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _seconds(text: str) -> int:
    whole = text.partition(".")[0]
    return int(whole) if whole.isascii() and whole.isdigit() and len(whole) <= 16 else 0
