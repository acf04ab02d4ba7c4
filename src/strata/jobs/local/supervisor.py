"""Runs the jobs of this machine, each under a supervisor of its own. A program: standard library only, starts fast.

The service starts it once, and tells it on standard input which task to run: a line of JSON with the job's folder, the
task's name and what is added to its environment. It forks a supervisor for it and answers with a line that has its pid.
Supervisors outlive the service and this program. What became of a task is in the job's folder, which only the service's
account may enter::

    work.json     what to run, as whom, and how long
    NAME.pid      the supervisor: pid, start, boot. Whoever creates it runs the task; nobody runs it twice
    NAME.end      how the task ended

A supervisor adopts whatever its job leaves behind, so that nothing of a job outlives it. SIGTERM ends the job.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path

Json = dict[str, object]

_SET_CHILD_SUBREAPER = 36
_SET_PDEATHSIG = 1
_SAMPLE = 0.5
"""Seconds between two looks at the memory of a job that has a limit."""
_LAST = 20.0
"""Seconds after SIGKILL after which whatever is still there is left: only the kernel can hold it."""
_PATH = "/usr/local/bin:/usr/bin:/bin"
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
        pid = os.fork()
        if pid == 0:
            _become_supervisor(str(order["folder"]), str(order["name"]), order["env"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGCHLD))
        sys.stdout.write(json.dumps({"pid": pid}) + "\n")
        sys.stdout.flush()


def _become_supervisor(folder: str, name: str, env: dict[str, str]) -> None:
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.close(nothing)
        os.chdir(folder)
        if _claimed(name):
            work = json.loads(Path("work.json").read_bytes())
            work["env"].update(env)
            _save(f"{name}.end", Supervisor(work, name).run())
    finally:
        os._exit(0)


def _claimed(name: str) -> bool:
    """Whether this process is the one that runs the task."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    told = {"pid": os.getpid(), "started": int(stat.rpartition(")")[2].split()[19]), "boot": boot}
    scratch = Path(f"{name}.{os.getpid()}.new")
    scratch.write_text(json.dumps(told), encoding="ascii")
    try:
        Path(f"{name}.pid").hardlink_to(scratch)
    except FileExistsError:
        return False
    finally:
        scratch.unlink()
    return True


def _save(path: str, data: Json) -> None:
    scratch = Path(f"{path}.new")
    scratch.write_text(json.dumps(data), encoding="utf-8")
    scratch.replace(path)


class Supervisor:
    """One task's life."""

    def __init__(self, work: Json, name: str) -> None:
        self._work = work
        self._name = name
        self._main = 0
        self._status: int | None = None
        self._outcome = ""
        self._reason = ""
        self._kill_at: float | None = None

    def run(self) -> Json:
        """Run it to its end, and tell of that."""
        began, clock = time.time(), time.monotonic()
        _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
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
                raise PermissionError("no job runs as root")
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
                    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    mode |= os.O_CREAT | os.O_TRUNC
                found = os.open(path, mode, 0o644)
            except OSError as error:
                raise OSError(error.errno, f"{path}: {error.strerror}") from None
            os.dup2(found, number)
            os.close(found)

    # -- watching

    def _watch(self, clock: float) -> None:
        limit, memory = self._work.get("time"), self._work.get("memory")
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
                _signal(_descendants(), signal.SIGKILL)
                self._kill_at = now + 1.0  # what was being forked meanwhile

    def _end(self, outcome: str, reason: str, *, at_once: bool = False) -> None:
        if self._outcome:
            return
        self._outcome, self._reason = outcome, reason
        now = time.monotonic()
        if at_once:
            _signal(_descendants(), signal.SIGKILL)
            self._kill_at = now
        else:
            _signal(_descendants(), signal.SIGTERM)
            self._kill_at = now + float(str(self._work["grace"]))

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
        while (left := _descendants()) and time.monotonic() < last:
            _signal(left, signal.SIGKILL)
            signal.sigtimedwait((signal.SIGCHLD,), 0.2)
            self._reap()


def _descendants() -> list[int]:
    """Everything below this process, by what the kernel keeps of children."""
    found: list[int] = []
    below = [os.getpid()]
    while below:
        parent = below.pop()
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = [int(word) for word in (thread / "children").read_text(encoding="ascii").split()]
                found += children
                below += children
    return found


def _memory(pids: list[int]) -> int:
    """Bytes of their own that they hold in memory."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
            held = (line.split() for line in status if line.startswith(("RssAnon:", "RssShmem:")))
            total += sum(int(words[1]) * 1024 for words in held)
    return total


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


if __name__ == "__main__":
    main()
