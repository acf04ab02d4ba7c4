"""The agent of one node: its parts put together, and the order in which they start."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from . import VERSION
from .boot import Boot, learn_controllers
from .commands import Commands, Job
from .delivery.delivery import Delivery
from .errors import AgentError, CommandFailed, Refused
from .files import read_text
from .host.checks import Checks
from .host.execs import run_exec
from .host.health import Health
from .host.metrics import Metrics
from .host.power import restart
from .host.secrets import Secrets
from .images.damage import damage
from .link.exchange import Exchange
from .link.http import post
from .link.identity import Identity
from .link.logs import Logs
from .paths import Paths
from .personality.runner import Runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

_LONGEST_PAUSE = 30.0
_INVENTORY_EVERY = 900.0
_INVENTORY_APART = 5.0
"""Seconds between two looks at the hardware, however often members change: a driver takes some to start, too."""


class Node:
    """Enrols, attaches, and carries out what its controller says, until the machine goes down."""

    def __init__(self, boot: Boot, paths: Paths, crun: tuple[str, ...] = ("crun",)) -> None:
        self._boot = boot
        self._paths = paths
        self._started = time.time()
        self._boot_id = read_text(paths.proc("sys/kernel/random/boot_id"), 64)
        self.logs = Logs()
        self._identity = Identity(boot, paths)
        self._metrics = Metrics(paths)
        self._health = Health(paths)
        self._attached = threading.Event()
        self._hardware = threading.Event()
        """Set where the hardware is to be looked at again: drivers of accelerators come with what a node runs."""
        self.exchange = Exchange(boot.controllers, self._identity, self._report, self._take, self._learn, self.logs.say)
        self.personality = Runner(
            paths, self._identity, boot.controllers, self.logs, self._furnish, self._member_changed, crun
        )
        say, changed = self.logs.say, self.exchange.changed
        self.delivery = Delivery(
            paths, self.personality.members, lambda: self._post("/agent/v1/overlay", {}), say, changed
        )
        self._secrets = Secrets(paths, lambda have: self._post("/agent/v1/secrets", have), say, changed)
        self._checks = Checks(paths, self._health, self._place, changed)
        handlers = {
            "load": self.personality.load,
            "start": self.personality.start,
            "stop": self.personality.stop,
            "switch": self.personality.switch,
            "configure": self.delivery.configure,
            "exec": self._exec,
            "limits": self._limits,
            "secrets": self._fetch_secrets,
            "checks": self._checks.take,
            "check": self._checks.now,
            "reboot": self._reboot,
        }
        self._commands = Commands(paths, handlers, changed)

    def run(self) -> None:
        """Never returns on a node."""
        self.personality.recover()
        self._enrol()
        for work in (self._secrets.run, self._send_logs, self._afterwards, self.delivery.run, self._checks.run):
            threading.Thread(target=work, name=work.__qualname__, daemon=True).start()
        self.exchange.run()

    def _enrol(self) -> None:
        """Redeem the boot's token at whichever controller answers; a token that is refused needs a new boot."""
        pause = 0.5
        while not self._identity.issued:
            for url in self._boot.controllers:
                try:
                    self._identity.redeem(url)
                    return
                except Refused as error:
                    self.logs.say(f"the boot token was not accepted: {error}")
                    if error.status == 403:
                        self.logs.say("rebooting in 60 s: a new boot brings a new token")
                        time.sleep(60)
                        restart()
                except AgentError as error:
                    self.logs.say(f"not enrolled yet: {error}")
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def _report(self) -> dict[str, Any]:
        results, doing = self._commands.results(), self._commands.doing()
        state = {  # after the results: a command that is told as done shows in the state that comes with it
            "uptime": float((read_text(self._paths.proc("uptime"), 64).split() or ["0"])[0]),
            "agent": {"version": VERSION, "started": self._started, "cpu_s": round(time.process_time(), 3)},
            "profile": self._boot.profile,
            "set": self.personality.report(),
            "loaded": self.personality.loaded(),
            "images": self.personality.images(),
            "damaged": damage(self._paths),
            "config": self.delivery.report(),
            "secrets": self._secrets.held(),
            "health": self._health.read(),
            "checks": self._checks.report(),
            "metrics": self._metrics.read(),
        }
        return {
            "generation": self._boot.generation,
            "boot_id": self._boot_id,
            "state": state,
            "results": results,
            "doing": doing,
        }

    def _take(self, reply: dict[str, Any], date: str) -> None:
        self._attached.set()
        self._health.clock(date)
        self._commands.take(reply)

    def _learn(self, controllers: str) -> None:
        if learn_controllers(self._boot, controllers, self._paths):
            self.logs.say(f"there are more controllers now: {', '.join(self._boot.controllers)}")

    def _send_logs(self) -> None:
        def send(lines: list[Any]) -> None:
            self._post("/agent/v1/log", {"lines": lines})

        self.logs.run(send)

    def _afterwards(self) -> None:
        """What may come after the first report: an earlier kernel's last words, the inventory when it changes, and a
        kernel for when this one crashes."""
        self._attached.wait()
        from .host.crash import load_crash_kernel, report_crash
        from .host.inventory import inventory

        report_crash(self._paths, self.logs)
        told = None
        while True:
            now = inventory(self._paths)
            if now != told:
                try:
                    self._post("/agent/v1/inventory", now)
                    told = now
                except AgentError as error:
                    self.logs.say(f"the inventory was not taken: {error}")
            try:
                if load_crash_kernel(self._boot.minos, self._paths):
                    self.logs.say("a crash kernel is loaded")
            except AgentError as error:
                self.logs.say(f"no crash kernel: {error}")
            time.sleep(_INVENTORY_APART)
            self._hardware.wait(_INVENTORY_EVERY if told == now else _LONGEST_PAUSE)
            self._hardware.clear()

    def _post(self, path: str, value: object) -> dict[str, Any]:
        return post(self.exchange.url, path, value, self._identity.context())

    def _furnish(self, identifier: str, name: str, root: Path) -> None:
        self.delivery.furnish(identifier, name, root)

    def _member_changed(self) -> None:
        self.delivery.poke()
        self._hardware.set()
        self.exchange.changed()

    def _fetch_secrets(self, job: Job) -> dict[str, Any]:
        self._secrets.fetch()
        return {}

    def _exec(self, job: Job) -> dict[str, Any]:
        argv = [str(word) for word in job.command.get("argv") or []]
        if not argv:
            raise CommandFailed("exec: no command given")
        before, end, _ = self._place(str(job.command.get("where") or ""))
        return run_exec(job, [*before, *argv], end)

    def _place(self, where: str) -> tuple[list[str], Callable[[], None], Path]:
        """Where somebody wants to run or see something: a member, the first of them, or the minimal OS. What stands
        before a command there, what ends it, and a process there as procfs shows it."""
        member = None if where == "minos" else self.personality.member(where)
        if member is None:
            return [], lambda: None, self._paths.proc("self")
        if not member.pid:
            raise CommandFailed(f"member {member.member.name} has no process now")
        return *member.exec_command([]), self._paths.proc(str(member.pid))

    def _limits(self, job: Job) -> dict[str, Any]:
        from .host.limits import Limits

        return Limits(self._paths).apply(job.command)

    def _reboot(self, job: Job) -> dict[str, Any]:
        """The controller learns of it before it happens: the result is due first."""
        threading.Thread(target=self._reboot_soon, name="reboot", daemon=True).start()
        return {}

    def _reboot_soon(self) -> None:
        time.sleep(2)
        self.personality.end()
        restart()
