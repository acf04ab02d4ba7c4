"""Where builds run what they do not trust: as root of nobody but themselves, and gone to the last process at the end.

``apart`` runs a function in namespaces of its own. Its root is an account far beyond those of the machine, so that
no file of the machine is its own, whatever path, link or descriptor it gets hold of; no right of it counts outside.
``enter`` then makes one directory all that it sees. The network is another part's (``network``).
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from strata.core.errors import BadRequest, StrataError, Unavailable
from strata.provisioning.images.build import syscalls as kernel

_NAMESPACES = (
    kernel.NEW_USERS | kernel.NEW_MOUNTS | kernel.NEW_PIDS | kernel.NEW_IPC | kernel.NEW_HOST_NAME | kernel.NEW_CGROUPS
)
_LEAST_IDS = 65536
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# As container engines have it, and as members of a personality get it on a node.
_HIDDEN = ("kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug", "acpi", "scsi")
_UNCHANGEABLE = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_HIDDEN_OF_SYS = ("firmware", "kernel/debug", "kernel/security", "kernel/tracing")
# CAP_DAC_READ_SEARCH, LINUX_IMMUTABLE, NET_ADMIN, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, SYS_BOOT, SYS_TIME,
# MKNOD, AUDIT_CONTROL, MAC_OVERRIDE, MAC_ADMIN, SYSLOG, PERFMON, BPF: what reaches beyond the files of a system. None
# of them counts outside the user namespace anyway; without them less of the kernel can be tried.
_DROPPED = (2, 9, 12, 16, 17, 19, 21, 22, 25, 27, 30, 32, 33, 34, 38, 39)
_MOST_SAID = 65536
_SAFE = kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_PROGRAMS


class Ids(NamedTuple):
    """Accounts and groups of the machine that stand for 0, 1, ... in builds."""

    user: int
    group: int
    length: int

    def give(self, *paths: Path) -> None:
        """Make the build's root the owner of these files."""
        for path in paths:
            os.chown(path, self.user, self.group, follow_symlinks=False)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a function ended that ran apart: what it returned, or its error."""

    status: int = 0
    error: str = ""
    where: str = ""
    hint: str = ""
    ours: bool = False


@cache
def build_ids(process: Path = Path("/proc/self")) -> Ids:
    """The upper half of all ids that a process has: the ids of about any image fit in, and nobody else uses them."""
    (user, users), (group, groups) = (_upper_half(process / f"{kind}_map") for kind in ("uid", "gid"))
    if min(users, groups) < _LEAST_IDS:
        raise Unavailable(
            "this machine's user namespace has too few ids for images to be built with ids of their own",
            where=str(process / "uid_map"),
            hint="run the service outside of a container, or give the container more ids",
        )
    return Ids(user, group, min(users, groups))


def _upper_half(table: Path) -> tuple[int, int]:
    rows = [[int(word) for word in line.split()] for line in table.read_text(encoding="ascii").splitlines()]
    first, _, count = max(rows, key=lambda row: row[2])
    middle = (count + 1) // 2
    return first + middle, count - middle


def apart(
    at: Path, work: Callable[[], int | None], *, prepare: Callable[[], None] = lambda: None, kept: Collection[int] = ()
) -> int:
    """Call ``work`` in namespaces of its own, as their first process, in the directory ``at``. What it returned, once
    every process of theirs has ended. Raises its ``BadRequest`` or ``StrataError``.

    ``prepare`` is called before, still as the machine's root, and what it mounts is there for ``work`` alone. ``kept``:
    descriptors that stay open besides the standard ones.
    """
    ids = build_ids()
    start_read, start = os.pipe()
    ready, ready_write = os.pipe()
    said, say = os.pipe()
    child = os.fork()
    if child == 0:
        for descriptor in (ready, start, said):
            os.close(descriptor)
        _become_apart(at, work, prepare, (ready_write, start_read, say), frozenset(kept))
    for descriptor in (start_read, ready_write, say):
        os.close(descriptor)
    with os.fdopen(ready, "rb") as told, os.fdopen(start, "wb") as go, os.fdopen(said, "rb") as words:
        if told.read(1):
            for kind, first in (("uid", ids.user), ("gid", ids.group)):
                Path(f"/proc/{child}/{kind}_map").write_text(f"0 {first} {ids.length}\n", encoding="ascii")
            go.write(b".")
            go.flush()
        os.waitpid(child, 0)
        text = words.read(_MOST_SAID)  # whoever still could write has ended
    try:
        ended = msgspec.json.decode(text, type=Ended)
    except msgspec.MsgspecError:
        raise StrataError("was ended early", where="build", hint="see its log") from None
    if ended.error:
        raise (Unavailable if ended.ours else BadRequest)(ended.error, where=ended.where, hint=ended.hint)
    return ended.status


def _become_apart(
    at: Path,
    work: Callable[[], int | None],
    prepare: Callable[[], None],
    pipes: tuple[int, int, int],
    kept: frozenset[int],
) -> NoReturn:
    """In the child: make the namespaces, wait for their ids, and stay outside of them as long as they last."""
    tell, start, say = pipes
    try:
        _leave(at, prepare)
        os.write(tell, b".")
        if os.read(start, 1):
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
            first = os.fork()
            if first == 0:
                _be_first(work, say, kept)
            os.waitpid(first, 0)  # it is only over when all others are
    except BaseException as error:  # there is nobody above in this process
        _say(say, _as_ended(error))
    finally:
        os._exit(0)


def _leave(at: Path, prepare: Callable[[], None]) -> None:
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.keep_mounts_private()
    # Only who is root where the network is may mount it.
    cover(Path("/sys"), kernel.new_mount("sysfs", attributes=kernel.READ_ONLY | _SAFE))
    prepare()
    # Everything that is imported from here on would come from the foreign tree.
    sys.meta_path.clear()
    folder = os.open(at, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    os.fchdir(folder)
    try:
        kernel.unshare(_NAMESPACES)
    except OSError as error:
        raise Unavailable(
            f"no user namespace can be made: {error.strerror}",
            where="build",
            hint="sysctl user.max_user_namespaces must not be 0",
        ) from None


def _be_first(work: Callable[[], int | None], say: int, kept: frozenset[int]) -> NoReturn:
    """The first process of the namespaces: when it ends, all others are killed."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # of the others none can stop it, but by what it listens to
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the machine's handler of core dumps runs as its root
        os.umask(0o022)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        _close_all_but({0, 1, 2, say, *kept})
        kernel.set_host_name("localhost")
        kernel.forget_keys()
        ended = Ended(status=work() or 0)
    except BaseException as error:  # there is nobody above in this process
        ended = _as_ended(error)
    _say(say, ended)
    os._exit(0)


