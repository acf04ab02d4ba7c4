"""Sockets in a machine's folder, whose path may be longer than a socket's can be."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def listening(path: Path) -> Iterator[int]:
    """A listening socket, made before QEMU is: whoever connects early waits instead of failing."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, short(path) as name:
        listener.bind(name)
        listener.listen(1)
        yield listener.fileno()


@contextlib.contextmanager
def short(path: Path) -> Iterator[str]:
    """Another name for the path, short enough for a socket."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
