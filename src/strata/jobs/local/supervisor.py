"""Runs the jobs of this machine, each under a supervisor of its own. A program: standard library only, starts fast.

The service starts it once, and tells it on standard input which task to run: a line of JSON with the job's folder, the
task's name, what is added to its environment, the cores and accelerators that it is given, and its control group. It
forks a supervisor for it and answers with a line that has its pid.
Supervisors outlive the service and this program. What became of a task is in the job's folder, which only the service's
account may enter::

    work.json     what to run, as whom, and how long
    NAME.pid      the supervisor: pid, start, boot, and what it was given. Whoever creates it runs the task; nobody runs
                  it twice
    NAME.end      how the task ended

A supervisor adopts whatever its job leaves behind, so that nothing of a job outlives it. SIGTERM ends the job.

In a control group (v2) the kernel holds the job to its memory and cores, and ends all of it at once. Without one, its
memory is looked at twice a second, and it is bound to its cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

# What a supervisor touches is copied from the program that it was forked of, page by page, and that is much of what a
# small job costs. Hence plain calls and not paths as objects: 620 pages and not 820.

Json = dict[str, object]

_SET_CHILD_SUBREAPER = 36
_SET_PDEATHSIG = 1
_SAMPLE = 0.5
"""Seconds between two looks at the memory of a job that has a limit."""
_LAST = 20.0
"""Seconds after SIGKILL after which whatever is still there is left: only the kernel can hold it."""
_PATH = "/usr/local/bin:/usr/bin:/bin"
_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
_LOAD, _ATTACH = 5, 8
_DEVICE_PROGRAM, _DEVICE_GROUP, _BESIDE_OTHERS = 15, 6, 2
_boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def main() -> None:
    """Take orders until there are no more."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # what is here is shared with all supervisors, and must not be written to
    gc.disable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors say how they end by their files
    for line in sys.stdin.buffer:
        order = json.loads(line)
        # Whoever is told to end a job before it has begun must not end its supervisor, which has to tell of it.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
        began = time.time()
        pid = os.fork()
        if pid == 0:
            _become_supervisor(str(order["folder"]), str(order["name"]), order, began)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGCHLD))
        sys.stdout.write(json.dumps({"pid": pid, "began": began}) + "\n")
        sys.stdout.flush()


def _become_supervisor(folder: str, name: str, order: dict[str, Any], began: float) -> None:
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.close(nothing)
        os.chdir(folder)
        if _claimed(name, {"began": began, **order["given"]}):
            work = json.loads(_read("work.json"))
            work["env"].update(order["env"])
            _save(f"{name}.end", Supervisor(work, name, order).run(began))
    finally:
        os._exit(0)


def _claimed(name: str, known: Json) -> bool:
    """Whether this process is the one that runs the task; if so, ``NAME.pid`` has what is known of it."""
    started = int(_read("/proc/self/stat").rpartition(b")")[2].split()[19])
    told = {"pid": os.getpid(), "started": started, "boot": _boot, **known}
    scratch = f"{name}.{os.getpid()}.new"
    _create(scratch, json.dumps(told))
    try:
        os.link(scratch, f"{name}.pid")
    except FileExistsError:
        return False
    finally:
        os.unlink(scratch)  # noqa: PTH108
    return True


def _save(path: str, data: Json) -> None:
    _create(f"{path}.new", json.dumps(data))
    os.rename(f"{path}.new", path)  # noqa: PTH104