def _as_ended(error: BaseException) -> Ended:
    if isinstance(error, StrataError):
        ours = not isinstance(error, BadRequest)
        return Ended(error=error.detail, where=error.where, hint=error.hint, ours=ours)
    if isinstance(error, OSError) and error.filename:
        return Ended(error=f"{error.strerror}: {error.filename}", where="build", ours=True)
    return Ended(error=f"{type(error).__name__}: {error}", where="build", ours=True)


def _say(pipe: int, ended: Ended) -> None:
    short = msgspec.structs.replace(ended, error=ended.error[:2000])
    os.write(pipe, msgspec.json.encode(short))


def _close_all_but(kept: Collection[int]) -> None:
    above = 0
    for number in [*sorted(kept), 1 << 20]:
        if above < number:  # of an empty range from 0 on, Python closes everything
            os.closerange(above, number)
        above = number + 1


def enter(*, alive: bool = False, mounts: bool = False) -> None:
    """Make the current directory the root of this process, with nothing else in sight. ``alive``: with the ``/proc``,
    ``/sys`` and ``/dev`` that programs expect, of which nothing can be changed. ``mounts``: for programs that mount a
    ``/proc`` themselves, which the kernel allows only to who sees one with nothing of it hidden."""
    machine = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    root = kernel.copy_mount(".", whole=True)
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    kernel.mount_at(root, here)
    os.fchdir(root)
    kernel.change_root()
    if alive:
        # Before the machine's own are out of sight: only who sees them all may mount new ones.
        _mount_proc(root, machine, whole=mounts)
        _mount_sys(root, machine, cgroups=mounts)
        _mount_dev(root, machine)
    kernel.leave_old_root()
    for descriptor in (machine, here, root):
        os.close(descriptor)


