"""Files for their owner alone: there whole or not at all, and never, not even for a moment, with more rights."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_private(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put ``data`` at ``path``, in place of what is there."""
    _written(path, data, mode).replace(path)


def write_new(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, durably, and never over a file that somebody else just wrote."""
    part = _written(path, data, 0o600)
    try:
        with suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _written(path: Path, data: bytes, mode: int) -> Path:
    """A file with ``data`` beside ``path``."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part
