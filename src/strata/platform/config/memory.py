"""What files of a repository were found to say, kept between two commands: reading YAML is most of the work of a plan,
and between two plans few files change. Only ever a shortcut: without it, or where it is damaged, everything is read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec

import strata
from strata.core.host.private_file import write_private
from strata.core.input.yamltree import Document, documents, read_before

_KEPT_FOR = 30 * 86_400.0
"""Seconds after which nobody is expected to come back to a directory."""
_FORM = f"1 {strata.__version__}"


class _Kept(msgspec.Struct, frozen=True):
    form: str
    files: dict[bytes, list[Any]]
    """Digest of a file → what its documents say."""


class Memory:
    """What the files of one directory say. ``save`` keeps what was asked for since it was opened."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[bytes, list[Any]] = {}
        self._used: dict[bytes, list[Any]] = {}
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            kept = msgspec.msgpack.decode(file.read_bytes(), type=_Kept)
            self._known = kept.files if kept.form == _FORM else {}

    @classmethod
    def of(cls, directory: Path) -> Memory:
        """The one for a directory, in the account's cache."""
        place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "strata", "config")
        name = hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:32]
        return cls(place / f"{name}.msgpack")

    def documents(self, text: str, source: str) -> list[Document]:
        """The documents of a file; raises as reading it does."""
        digest = hashlib.sha256(text.encode()).digest()
        found = self._known.get(digest)
        read = documents(text, source) if found is None else read_before(text, source, found)
        self._used[digest] = [document.data for document in read]
        return read

    def save(self) -> None:
        """Keep it, whole or not at all. Where that cannot be, the next command reads everything again."""
        if self._used.keys() == self._known.keys():
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self._file, msgspec.msgpack.encode(_Kept(_FORM, self._used)))
            for other in self._file.parent.glob("*.msgpack"):
                if time.time() - other.stat().st_mtime > _KEPT_FOR:
                    other.unlink()