def _create(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _read(path: str) -> bytes:
    """All of a file that is no longer than a script may be."""
    file = os.open(path, os.O_RDONLY)
    try:
        found = b""
        while piece := os.read(file, 1 << 20):
            found += piece
        return found
    finally:
        os.close(file)


class Supervisor:
    """One task's life."""

    def __init__(self, work: Json, name: str, order: dict[str, Any]) -> None:
        self._work = work
        self._name = name
        self._bind: list[int] = order["bind"]
        self._group = str(order["group"])
        self._limits: dict[str, str] = order["limits"]
        self._devices = bytes.fromhex(order["devices"])
        self._barred = ""
        """Why it must not begin."""
        self._main = 0
        self._status: int | None = None
        self._outcome = ""
        self._reason = ""
        self._kill_at: float | None = None

    def run(self, began: float) -> Json:
        """Run it to its end, and tell of that."""
        clock = time.monotonic()
        _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._make_group()
        complaint, mouth = os.pipe()
        self._main = os.fork()
        if self._main == 0:
            os.close(complaint)
            self._become_job(mouth)
        os.close(mouth)
        with os.fdopen(complaint, "rb") as file:
            said = file.read(2000).decode(errors="replace")  # until the job begins, or says why it cannot
        self._watch(clock)
        self._sweep()
        if self._starved() and self._outcome in ("", "out-of-memory"):
            self._outcome = "out-of-memory"
            self._reason = f"it used more than {self._work['memory']} MiB, and the kernel ended it"
        if self._group:
            kill_group(self._group)
        status = self._status or 0
        killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        if not self._outcome:
            self._outcome = "done" if code == 0 else "failed"
        return {
            "outcome": self._outcome,
            "status": code,
            "signal": killed,
            "reason": said or self._reason,
            "began": began,
            "ended": time.time(),
        }

    # -- the job

    def _become_job(self, mouth: int) -> None:
        what = "it could not be started"
        try:
            work = self._work
            os.setpgid(0, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            if self._barred:
                raise PermissionError(self._barred)
            if self._group:
                what = f"it cannot enter its control group {self._group}"
                _write(f"{self._group}/cgroup.procs", "0")
                what = "it could not be started"
            if self._bind:
                os.sched_setaffinity(0, self._bind)
            uid, gid = int(str(work["uid"])), int(str(work["gid"]))
            script = os.memfd_create("job")
            os.write(script, str(work["script"]).encode())
            if os.geteuid() == 0:
                os.fchmod(script, 0o500)
                os.fchown(script, uid, gid)
                os.setgroups([int(group) for group in work["groups"]])  # type: ignore[attr-defined]
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
            if 0 in (*os.getresuid(), *os.getresgid()):
                raise PermissionError("jobs cannot run as root")
            os.umask(0o022)
            _prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            self._open()
            what = f"cannot enter {work['workdir']}"
            os.chdir(str(work["workdir"]))
            env = {"PATH": _PATH, "LANG": "C.UTF-8"}
            env.update({str(key): str(value) for key, value in dict(work["env"]).items()})  # type: ignore[call-overload]
            if work["array"]:
                env["STRATA_ARRAY_INDEX"] = self._name
            what = "its script cannot be run"
            os.set_inheritable(script, True)
            os.execve(f"/proc/self/fd/{script}", ["job"], env)
        except BaseException as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            with contextlib.suppress(OSError):
                os.write(mouth, f"{what}: {said}".encode())
        finally:
            os._exit(126)

    def _open(self) -> None:
        """Standard input and output, as the account: what it may not write is not written."""
        work = self._work
        files = (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))
        for number, (name, mode) in enumerate(files):
            path = str(work.get(name) or "").replace("%a", self._name)
            if not path and name == "stderr":
                os.dup2(1, 2)
                continue
            path = path or os.devnull
            try:
                if mode == os.O_WRONLY:
                    mode |= os.O_CREAT | os.O_TRUNC
                found = _open(path, mode)
            except OSError as error:
                other = f"; --{name} names another file" if name != "stdin" and path != os.devnull else ""
                raise OSError(error.errno, f"{path}: {error.strerror}{other}") from None
            os.dup2(found, number)
            os.close(found)

    # -- its control group

    def _make_group(self) -> None:
        """With its limits, or none at all: then it goes on as where there are no groups."""
        if not self._group:
            return
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._group)  # noqa: PTH102
            for name, value in self._limits.items():
                _write(f"{self._group}/{name}", value)
        except OSError:
            kill_group(self._group)
            self._group, self._limits = "", {}
            self._barred = "it has no control group that keeps others' accelerators from it" if self._devices else ""
            return
        if self._devices:
            try:
                attach_devices(self._group, self._devices)
            except OSError as error:
                self._barred = f"others' accelerators cannot be kept from it: {error.strerror}"
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):  # kernels differ in what they have
            if "memory.max" in self._limits:
                with contextlib.suppress(OSError):
                    _write(f"{self._group}/{name}", value)

    def _starved(self) -> bool:
        """Whether the kernel has ended something of it for want of memory."""
        with contextlib.suppress(OSError, ValueError):
            if "memory.max" in self._limits:
                said = _read(f"{self._group}/memory.events").split()
                return int(said[said.index(b"oom_kill") + 1]) > 0
        return False

    # -- watching

    def _watch(self, clock: float) -> None:
        limit, memory = self._work.get("time"), self._work.get("memory")
        if "memory.max" in self._limits:
            memory = None  # the kernel looks
        deadline = clock + float(str(limit)) if limit else None
        while not self._reap():
            now = time.monotonic()
            waits = [_SAMPLE] if memory and not self._outcome else []
            waits += [at - now for at in (self._kill_at, None if self._outcome else deadline) if at is not None]
            got = signal.sigtimedwait((signal.SIGTERM, signal.SIGCHLD), max(0.0, min(waits)) if waits else 3600.0)
            now = time.monotonic()
            if got is not None and got.si_signo == signal.SIGTERM:
                self._end("cancelled", "")
            elif deadline is not None and now >= deadline:
                self._end("timed-out", f"it ran for longer than {limit} s")
            elif memory and not self._outcome and _memory(_descendants()) > int(str(memory)) * 2**20:
                self._end("out-of-memory", f"it used more than {memory} MiB", at_once=True)
            if self._kill_at is not None and now >= self._kill_at:
                self._kill()
                self._kill_at = now + 1.0  # what was being forked meanwhile

    def _end(self, outcome: str, reason: str, *, at_once: bool = False) -> None:
        if self._outcome:
            return
        self._outcome, self._reason = outcome, reason
        now = time.monotonic()
        if at_once:
            self._kill()
            self._kill_at = now
        else:
            _signal(_descendants(), signal.SIGTERM)
            self._kill_at = now + float(str(self._work["grace"]))

    def _kill(self) -> None:
        if self._group:
            _end_all(self._group)
        _signal(_descendants(), signal.SIGKILL)

    def _reap(self) -> bool:
        """Bury the dead; whether the job itself is among them, now or before."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self._main:
                    self._status = status
        return self._status is not None

    def _sweep(self) -> None:
        """Nothing of the job is left behind. What was told to end has its time for that, also after its parent."""
        while self._kill_at is not None and time.monotonic() < self._kill_at and _descendants():
            signal.sigtimedwait((signal.SIGCHLD,), min(0.2, max(0.0, self._kill_at - time.monotonic())))
            self._reap()
        last = time.monotonic() + _LAST
        while _descendants() and time.monotonic() < last:
            self._kill()
            signal.sigtimedwait((signal.SIGCHLD,), 0.2)
            self._reap()


def attach_devices(group: str, program: bytes) -> None:
    """Have the kernel ask a small program for each opening of a device in a control group (v2)."""
    code, licence = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(b"Apache-2.0")
    places = (ctypes.addressof(code), ctypes.addressof(licence))
    loaded = _bpf(_LOAD, struct.pack("=IIQQ", _DEVICE_PROGRAM, len(program) // 8, *places).ljust(72, b"\0"))
    try:
        opened = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _bpf(_ATTACH, struct.pack("=IIII", opened, loaded, _DEVICE_GROUP, _BESIDE_OTHERS).ljust(32, b"\0"))
        finally:
            os.close(opened)
    finally:
        os.close(loaded)


def _bpf(what: int, told: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _BPF.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"not known how to on {os.uname().machine}")
    block = ctypes.create_string_buffer(told, len(told))
    done = int(libc.syscall(number, what, block, len(told)))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def _open(path: str, mode: int) -> int:
    """With the folders that lead there, where they are missing: most are not."""
    try:
        return os.open(path, mode, 0o644)
    except FileNotFoundError:
        if not mode & os.O_CREAT:
            raise
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, mode, 0o644)


def kill_group(path: str) -> None:
    """End whatever is in a control group, and remove it; one that only the kernel can hold is left."""
    last = time.monotonic() + _LAST
    while time.monotonic() < last:
        _end_all(path)
        try:
            os.rmdir(path)  # noqa: PTH106
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(0.02)  # what was ended takes a moment to be gone
        else:
            return


def _end_all(path: str) -> None:
    """By one word, where the kernel has it (5.14); else one after the other."""
    try:
        _write(f"{path}/cgroup.kill", "1")
    except OSError:
        with contextlib.suppress(OSError):
            _signal(
                [int(pid) for pid in Path(path, "cgroup.procs").read_text(encoding="ascii").split()], signal.SIGKILL
            )


def _write(path: str, text: str) -> None:
    """Into a file of the kernel's; it is there already."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _descendants() -> list[int]:
    """Everything below this process, by what the kernel keeps of children."""
    found: list[int] = []
    below = [os.getpid()]
    while below:
        parent = below.pop()
        try:
            for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208
                children = [int(word) for word in _read(f"/proc/{parent}/task/{thread}/children").split()]
                found += children
                below += children
        except OSError:
            pass  # it has just ended
    return found


def _memory(pids: list[int]) -> int:
    """Bytes of their own that they hold in memory."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            status = _read(f"/proc/{pid}/status").splitlines()
            held = (line.split() for line in status if line.startswith((b"RssAnon:", b"RssShmem:")))
            total += sum(int(words[1]) * 1024 for words in held)
    return total


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


if __name__ == "__main__":
    main()
