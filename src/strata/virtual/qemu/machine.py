"""One machine: a QEMU process that outlives whoever started it, and is found again.

Knows nothing of Redfish. ``booted`` is told when the firmware begins (at a start and at every reset, the guest's own
included), ``changed`` when the process began (True) or ended (False).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strata.core import process as ps
from strata.core.errors import DeviceError, StrataError, Unavailable
from strata.virtual.qemu import command as qemu
from strata.virtual.qemu.actions import Actions
from strata.virtual.qemu.description import MachineDescription, guest_mark
from strata.virtual.qemu.lifeline import Lifeline
from strata.virtual.qemu.network import tool
from strata.virtual.qemu.qmp import Qmp
from strata.virtual.qemu.serial import Serial
from strata.virtual.qemu.sockets import listening, short

CONTROL, LINE, LOG, PROCESS = "control.socket", "line.socket", "qemu.log", "qemu.process"
"""Names in a node's folder."""
_KILL_PATIENCE = 20.0


class Machine:
    """One node's process. Actions come one after the other, each to its end."""

    def __init__(self, node: MachineDescription, chassis: str, home: Path, serial: Serial) -> None:
        self.node = node
        self.home = home
        self.serial = serial
        self.changed: Callable[[bool], None] = lambda on: None
        self.booted: Callable[[], None] = lambda: None
        self._chassis = chassis
        self._actions = Actions(node.name)
        self._first = ""
        self._http = False
        self._ordering = asyncio.Lock()
        self._life: Lifeline | None = None
        self._announced = False
        self._qmp: Qmp | None = None
        self._ending: set[Qmp] = set()
        self._starting = False
        self._missed: set[str] = set()
        self._return: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether its process runs: what power is, for such a machine."""
        return self._life is not None and self._life.look()

    @property
    def process(self) -> ps.Process | None:
        """Its process, while that runs."""
        return self._life.process if self._life is not None and self._life.look() else None

    @property
    def medium(self) -> Path:
        """The file behind its CD drive; not there while the drive is empty."""
        return self.home / qemu.MEDIUM

    # -- finding and leaving

    async def find(self) -> None:
        """Take up the process that was started earlier, if it still runs."""
        found = ps.load(self.home / PROCESS)
        if found is None or not found.alive:
            # Whoever started it may have died before it could write that down.
            found = next(iter(ps.with_argument(f"{guest_mark(self._chassis, self.node.name)},")), None)
        if found is None:
            return
        try:
            told = Path("/proc", str(found.pid), "cmdline").read_bytes()
            life = Lifeline(found, self._ended)
        except (FileNotFoundError, ProcessLookupError):
            return  # it ended just now
        if not found.alive:
            life.close()  # it did, and its number may be another's already
            return
        self._http = b"IPv4PXESupport" in told
        self._life, self._announced = life, True
        await self._connect(life)

    async def leave(self) -> None:
        """Let go of it. The process goes on."""
        await self._actions.stop()
        if self._life is not None:
            self._life.close()
        if self._qmp is not None:
            self._ending.add(self._qmp)
            self._qmp = None
        for qmp in list(self._ending):
            await qmp.close()
        await self.serial.disconnect()

    # -- power

    async def start(self) -> None:
        """Power on, if it is off."""

        async def work() -> None:
            if not self.alive:
                await self._start()

        await self._actions.alone(work)

    async def kill(self) -> None:
        """Power off, at once, if it is on."""
        self._stay_off()
        await self._actions.alone(self._kill)

    async def restart(self) -> None:
        """The reset button."""

        async def work() -> None:
            if not self.alive:
                raise DeviceError("it is off", node=self.node.name)
            if self._must_restart:
                await self._kill()
                await self._start()
            else:
                await self._ask("system_reset")

        await self._actions.alone(work)

    async def cycle(self) -> None:
        """Off and on; on, if it was off."""

        async def work() -> None:
            await self._kill()
            await self._start()

        await self._actions.alone(work)

    async def press(self) -> None:
        """The power button: an operating system that listens shuts down."""
        self._stay_off()
        await self._ask("system_powerdown")

    async def press_and_return(self, patience: float) -> None:
        """The power button, and on again in the background if the machine goes off within ``patience`` seconds. Whoever
        switches it off meanwhile wants it off."""
        life = self._life
        await self.press()
        if life is not None:
            self._return = self._actions.later(self._start_after(life, patience))

    async def nmi(self) -> None:
        """A non-maskable interrupt."""
        await self._ask("inject-nmi")

    # -- what it boots from

    async def boot_from(self, first: str) -> None:
        """Try this before anything else, from the next reset on: ``cd``, ``http``, or empty for the usual order."""
        self._first = first
        async with self._ordering:
            if self._starting:
                self._missed.add("boot")
            elif self.alive and self._qmp is not None:
                await self._put_cd(qemu.FIRST if self._first == "cd" else qemu.CD_AT)

    async def medium_changed(self) -> None:
        """There is another file behind the CD drive, or none."""
        if self._starting:
            self._missed.add("medium")
        elif not self.alive:
            return
        elif self.medium.exists():
            more = {"filename": str(self.medium), "format": "raw", "read-only-mode": "read-only"}
            await self._ask("blockdev-change-medium", id="cd0", **more)
        else:
            await self._ask("eject", id="cd0", force=True)

    # -- how

    async def _put_cd(self, place: int) -> None:
        """Give the CD drive this place in the boot order."""
        where = {"path": "/machine/peripheral/cd0", "property": "bootindex"}
        # QEMU refuses every place that is taken, by the drive itself as well.
        if await self._ask("qom-get", **where) != place:
            await self._ask("qom-set", **where, value=place)

    @property
    def _must_restart(self) -> bool:
        """Whether a reset would not do: what the firmware may boot over is fixed when QEMU starts."""
        return (self._first == "http") != self._http

    async def _start(self) -> None:
        self._http = self._first == "http"
        self._starting, self._missed = True, set()
        try:
            await asyncio.to_thread(self._prepare)
            told = qemu.command(
                tool(qemu.PROGRAM, qemu.PACKAGE), self.node, self._chassis, self.home,
                cd_first=self._first == "cd", http=self._http, medium=self.medium.exists(),
            )  # fmt: skip
            with listening(self.home / CONTROL) as control, listening(self.home / LINE) as line:
                started = ps.spawn(told, {"PATH": os.environ.get("PATH", "")}, self.home / LOG, (control, line))
            self._life = life = Lifeline(started, self._ended)
            try:
                started.save(self.home / PROCESS)
                await self._connect(life)
            except (OSError, StrataError) as error:
                await self._kill()
                raise DeviceError(f"QEMU did not start: {self._last_words() or error}", node=self.node.name) from None
        finally:
            self._starting = False
        self._announced = True
        self.changed(True)
        self.booted()
        if "boot" in self._missed:
            self._actions.later(self.boot_from(self._first))
        if "medium" in self._missed:
            self._actions.later(self.medium_changed())

    def _prepare(self) -> None:
        (self.home / LOG).unlink(missing_ok=True)
        store = qemu.store(self.home, http=self._http)
        if self.node.firmware == "uefi" and not store.exists():
            scratch = store.with_suffix(".new")
            shutil.copyfile(qemu.VARIABLES, scratch)
            scratch.replace(store)

    async def _connect(self, life: Lifeline) -> None:
        """Take up its control channel and its serial line. Raises if it ended meanwhile."""
        with short(self.home / CONTROL) as path:
            qmp = await Qmp.open(path, lambda event: self._heard(life, event))
        if not life.look():
            qmp.drop()
            raise DeviceError("it ended", node=self.node.name)
        self._qmp = qmp
        with short(self.home / LINE) as path:
            await self.serial.connect(path)
        if not life.look():
            raise DeviceError("it ended", node=self.node.name)

    def _ended(self) -> None:
        self._life = None
        qmp, self._qmp = self._qmp, None
        if qmp is not None:
            # A reply that came just before the end is one: whoever asked the guest to shut down waits for it.
            self._ending.add(qmp)
            qmp.let_end(self._ending.discard)
        if self._announced:
            self._announced = False
            self.changed(False)

    async def _kill(self) -> None:
        life = self._life
        if life is None or not life.look():
            return
        life.kill()
        try:
            async with asyncio.timeout(_KILL_PATIENCE):
                await life.ended.wait()
        except TimeoutError:
            raise Unavailable(f"it did not end within {_KILL_PATIENCE:g} s", where=self.node.name) from None

    async def _start_after(self, life: Lifeline, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                await life.ended.wait()
        except TimeoutError:
            return
        await self.start()

    def _stay_off(self) -> None:
        """Forget that it was to come back by itself."""
        if self._return is not None:
            self._return.cancel()
            self._return = None

    def _heard(self, life: Lifeline, event: str) -> None:
        # What is read of a process that has ended is no news: its next start may be long over, or not wanted.
        if event != "RESET" or not life.look():
            return
        if self._must_restart:
            self._actions.later(self._replace(life))
        else:
            self.booted()

    async def _replace(self, life: Lifeline) -> None:
        """Start it anew for what its firmware may boot over, unless it was switched meanwhile."""

        async def work() -> None:
            if self._must_restart and life.look():
                await self._kill()
                await self._start()

        await self._actions.alone(work)

    async def _ask(self, name: str, **arguments: object) -> Any:
        if not self.alive:
            raise DeviceError("it is off", node=self.node.name)
        if self._qmp is None:
            raise Unavailable("its control channel is not there", where=self.node.name)
        return await self._qmp.ask(name, **arguments)

    def _last_words(self) -> str:
        try:
            return (self.home / LOG).read_text(errors="replace").strip()[-500:]
        except OSError:
            return ""
