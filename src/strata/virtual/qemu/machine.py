"""One machine: a QEMU process that outlives whoever started it, and is found again.

Knows nothing of Redfish. ``booted`` is told when the firmware begins (at a start and at every reset, the guest's own
included), ``changed`` when the process began (True) or ended (False).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from strata.core.errors import DeviceError, StrataError, Unavailable
from strata.core.host import process as ps
from strata.virtual.qemu import command as qemu
from strata.virtual.qemu.description import MachineDescription, guest_mark
from strata.virtual.qemu.network import tool
from strata.virtual.qemu.qmp import Qmp
from strata.virtual.qemu.serial import Serial

_log = logging.getLogger(__name__)
_END_PATIENCE = 5.0
"""Seconds for what is being done to the machine when its BMC ends."""


class Actions:
    """The actions on the machine called ``name``. ``stop`` it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = asyncio.Lock()
        self._acts: set[asyncio.Task[None]] = set()
        self._aside: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Let what is being done come to its end if that is soon; end all the rest."""
        await end_all(self._aside)
        if self._acts:
            await asyncio.wait(self._acts, timeout=_END_PATIENCE)
        await end_all(self._acts)
        await end_all(self._aside)  # what those may have left behind

    async def alone(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it alone, and to its end even if whoever asked is gone: half a power cycle is a machine that is off."""

        async def act() -> None:
            async with self._lock:
                await work()

        task = asyncio.get_running_loop().create_task(act())
        self._acts.add(task)
        task.add_done_callback(self._acted)
        await asyncio.shield(task)

    def later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it beside all else; what goes wrong is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._done)
        return task

    def _acted(self, task: asyncio.Task[None]) -> None:
        self._acts.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked has it, if there is anybody still

    def _done(self, task: asyncio.Task[None]) -> None:
        self._aside.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s: %s", self._name, task.exception())


async def end_all(tasks: set[asyncio.Task[Any]]) -> None:
    """End these, and wait until they have."""
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Lifeline:
    """A process, our child or not. ``told`` is called once, when it has ended with all its threads."""

    def __init__(self, process: ps.Process, told: Callable[[], None]) -> None:
        self.process = process
        self.ended = asyncio.Event()
        self._told = told
        self._handle = os.pidfd_open(process.pid)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)
        asyncio.get_running_loop().add_reader(self._handle, self.look)

    def look(self) -> bool:
        """Whether it runs. Whoever asks also has an end told that the loop has not come to yet."""
        # Not by /proc: there, a process is a zombie as soon as its first thread is, and still holds its devices.
        if self._handle >= 0 and self._poll.poll(0):
            self.close()
            ps.reap(self.process)
            self.ended.set()
            self._told()
        return not self.ended.is_set()

    def kill(self) -> None:
        """End it at once; ``ended`` tells when it has."""
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def close(self) -> None:
        """Watch no longer. The process goes on."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            self._poll.unregister(self._handle)
            os.close(self._handle)
            self._handle = -1


@contextlib.contextmanager
def listening(path: Path) -> Iterator[int]:
    """A listening socket, made before QEMU is: whoever connects early waits instead of failing."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, short(path) as name:
        listener.bind(name)
        listener.listen(1)
        yield listener.fileno()


@contextlib.contextmanager
def short(path: Path) -> Iterator[str]:
    """Another name for the path, short enough for a socket."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


CONTROL, LINE, LOG, PROCESS = "control.socket", "line.socket", "qemu.log", "qemu.process"
"""Names in a node's folder."""
_KILL_PATIENCE = 20.0
_LAST_WORDS = 1.0
"""Seconds for one that is ending to say why."""


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
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_WORDS):
                        await life.ended.wait()
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
            raise DeviceError("its virtual machine has ended", node=self.node.name)
        self._qmp = qmp
        with short(self.home / LINE) as path:
            await self.serial.connect(path)
        await qmp.ask("cont")  # it was started standing still; one that runs goes on
        if not life.look():
            raise DeviceError("its virtual machine has ended", node=self.node.name)

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
