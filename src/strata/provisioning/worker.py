"""A program of ours in a process of its own, with limits: where bytes are read that somebody else wrote.

One question goes to its standard input, one answer comes from its standard output; both are small, and JSON. Whatever
it reads, it costs no more memory, time and disk than the limits say, the service goes on meanwhile, and nothing of it
is left behind: neither when it ends, nor when it is cancelled, nor when we are killed. Started by root it has no
network, sees no other process, and has none of root's rights but those over files.

``ask`` is for the service; ``answer`` is what such a program does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import msgspec

from strata.core.errors import BadRequest, Refused, StrataError, Unavailable
from strata.fleet.child_process import find

Q = TypeVar("Q")
A = TypeVar("A")

_MOST_ANSWER = 8 << 20
_GRACE = 30
"""Seconds between being told that the time is up and being killed."""
_NOBODY = 65534
_SYS_ADMIN = 1 << 21
_RIGHTS = "-all,+chown,+dac_override,+fowner,+setuid,+setgid"
_KINDS: dict[str, type[StrataError]] = {kind.__name__: kind for kind in (BadRequest, Unavailable, StrataError)}


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What it may have. Of memory and processor time, each process that it starts may have as much again."""

    memory: int
    """Bytes of address space."""
    cpu: int
    """Seconds of processor time."""
    wall: float
    """Seconds until it is killed."""
    file: int
    """Bytes of the largest file that it may write."""


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What comes back: ``value``, or why not."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    kind: str = ""
    error: str = ""
    where: str = ""
    hint: str = ""


def command(module: str, limits: Limits) -> list[str]:
    """What is run."""
    bounds = (
        f"--as={limits.memory}",
        f"--cpu={limits.cpu}:{limits.cpu + _GRACE}",
        f"--fsize={limits.file}",
        *("--nofile=512", "--core=0"),
    )
    python = (sys.executable, "-P", "-m", module)
    return [find("setpriv", "util-linux"), "--pdeathsig", "KILL", *_apart(), "prlimit", *bounds, "nice", *python]


async def ask(
    module: str,
    question: object,
    kind: type[A],
    limits: Limits,
    *,
    about: str,
    log: Path | None = None,
    files: Sequence[int] = (),
    most: int = _MOST_ANSWER,
) -> A:
    """What ``module`` answers; or raises what it raised. ``about``: what is read, for errors. ``log``: where its words
    go. ``files``: open files that it gets, under the same numbers. ``most``: bytes of an answer. Cancelled, it is
    killed."""
    with contextlib.ExitStack() as open_files:
        asked = open_files.enter_context(os.fdopen(os.memfd_create("question"), "w+b", buffering=0))
        asked.write(msgspec.json.encode(question))
        asked.seek(0)
        process = await asyncio.create_subprocess_exec(
            *command(module, limits),
            stdin=asked,
            stdout=asyncio.subprocess.PIPE,
            stderr=open_files.enter_context(log.open("ab")) if log else asyncio.subprocess.DEVNULL,
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG": "C.UTF-8",
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            cwd="/",
            start_new_session=True,
            pass_fds=tuple(files),
        )
    try:
        async with asyncio.timeout(limits.wall):
            said = await _read(process, most)
            status = await process.wait()
    except TimeoutError:
        raise _too_much(f"is not read within {limits.wall:g} s", about) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    try:
        return _taken(msgspec.json.decode(said, type=_Answer), kind, about)
    except msgspec.MsgspecError:
        if status in (-signal.SIGKILL, 128 + signal.SIGKILL):
            raise _too_much("takes more memory or time than there is", about) from None
        raise StrataError(f"the worker broke off (status {status})", where=about, hint="see the log") from None


def answer(kind: type[Q], work: Callable[[Q], object], *, nobody: Callable[[Q], bool]) -> NoReturn:
    """For the program: read the question, do the work, answer, end. ``nobody``: whether it is to be nobody while it
    does; then there are no files but those that were handed over."""
    reply = _Answer(kind=StrataError.__name__, error="the question cannot be read")
    memory, seconds = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_CPU))
    try:
        question = msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
        if os.geteuid() == 0 and nobody(question):
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        signal.signal(signal.SIGXCPU, _time_is_up)
        reply = _Answer(value=msgspec.Raw(msgspec.json.encode(work(question))))
    except MemoryError:
        reply = _Answer(kind=Refused.__name__, error=f"takes more than {memory >> 20} MiB of memory to read")
    except _TimeIsUp:
        reply = _Answer(kind=Refused.__name__, error=f"takes more than {seconds} s of processor time to read")
    except BadRequest as error:
        reply = _Answer(kind=BadRequest.__name__, error=error.detail, where=error.where, hint=error.hint)
    except StrataError as error:
        name = Unavailable.__name__ if isinstance(error, Unavailable) else StrataError.__name__
        reply = _Answer(kind=name, error=error.detail, where=error.where, hint=error.hint)
    except OSError as error:
        reply = _Answer(kind=Unavailable.__name__, error=f"the disk does not take it: {error.strerror or error}")
    sys.stdout.buffer.write(msgspec.json.encode(reply))
    sys.stdout.buffer.flush()
    os._exit(0)  # millions of objects are not taken apart one by one


class _TimeIsUp(BaseException):
    """Not an ``Exception``: nothing on the way may take it for its own."""


def _time_is_up(number: int, frame: FrameType | None) -> None:
    raise _TimeIsUp


def _taken(reply: _Answer, kind: type[A], about: str) -> A:
    if reply.kind == Refused.__name__:
        raise _too_much(reply.error, about)
    if reply.error:
        raise _KINDS[reply.kind](reply.error, where=reply.where or about, hint=reply.hint)
    return msgspec.json.decode(reply.value, type=kind)


def _too_much(what: str, about: str) -> BadRequest:
    return BadRequest(what, where=about, hint="it is damaged, hostile or too large; it was not taken in")


async def _read(process: asyncio.subprocess.Process, most: int) -> bytes:
    assert process.stdout is not None
    said = bytearray()
    while piece := await process.stdout.read(65536):
        said += piece
        if len(said) > most:
            raise StrataError("the worker said more than it should", where=str(process.pid))
    return bytes(said)


def _apart() -> tuple[str, ...]:
    """Namespaces of its own and few rights, where we may give them."""
    if os.geteuid() != 0:
        return ("--no-new-privs",)
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    held = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    if not int(held, 16) & _SYS_ADMIN:
        return ("--no-new-privs",)
    # Its first process ends with ``unshare``, and all the others with that.
    namespaces = ("unshare", "--pid", "--net", "--ipc", "--fork", "--kill-child")
    return (*namespaces, "setpriv", "--no-new-privs", "--bounding-set", _RIGHTS, "--inh-caps", "-all")
