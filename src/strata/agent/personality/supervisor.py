"""Keeps one member running: starts it, sees when it is ready, starts it again with back-off, gives up after some tries.

One that was ready is looked at again and again. One that has stopped doing its work, and still runs, is told of and
left alone: jobs may run in it, and only the controller knows.

A thread of its own that sleeps in poll() on the member's end, its output and our wish to stop it. The member's output
is a named pipe that the member itself holds open at both ends: neither the member nor a line is lost with the agent.
"""

from __future__ import annotations

import base64
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ..errors import AgentError, CommandFailed
from ..files import load_json, save_json
from ..images.mounts import member_root, remove_member_root
from ..link.logs import Logs
from ..paths import Paths
from .container import Crun, end_process, hears, runtime_config
from .member import Member
from .ready import awaited, is_ready, lost, top

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WINDOW = 600.0
_LONGEST_PAUSE = 60.0
_STOP_WITHIN = 10.0
_KILL_WITHIN = 10.0
_SYSTEMD_HALT = 37  # SIGRTMIN+3: the way to ask systemd to end
_LINE = 4096
_DOUBTS = 3
"""Looks in a row at a member that was ready, after which it is believed that it is not."""
_DOUBT_PAUSE = 5.0


class Supervisor:
    """One member, from its start to the moment that its personality no longer wants it."""

    def __init__(
        self,
        member: Member,
        paths: Paths,
        crun: Crun,
        logs: Logs,
        image: Callable[[], Path],
        server: Callable[[], int | None],
        furnish: Callable[[str, str, Path], None],
        changed: Callable[[], None],
    ) -> None:
        """`furnish`: puts what is delivered to this node into a member's root (identifier, name, root)."""
        self.member = member
        self._paths = paths
        self._home = paths.members / member.identifier
        self.root = self._home / "rootfs"
        self.pid = 0
        """Its first process; 0: it has none now."""
        self._crun = crun
        self._logs = logs
        self._image = image
        self._server = server
        self._furnish = furnish
        self._changed = changed
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = threading.Event()
        self._settled = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._gone = -1  # readable once the member's first process has ended, and with it all others
        self._for_good = False
        self._refusal = ""
        self._pipe = -1
        self._partial = b""
        self._proved = False  # since it was started, it was ready once
        self._had: list[str] = []  # what its image has at the top
        self.over = False
        self.state = "idle"
        self.reason = ""
        self.restarts = 0
        self.since = time.time()

    def begin(self, pid: int | None = None) -> None:
        """Start the member, or take over one that already runs as `pid`."""
        if pid is not None:
            kept = load_json(self._home / "state.json")
            if isinstance(kept, dict):
                self.state, self.restarts, self.since = kept["state"], kept["restarts"], kept["since"]
                self.reason = str(kept.get("reason") or "")
                self._proved = bool(kept.get("proved", self.state == "active"))
                self._had = [str(name) for name in kept.get("had") or []]
        else:
            self._become("update")
        self._thread = threading.Thread(target=self._run, args=(pid,), name=f"member-{self.member.name}", daemon=True)
        self._thread.start()

    def end(self, *, for_good: bool = False) -> str:
        """Stop the member and remove what it wrote; why not, where it cannot be killed.

        Such a member stays ours. Once it is gone it is started again, unless it was to end for good.
        """
        with self._settled:
            if self._thread is None and not self.over:
                os.close(self._wake)
                self.over = True
            if self.over:
                return ""
            self._refusal = ""
            self._for_good = for_good
            self._stopping.set()
            os.eventfd_write(self._wake, 1)
            self._settled.wait_for(lambda: self.over or bool(self._refusal))
            return self._refusal

    def settle(self, seconds: float, cancelled: Callable[[], bool] = lambda: False) -> str:
        """Wait until the start is decided; the state then."""
        deadline = time.monotonic() + seconds
        with self._settled:
            while self.state == "update" and time.monotonic() < deadline and not cancelled():
                self._settled.wait(min(1.0, max(0.0, deadline - time.monotonic())))
            return self.state

    def report(self) -> dict[str, Any]:
        """As the controller is told."""
        return {
            "name": self.member.name, "state": self.state, "ready": self.state == "active",
            "restarts": self.restarts, "since": self.since, "reason": self.reason,
        }  # fmt: skip

    def exec_command(self, argv: list[str]) -> tuple[list[str], Callable[[], None]]:
        """How to run a command inside the member, and how to end it."""
        pid_file = self._home / f"exec-{threading.get_ident()}"
        return self._crun.exec_command(self.member.identifier, argv, pid_file), lambda: end_process(pid_file)

    def _run(self, pid: int | None) -> None:
        try:
            self._keep_running(pid)
        finally:
            self._become("idle")
            with self._settled:
                os.close(self._wake)
                self.over = True
                self._settled.notify_all()

    def _keep_running(self, pid: int | None) -> None:
        failures: deque[float] = deque()
        while not self._stopping.is_set():
            try:
                reason = self._watch(self._launch() if pid is None else pid)
            except (AgentError, OSError, subprocess.SubprocessError) as error:
                reason = str(error)
            pid = None
            self._insist()
            self._clear()
            if self._stopping.is_set():
                break
            now = time.monotonic()
            failures.append(now)
            while failures[0] < now - _WINDOW:
                failures.popleft()
            self._logs.say(f"member {self.member.name}: {reason}")
            if len(failures) > self.member.restart_most:
                self._become("fatal", f"{reason} (given up after {len(failures)} tries in {_WINDOW / 60:.0f} minutes)")
                self._sleep(None)
                break
            self._become("error", reason)
            self._sleep(min(_LONGEST_PAUSE, self.member.restart_backoff * 2.0 ** (len(failures) - 1)))
            self.restarts += 1

    def _launch(self) -> int:
        """Start the container; its first process."""
        self._proved = False
        self._logs.forget(self.member.name)
        remove_member_root(self._paths, self.member.identifier)  # an agent that was killed may have left half of one
        name = os.uname().nodename
        files = [{"path": "/etc/hostname", "content": base64.b64encode(name.encode() + b"\n").decode()}]
        files = (files if self.member.init else []) + self.member.files  # a full init takes its name from there
        image = self._image()
        self._had = top(image)
        root = member_root(self._paths, self.member.identifier, image, files)
        self._furnish(self.member.identifier, self.member.name, root)
        save_json(self._home / "config.json", runtime_config(self.member, root, name))
        pipe = self._home / "output"
        os.mkfifo(pipe)
        pipe.chmod(0o666)
        self._listen()
        output = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)  # both ends: the member never writes into nothing
        try:
            self._process = self._crun.start(self.member.identifier, self._home, output)
        finally:
            os.close(output)
        while True:
            ended = self._process.poll()
            try:
                return int((self._home / "pid").read_text())
            except (OSError, ValueError):
                if ended is not None:
                    self._read()
                    raise CommandFailed(self._ended(ended)) from None
            time.sleep(0.02)

    def _watch(self, pid: int) -> str:
        """Follow a running member until it ends or is told to; why it ended."""
        poll = select.poll()
        opened = []
        self.pid = pid
        try:
            self._gone = gone = os.pidfd_open(pid)
            self._listen()
            serving = self._server()
            if serving is not None:
                opened.append(os.pidfd_open(serving))
            for descriptor in (gone, *opened, self._pipe, self._wake):
                poll.register(descriptor, select.POLLIN)
            deadline, pause = time.monotonic() + self.member.ready_within, 0.05
            check_at, doubts = time.monotonic() + self._every(0), 0
            while True:
                waiting = not self._proved
                left = pause if waiting else max(0.0, check_at - time.monotonic())
                ready = {descriptor for descriptor, _ in poll.poll(left * 1000)}
                if self._pipe in ready:
                    self._read()
                if gone in ready:
                    self._read()
                    return self._ended(self._exit_status())
                if self._stopping.is_set():
                    self._stop(pid, gone)
                    return "stopped"
                if opened and opened[0] in ready:
                    return "the process that its image comes from ended"
                if not waiting and time.monotonic() >= check_at:
                    doubts = self._look_again(pid, doubts)
                    check_at = time.monotonic() + self._every(doubts)
                elif waiting and is_ready(self.member, pid, self._check()):
                    self._proved = True
                    self._become("active")
                    check_at = time.monotonic() + self._every(0)
                elif waiting and time.monotonic() > deadline:
                    self._stop(pid, gone)
                    tail = self._logs.tail(self.member.name)
                    why = f"not ready within {self.member.ready_within:g} s: {awaited(self.member)}"
                    return why + (f"; it said last: {tail}" if tail else "")
                pause = min(1.0, pause * 1.5)
        except ProcessLookupError:
            self._listen()
            self._read()
            return self._ended(self._exit_status())
        finally:
            self.pid = 0
            for descriptor in opened:
                os.close(descriptor)

    def _every(self, doubts: int) -> float:
        """Seconds until the next look at a member that was ready."""
        return min(self.member.ready_every, _DOUBT_PAUSE) if doubts else self.member.ready_every

    def _look_again(self, pid: int, doubts: int) -> int:
        """Whether a member that was ready still is; for how many looks in a row it is not."""
        why = lost(self.member, self._home / "memory/upper", self._had)
        if not why and not is_ready(self.member, pid, self._check()):
            why = awaited(self.member)
        if not why:
            if self.state != "active":
                self._logs.say(f"member {self.member.name}: it is ready again")
                self._become("active")
            return 0
        if doubts + 1 == _DOUBTS:
            self._logs.say(f"member {self.member.name}: it runs, and is not ready any more: {why}")
            self._become("error", f"it runs, and is not ready any more: {why}")
        elif self.state == "error" and time.time() - self.since > self.member.ready_within:
            # The controller knows whether jobs run here, and has it started anew if not.
            passed = f"not for {self.member.ready_within:g} s"
            self._become("fatal", f"it runs, and is not ready any more, {passed}: {why}")
        return doubts + 1

    def _check(self) -> list[str]:
        return self._crun.exec_command(self.member.identifier, self.member.ready_argv, self._home / "check")

    def _stop(self, pid: int, gone: int) -> None:
        """Ask, wait a while (its last words are read meanwhile), then insist; one that cannot hear is not asked."""
        wish = _SYSTEMD_HALT if self.member.init else signal.SIGTERM
        if not hears(pid, wish):
            return
        self._crun.kill(self.member.identifier, wish)
        poll = select.poll()
        for descriptor in (gone, self._pipe):
            poll.register(descriptor, select.POLLIN)
        deadline = time.monotonic() + _STOP_WITHIN
        while (left := deadline - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in poll.poll(left * 1000)}
            if self._pipe in ready:
                self._read()
            if gone in ready:
                return

    def _listen(self) -> None:
        if self._pipe < 0:
            self._pipe = os.open(self._home / "output", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _insist(self) -> None:
        """Kill what is left of the member. One that cannot be killed is waited for: another beside it would find its
        ports and devices taken, and readiness would be answered by the wrong one."""
        self._crun.delete(self.member.identifier)
        while self._gone >= 0 and not select.select([self._gone], [], [], _KILL_WITHIN)[0]:
            why = f"killed, and not gone after {_KILL_WITHIN:g} s: it waits in the kernel, for a device perhaps"
            self._logs.say(f"member {self.member.name}: {why}")
            self._become("error", why)
            with self._settled:
                if self._stopping.is_set():
                    os.eventfd_read(self._wake)
                    self._stopping.clear()
                    self._refusal = why
                    self._settled.notify_all()
            select.select([self._gone, self._wake], [], [])
            self._crun.delete(self.member.identifier)
        with self._settled:
            if self._for_good:
                self._stopping.set()

    def _clear(self) -> None:
        """Leave nothing of a member that ended."""
        if self._gone >= 0:
            os.close(self._gone)
            self._gone = -1
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        if self._process is not None:
            self._exit_status()
            self._process = None
        try:
            remove_member_root(self._paths, self.member.identifier)
        except AgentError as error:
            self._logs.say(f"member {self.member.name}: {error}")

    def _exit_status(self) -> int | None:
        """What crun ended with; None for a member that an earlier agent started."""
        if self._process is None:
            return None
        try:
            return self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _ended(self, status: int | None) -> str:
        tail = self._logs.tail(self.member.name)
        how = "ended" if status is None else f"ended with status {status if status >= 0 else 128 - status}"
        return how + (f": {tail}" if tail else "")

    def _read(self) -> None:
        for _ in range(16):  # the rest has its turn later: a chatty member must not keep us from seeing its end
            try:
                data = os.read(self._pipe, 65536)
            except BlockingIOError:
                return
            if not data:
                return
            *lines, self._partial = (self._partial + data).split(b"\n")
            if len(self._partial) > _LINE:
                lines.append(self._partial)
                self._partial = b""
            for line in lines:
                self._logs.add(self.member.name, line.decode("utf-8", "replace"))

    def _sleep(self, seconds: float | None) -> None:
        if not self._stopping.is_set():
            select.select([self._wake], [], [], seconds)

    def _become(self, state: str, reason: str = "") -> None:
        with self._settled:
            self.state, self.reason, self.since = state, reason[:1000], time.time()
            self._settled.notify_all()
        if self._home.is_dir():
            kept = {"state": state, "reason": self.reason, "restarts": self.restarts, "since": self.since}
            save_json(self._home / "state.json", {**kept, "proved": self._proved, "had": self._had})
        self._changed()
