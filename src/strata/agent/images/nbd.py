"""The kernel's network block device, driven from this process: a socket pair and a few ioctls."""

from __future__ import annotations

import fcntl
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from ..errors import AgentError

_SET_SOCK, _SET_BLKSIZE, _DO_IT, _CLEAR_SOCK = 0xAB00, 0xAB01, 0xAB03, 0xAB04
_SET_SIZE_BLOCKS, _DISCONNECT, _SET_FLAGS = 0xAB07, 0xAB08, 0xAB0A
_READ_ONLY = 0x1 | 0x2
_BLOCK = 4096
_REQUEST = struct.Struct(">IIQQI")
_REPLY = struct.Struct(">IIQ")
_REQUEST_MAGIC, _REPLY_MAGIC = 0x25609513, 0x67446698
_CMD_READ, _CMD_DISC = 0, 2
_EIO, _EPERM = 5, 1


def free_device(sys_block: Path) -> str:
    """A device that nobody uses."""
    for number in range(256):
        entry = sys_block / f"nbd{number}"
        if not entry.exists():
            break
        if not (entry / "pid").exists():
            return f"/dev/nbd{number}"
    raise AgentError("no free network block device: is the nbd module loaded, and nbds_max large enough?")


def serve(device: str, size: int, read: Callable[[int, int], bytes], ready: Callable[[], None]) -> None:
    """Be the block device until it is disconnected; `read(offset, length)` gives checked bytes or raises AgentError."""
    ours, theirs = socket.socketpair()
    with open(device, "rb", buffering=0) as node, ours, theirs:  # noqa: PTH123 - a device, not a file
        fcntl.ioctl(node, _SET_BLKSIZE, _BLOCK)
        fcntl.ioctl(node, _SET_SIZE_BLOCKS, -(-size // _BLOCK))
        fcntl.ioctl(node, _CLEAR_SOCK)
        fcntl.ioctl(node, _SET_SOCK, theirs.fileno())
        fcntl.ioctl(node, _SET_FLAGS, _READ_ONLY)
        server = threading.Thread(target=_serve, args=(ours, size, read), name="nbd", daemon=True)
        server.start()
        ready()
        try:
            fcntl.ioctl(node, _DO_IT)  # returns when the device is disconnected
        finally:
            fcntl.ioctl(node, _CLEAR_SOCK)


def disconnect(device: str) -> None:
    """Take the device away; its server's process ends."""
    try:
        with open(device, "rb", buffering=0) as node:  # noqa: PTH123 - a device, not a file
            fcntl.ioctl(node, _DISCONNECT)
    except OSError:
        return


def _serve(connection: socket.socket, size: int, read: Callable[[int, int], bytes]) -> None:
    while True:
        header = _exactly(connection, _REQUEST.size)
        if header is None:
            return
        magic, kind, handle, offset, length = _REQUEST.unpack(header)
        if magic != _REQUEST_MAGIC or kind & 0xFFFF == _CMD_DISC:
            return
        if kind & 0xFFFF != _CMD_READ:
            connection.sendall(_REPLY.pack(_REPLY_MAGIC, _EPERM, handle))
            continue
        try:
            there = max(0, min(length, size - offset))
            data = (read(offset, there) if there else b"") + bytes(length - there)
        except AgentError:
            connection.sendall(_REPLY.pack(_REPLY_MAGIC, _EIO, handle))
            continue
        connection.sendall(_REPLY.pack(_REPLY_MAGIC, 0, handle) + data)


def _exactly(connection: socket.socket, length: int) -> bytes | None:
    data = b""
    while len(data) < length:
        try:
            more = connection.recv(length - len(data))
        except OSError:
            return None
        if not more:
            return None
        data += more
    return data