def _mount_proc(root: int, machine: int, *, whole: bool) -> None:
    with _mounted("proc", root, kernel.new_mount("proc", attributes=_SAFE)) as proc:
        with contextlib.suppress(OSError):  # a kernel without the limit lets nothing be limited
            limit = os.open("sys/user/max_user_namespaces", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
            os.write(limit, b"0\n")
            os.close(limit)
        if whole:
            return
        for name in _UNCHANGEABLE:
            with contextlib.suppress(FileNotFoundError):
                cover(name, kernel.copy_mount(name, proc, attributes=kernel.READ_ONLY | _SAFE), proc)
        for name in _HIDDEN:
            _hide(name, proc, machine)


def _mount_sys(root: int, machine: int, *, cgroups: bool) -> None:
    """``cgroups``: with a place for them, empty, which programs that start containers look for."""
    with _mounted("sys", root, kernel.copy_mount("sys", machine, attributes=kernel.READ_ONLY | _SAFE)) as mount:
        for name in (*_HIDDEN_OF_SYS, *(("fs/cgroup",) if cgroups else ())):
            _hide(name, mount, machine)


def _mount_dev(root: int, machine: int) -> None:
    devices = kernel.new_mount("tmpfs", {"mode": "755", "size": "1m"}, kernel.NO_SETUID | kernel.NO_PROGRAMS)
    with _mounted("dev", root, devices) as dev:
        for name in _DEVICES:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=dev))
            cover(name, kernel.copy_mount(f"dev/{name}", machine), dev)


def _hide(name: str, folder: int, machine: int) -> None:
    """Put something empty in front of a file or directory, if there is one."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return
    is_folder = stat.S_ISDIR(found.st_mode)
    empty = kernel.new_mount("tmpfs", {"mode": "755"}, kernel.READ_ONLY | _SAFE) if is_folder else None
    cover(name, kernel.copy_mount("dev/null", machine) if empty is None else empty, folder)


@contextlib.contextmanager
def _mounted(name: str, parent: int, mount: int) -> Iterator[int]:
    """Mount it on the folder of that name, which is made if need be, and on nothing that a link leads to."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
    if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        raise BadRequest(f"its /{name} is not a directory", where="parent image", hint="programs need one to run")
    cover(name, os.dup(mount), parent)
    yield mount
    os.close(mount)


def cover(name: str | Path, mount: int, parent: int | None = None) -> None:
    """Mount it on what has that name, and on nothing that a link of that name leads to."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    kernel.mount_at(mount, place)
    os.close(place)
    os.close(mount)


def run_program(command: list[str], env: dict[str, str], *, reduced: bool) -> int:
    """Run a program and end whatever it left behind; its status, negative for a signal. Raises ``FileNotFoundError``.

    For the first process of its namespaces. ``reduced``: without the rights that reach beyond files.
    """
    failed, fail = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # Python ignores some, whoever started the service may have others ignored, and programs would too.
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            for right in _DROPPED if reduced else ():
                kernel.drop_capability(right)
            os.execvpe(command[0], command, env)
        except OSError as error:
            os.write(fail, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(fail)
    with os.fdopen(failed, "rb") as reader:
        why = reader.read()
    ended = 0
    while ended != child:  # others that lost their parent end meanwhile
        ended, status = os.wait()
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    if why:
        raise OSError(int(why), os.strerror(int(why)), command[0])
    return os.waitstatus_to_exitcode(status)
