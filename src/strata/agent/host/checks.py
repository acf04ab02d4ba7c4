"""Checks that the controller declared: each run at its interval, with limits; what fails is told when it changes."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ..commands import Job
from ..errors import AgentError, CommandFailed
from ..files import load_json, read_number, read_text, save_json
from ..paths import Paths
from .accelerators import Detector
from .execs import run_exec
from .health import Health, full, memory_errors
from .metrics import meminfo
from .nvml import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Spec = dict[str, Any]
    Place = Callable[[str], tuple[list[str], Callable[[], None], Path]]
    """Where a check looks (`minos`, a member, or the first of them): what stands before a command that is run there,
    what ends such a command, and the directory in procfs of a process there. Raises `CommandFailed`."""

_MOST_CHECKS = 64
_MOST_REASON = 300
_LONGEST_PAUSE = 30.0
_LIMITED = 'ulimit -v "$0" && exec "$@"'
"""Run by a shell: the limit holds for whatever it becomes, and nothing of ours runs between fork and exec."""


class _Unready(Exception):
    """It cannot be known now: what it looks at is not there yet."""


class _Check:
    """One check: what it is, and how it went."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.name = str(spec["name"])
        self.every = max(1.0, float(spec.get("every") or 60))
        self.timeout = max(0.1, float(spec.get("timeout") or 30))
        self.tries = max(1, int(spec.get("tries") or 1))
        self.passes = max(1, int(spec.get("passes") or 1))
        # Not all nodes at once: what they look at may be shared.
        self.due = time.monotonic() + self.every * os.urandom(1)[0] / 256
        self.running: threading.Thread | None = None
        self.overdue = 0.0
        self.ran = False
        self.reason = ""
        """Why it fails; empty: it does not. The one of when it began to: numbers in it would be news every time."""
        self.run = 0
        """How often it was run."""
        self._failed = self._passed = 0

    def note(self, reason: str) -> bool:
        """It has run, and this was wrong; whether that is news."""
        before = (self.ran, bool(self.reason))
        self.ran = True
        if reason:
            self._failed, self._passed = self._failed + 1, 0
            if self._failed >= self.tries and not self.reason:
                self.reason = reason[:_MOST_REASON]
        else:
            self._failed, self._passed = 0, self._passed + 1
            if self._passed >= self.passes or not before[0]:
                self.reason = ""
        return before != (self.ran, bool(self.reason))

    def forget(self) -> None:
        """It counts anew from now on: one run decides."""
        self.ran, self.reason = False, ""
        self._failed = self.tries - 1


