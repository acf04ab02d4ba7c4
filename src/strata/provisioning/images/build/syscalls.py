"""What Linux offers for namespaces, mounts and safe opening, and Python does not. Each raises ``OSError``.

Mounts are handled by file descriptor, never by a path that a hostile tree could bend.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Mapping

NEW_MOUNTS, NEW_CGROUPS, NEW_HOST_NAME, NEW_IPC, NEW_USERS, NEW_PIDS = (
    *(0x20000, 0x2000000, 0x4000000, 0x8000000),
    *(0x10000000, 0x20000000),
)
NEW_NETWORK = 0x40000000
READ_ONLY, NO_SETUID, NO_DEVICES, NO_PROGRAMS = 1, 2, 4, 8
"""Of a mount."""

_HERE = -100
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_CLONE, _CLOSE_ON_EXEC = 1, os.O_CLOEXEC
_FROM_EMPTY, _TO_EMPTY = 0x4, 0x40
_SET_STRING, _CREATE = 1, 6
_DETACH, _PRIVATE = 2, 1 << 18
_DROP_BOUND = 24
_PARENT_DEATH_SIGNAL = 1
_NO_OTHER_MOUNT, _NO_MAGIC, _NO_LINKS, _BENEATH = 1, 2, 4, 8
_OPENAT2 = 437
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace"))


def open_beneath(folder: int, path: str, flags: int) -> int:
    """Open ``path`` below a folder: no link is followed on the way or at its end, and no other file system entered."""
    how = _How(flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0, _BENEATH | _NO_LINKS | _NO_MAGIC | _NO_OTHER_MOUNT)
    return _must(_libc.syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)), path)


def unshare(namespaces: int) -> None:
    """Leave the namespaces of these kinds for new ones."""
    _must(_libc.unshare(namespaces))


def join_network(namespace: int) -> None:
    """Go into the network namespace that is open there."""
    _must(_libc.setns(namespace, NEW_NETWORK))


def end_with_parent() -> None:
    """Have this process killed when the one that started it ends."""
    _must(_libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))


def new_mount(kind: str, options: Mapping[str, str] | None = None, attributes: int = 0) -> int:
    """A file system that is not mounted anywhere yet."""
    context = _must(_libc.fsopen(kind.encode(), 1), kind)
    try:
        for name, value in (options or {}).items():
            _must(_libc.fsconfig(context, _SET_STRING, name.encode(), value.encode(), 0), kind)
        _must(_libc.fsconfig(context, _CREATE, None, None, 0), kind)
        return _must(_libc.fsmount(context, 1, attributes), kind)
    finally:
        os.close(context)


def copy_mount(path: str, folder: int = _HERE, *, attributes: int = 0, whole: bool = False) -> int:
    """What is at ``path``, to be mounted elsewhere. ``whole``: with everything that is mounted below it."""
    below = _RECURSIVE if whole else 0
    mount = _must(_libc.open_tree(folder, os.fsencode(path), _CLONE | _CLOSE_ON_EXEC | below), path)
    if attributes:
        wanted = _Attributes(attributes, 0, 0, 0)
        size = ctypes.c_size_t(ctypes.sizeof(wanted))
        _must(_libc.mount_setattr(mount, b"", _EMPTY_PATH | below, ctypes.byref(wanted), size), path)
    return mount


def keep_mounts_private() -> None:
    """Of this namespace: what is mounted or unmounted here stays here."""
    wanted = _Attributes(0, 0, _PRIVATE, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _must(_libc.mount_setattr(_HERE, b"/", _RECURSIVE, ctypes.byref(wanted), size))


def mount_at(mount: int, place: int) -> None:
    """Mount it on what ``place`` has open."""
    _must(_libc.move_mount(mount, b"", place, b"", _FROM_EMPTY | _TO_EMPTY))


def change_root() -> None:
    """Make the current directory, on which something is mounted, the root; nothing else is to be seen any more."""
    _must(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."))


def leave_old_root() -> None:
    """After ``change_root``: nothing of what was there before can be reached any more."""
    _must(_libc.umount2(b".", _DETACH))
    os.chdir("/")


def set_host_name(name: str) -> None:
    """Of this namespace."""
    _must(_libc.sethostname(name.encode(), ctypes.c_size_t(len(name))))


def forget_keys() -> None:
    """Take an empty session keyring, where the kernel has keyrings."""
    _libc.syscall(_KEYCTL[platform.machine()], _JOIN_SESSION, None)


def drop_capability(number: int) -> None:
    """For the programs that this process becomes, for good. One that the kernel does not know is nobody's."""
    _libc.prctl(_DROP_BOUND, number, 0, 0, 0)


def _must(result: int, about: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about or None)
    return result
