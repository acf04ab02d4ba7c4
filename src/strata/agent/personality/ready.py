"""Whether a member is ready, by what its personality declares."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from ..files import inside
from .member import Member


def is_ready(member: Member, pid: int, command: list[str]) -> bool:
    """Look once; `command` runs the member's own check inside it."""
    if member.ready_kind == "file":
        try:
            return inside(Path(f"/proc/{pid}/root"), member.ready_path).exists()
        except OSError:
            return False
    if member.ready_kind == "tcp":
        try:
            socket.create_connection(("127.0.0.1", member.ready_port), timeout=2).close()
        except OSError:
            return False
        return True
    if member.ready_kind == "command":
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0
    return True


def awaited(member: Member) -> str:
    """What did not come about, in words."""
    if member.ready_kind == "file":
        return f"there is no {member.ready_path}"
    if member.ready_kind == "tcp":
        return f"nobody answers at port {member.ready_port}"
    if member.ready_kind == "command":
        return f"{member.ready_argv[0]} does not succeed"
    return "it did not start"
