"""Lets the service live in another network namespace, where its nodes are, with a way back for what builds images."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from strata.core.errors import Unavailable

_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000


def enter(name: str) -> tuple[str, ...]:
    """Move this process into the namespace ``name``, before it has threads; what stands before a command that shall run
    where we came from. No name: stay, and nothing."""
    if not name:
        return ()
    origin = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        wanted = os.open(_NAMESPACES / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(
            f"no such network namespace: {error.strerror}",
            where=f"--netns {name}",
            hint="ip netns list shows all",
        ) from None
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(wanted, _CLONE_NEWNET) != 0:
            raise Unavailable(f"cannot enter: {os.strerror(ctypes.get_errno())}", where=f"--netns {name}")
    finally:
        os.close(wanted)
    return ("nsenter", f"--net=/proc/{os.getpid()}/fd/{origin}", "--")