class Checks:
    """Runs the checks of this node. `changed` is called when something is worth telling."""

    def __init__(self, paths: Paths, health: Health, place: Place, changed: Callable[[], None]) -> None:
        self._paths = paths
        self._health = health
        self._place = place
        self._changed = changed
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._digest = ""
        self._checks: dict[str, _Check] = {}
        kept = load_json(paths.checks)
        if isinstance(kept, dict):
            self._set(kept)

    # -- what the controller says

    def take(self, job: Job) -> dict[str, Any]:
        """Run these from now on, and no others. One that is as before goes on as it was."""
        told = {"digest": str(job.command.get("digest") or ""), "checks": job.command.get("checks") or []}
        with self._wake:
            self._set(told)
            self._wake.notify_all()
        save_json(self._paths.checks, told)
        return {}

    def now(self, job: Job) -> dict[str, Any]:
        """Run all of them now, and tell what came of each."""
        with self._wake:
            wanted = {check: check.run for check in self._checks.values()}
            for check in wanted:
                check.forget()
                check.due = 0.0
            self._wake.notify_all()
            deadline = time.monotonic() + float(job.command.get("timeout") or 60)
            while any(check.run == run for check, run in wanted.items()) and not job.cancelled.is_set():
                if (left := deadline - time.monotonic()) <= 0:
                    break
                self._wake.wait(min(left, 1.0))
            found = {check.name: check.reason if check.ran else None for check in wanted}
        self._changed()
        return {"output": base64.b64encode(json.dumps(found).encode()).decode()}

    def report(self) -> dict[str, Any]:
        """What the controller is told in every exchange."""
        with self._lock:
            checks = list(self._checks.values())
            failing = {check.name: check.reason for check in checks if check.reason}
            return {"digest": self._digest, "ran": all(check.ran for check in checks), "failing": failing}

    def _set(self, told: Spec) -> None:
        self._digest = str(told.get("digest") or "")
        before, self._checks = self._checks, {}
        for spec in list(told.get("checks") or [])[:_MOST_CHECKS]:
            try:
                fresh = _Check(dict(spec))
            except (KeyError, TypeError, ValueError):
                continue  # the controller has checked them; one of another version is not run, and never counts as run
            old = before.get(fresh.name)
            self._checks[fresh.name] = old if old is not None and old.spec == fresh.spec else fresh

    # -- running them

    def run(self) -> None:
        """For ever: start what is due, and give up on what takes too long."""
        while True:
            self.step(_LONGEST_PAUSE)

    def step(self, longest: float) -> None:
        """One round: start what is due, note what is overdue, wait for the next at most so long."""
        with self._wake:
            now = time.monotonic()
            for check in self._checks.values():
                if check.running is not None:
                    if now >= check.overdue > 0:
                        check.overdue = 0.0  # told once; a process of it was ended, a look at a dead server hangs on
                        self._note(check, f"did not end within {check.timeout:g} s")
                elif now >= check.due:
                    check.due, check.overdue = now + check.every, now + check.timeout + 5.0
                    check.running = threading.Thread(
                        target=self._go, args=(check,), name=f"check-{check.name}", daemon=True
                    )
                    check.running.start()
            moments = [c.overdue if c.running is not None else c.due for c in self._checks.values()]
            soonest = min((moment for moment in moments if moment > 0), default=now + longest)
            self._wake.wait(max(0.0, min(soonest - time.monotonic(), longest)))

    def _go(self, check: _Check) -> None:
        reason: str | None
        try:
            reason = self._look(check)
        except _Unready:
            reason = None
        except AgentError as error:
            reason = str(error)
        except Exception as error:  # whatever a check meets, the agent goes on and says so
            reason = f"{type(error).__name__}: {error}"
        with self._wake:
            check.running = None
            if check.overdue > 0:  # else it was given up already
                check.overdue = 0.0
                if reason is not None:
                    self._note(check, reason)
            check.run += 1
            self._wake.notify_all()

    def _note(self, check: _Check, reason: str) -> None:
        if check.note(reason) and self._checks.get(check.name) is check:
            self._changed()

    def _look(self, check: _Check) -> str:
        spec = check.spec
        looks: dict[str, Callable[[Spec], str]] = {
            "script": lambda spec: self._script(check),
            "filesystem": self._filesystem,
            "memory": self._memory,
            "accelerators": self._accelerators,
            "network": self._network,
            "time": self._time,
            "machine": self._machine,
        }
        look = looks.get(str(spec.get("kind")))
        if look is None:
            raise _Unready
        return look(spec)

    # -- what there is to look at; each says what is wrong, or nothing

    def _script(self, check: _Check) -> str:
        spec = check.spec
        argv = [str(word) for word in spec.get("command") or []] or ["/bin/sh", "-c", str(spec.get("script") or "")]
        memory = int(spec.get("memory") or 0)
        if memory:
            argv = ["/bin/sh", "-c", _LIMITED, str(max(1, memory >> 10)), *argv]
        before, end, _ = self._where(spec)
        job = Job({"id": check.name, "kind": "check", "timeout": check.timeout})
        result = run_exec(job, [*before, *argv], end)
        if result["ok"]:
            return ""
        said = base64.b64decode(result["output"]).decode("utf-8", "replace").strip().splitlines()
        last = "".join(c if c.isprintable() else " " for c in said[-1]) if said else ""
        return f"{last[:200]} ({result['error']})" if last else str(result["error"])

    def _filesystem(self, spec: Spec) -> str:
        path = "/" + str(spec.get("path") or "/").strip("/")
        _, _, process = self._where(spec)
        mounted = {}
        for line in read_text(process / "mounts", 1 << 20).splitlines():
            words = [*line.split(" "), "", "", "", ""]
            mounted[words[1].replace("\\040", " ")] = words[3].split(",")
        if spec.get("mounted", True) and path not in mounted:
            return f"{path} is not mounted"
        if spec.get("writable", True) and "ro" in mounted.get(path, ()):
            return f"{path} is read-only"
        try:
            return full(path, f"{process}/root{path}", float(spec.get("least_free") or 0) / 100)
        except OSError as error:
            return f"{path}: {error.strerror or error}"

    def _memory(self, spec: Spec) -> str:
        least, total = int(spec.get("least") or 0), meminfo(self._paths).get("MemTotal", 0)
        if total < least:
            return f"it has {total >> 20} MiB of memory; at least {least >> 20} are expected"
        return next(iter(memory_errors(self._paths, int(spec.get("most_corrected", 1000)))), "")

    def _accelerators(self, spec: Spec) -> str:
        detector = Detector(self._paths, load(self._paths))
        if problems := detector.problems():
            return "; ".join(f"accelerator {name} {', '.join(wrong)}" for name, wrong in problems.items())
        found = detector.accelerators()
        count = int(spec.get("count") or 0)
        return f"{len(found)} of {count} accelerators" if len(found) < count else ""

    def _network(self, spec: Spec) -> str:
        name, least = str(spec.get("interface") or ""), int(spec.get("least_mbit") or 0)
        top = self._paths.sys("class/net")
        found = [top / name] if name else [one for one in sorted(top.glob("*")) if (one / "device").exists()]
        for one in found:
            if not one.exists():
                return f"there is no {one.name}"
            state = read_text(one / "operstate", 16)
            if state not in ("up", "unknown"):
                return f"{one.name} is {state or 'not to be read'}"
            speed = read_number(one / "speed") or 0
            if least and speed < least:
                return f"{one.name} runs at {speed} Mbit/s; at least {least} are expected"
        wrong = {} if name else Detector(self._paths).fabric_problems()
        return "; ".join(f"{adapter} {', '.join(said)}" for adapter, said in wrong.items())

    def _time(self, spec: Spec) -> str:
        off, most = self._health.clock_off, float(spec.get("most") or 1)
        return f"the clock is {off:+.1f} s off the controller's" if abs(off) > most else ""

    def _machine(self, spec: Spec) -> str:
        problems: list[str] = self._health.read()["problems"]
        return "; ".join(problems)

    def _where(self, spec: Mapping[str, Any]) -> tuple[list[str], Callable[[], None], Path]:
        try:
            return self._place(str(spec.get("where") or ""))
        except CommandFailed:
            raise _Unready from None
