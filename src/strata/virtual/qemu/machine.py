"""One machine: a QEMU process that outlives whoever started it, and is found again.

Knows nothing of Redfish. ``booted`` is told when the firmware begins (at a start and at every reset, the guest's own
included), ``changed`` when the process began or ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from strata.core import process as ps
from strata.core.errors import DeviceError, StrataError, Unavailable
from strata.virtual.qemu import command as qemu
from strata.virtual.qemu.description import MachineDescription, guest_mark
from strata.virtual.qemu.network import tool
from strata.virtual.qemu.qmp import Qmp
from strata.virtual.qemu.serial import Serial

CONTROL, LINE, LOG, PROCESS = "control.socket", "line.socket", "qemu.log", "qemu.process"
"""Names in a node's folder."""
_log = logging.getLogger(__name__)
_KILL_PATIENCE = 20.0


class Machine:
    """One node's process. Actions come one after the other."""

    def __init__(self, node: MachineDescription, chassis: str, home: Path, serial: Serial) -> None:
        self.node = node
        self.home = home
        self.serial = serial
        self.changed: Callable[[], None] = lambda: None
        self.booted: Callable[[], None] = lambda: None
        self.process: ps.Process | None = None
        self._chassis = chassis
        self._first = ""
        self._http = False
        self._qmp: Qmp | None = None
        self._handle = -1
        self._gone = asyncio.Event()
        self._gone.set()
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def alive(self) -> bool:
        """Whether its process runs: what power is, for such a machine. Whoever asks also learns of its end in order:
        an end that the loop has not come to yet is told of first."""
        if not self._gone.is_set() and self.process is not None and not self.process.alive:
            self._ended()
        return not self._gone.is_set()

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
        told = Path("/proc", str(found.pid), "cmdline").read_bytes()
        self._http = b"IPv4PXESupport" in told
        await self._attach(found)

    async def leave(self) -> None:
        """Let go of it. The process goes on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._close_handle()
        if self._qmp is not None:
            await self._qmp.close()
            self._qmp = None
        await self.serial.disconnect()

    # -- power

    async def start(self) -> None:
        """Power on, if it is off."""
        async with self._lock:
            if not self.alive:
                await self._start()

    async def kill(self) -> None:
        """Power off, at once, if it is on."""
        async with self._lock:
            await self._kill()

    async def restart(self) -> None:
        """The reset button."""
        async with self._lock:
            if not self.alive:
                raise DeviceError("it is off", node=self.node.name)
            if self._must_restart:
                await self._kill()
                await self._start()
            else:
                await self._ask("system_reset")

    async def cycle(self) -> None:
        """Off and on; on, if it was off."""
        async with self._lock:
            await self._kill()
            await self._start()

    async def press(self) -> None:
        """The power button: an operating system that listens shuts down."""
        await self._ask("system_powerdown")

    async def press_and_return(self, patience: float) -> None:
        """The power button, and on again in the background if the machine goes off within ``patience`` seconds."""
        await self.press()
        self._later(self._return(patience))

    async def nmi(self) -> None:
        """A non-maskable interrupt."""
        await self._ask("inject-nmi")

    # -- what it boots from

    async def boot_from(self, first: str) -> None:
        """Try this before anything else, from the next reset on: ``cd``, ``http``, or empty for the usual order."""
        self._first = first
        if self.alive and self._qmp is not None:
            place = qemu.FIRST if first == "cd" else qemu.CD_AT
            await self._ask("qom-set", path="/machine/peripheral/cd0", property="bootindex", value=place)

    async def medium_changed(self) -> None:
        """There is another file behind the CD drive, or none."""
        if not self.alive:
            return
        if self.medium.exists():
            more = {"filename": str(self.medium), "format": "raw", "read-only-mode": "read-only"}
            await self._ask("blockdev-change-medium", id="cd0", **more)
        else:
            await self._ask("eject", id="cd0", force=True)

    # -- how

    @property
    def _must_restart(self) -> bool:
        """Whether a reset would not do: what the firmware may boot over is fixed when QEMU starts."""
        return (self._first == "http") != self._http

    async def _start(self) -> None:
        self._http = self._first == "http"
        await asyncio.to_thread(self._prepare)
        told = qemu.command(
            tool(qemu.PROGRAM, qemu.PACKAGE), self.node, self._chassis, self.home,
            cd_first=self._first == "cd", http=self._http, medium=self.medium.exists(),
        )  # fmt: skip
        with self._socket(CONTROL) as control, self._socket(LINE) as line:
            started = ps.spawn(told, {"PATH": os.environ.get("PATH", "")}, self.home / LOG, (control, line))
        started.save(self.home / PROCESS)
        try:
            await self._attach(started)
        except (OSError, StrataError) as error:
            self.process = started
            await self._kill()
            raise DeviceError(f"QEMU did not start: {self._last_words() or error}", node=self.node.name) from None
        self.changed()
        self.booted()

    def _prepare(self) -> None:
        (self.home / LOG).unlink(missing_ok=True)
        store = qemu.store(self.home, http=self._http)
        if self.node.firmware == "uefi" and not store.exists():
            scratch = store.with_suffix(".new")
            shutil.copyfile(qemu.VARIABLES, scratch)
            scratch.replace(store)

    @contextlib.contextmanager
    def _socket(self, name: str) -> Iterator[int]:
        """A listening socket, made before QEMU is: whoever connects early waits instead of failing."""
        (self.home / name).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener, self._short(name) as path:
            listener.bind(path)
            listener.listen(1)
            yield listener.fileno()

    @contextlib.contextmanager
    def _short(self, name: str) -> Iterator[str]:
        """A path for a socket in the folder: its own may be too long for one."""
        folder = os.open(self.home, os.O_PATH | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{folder}/{name}"
        finally:
            os.close(folder)

    async def _attach(self, process: ps.Process) -> None:
        """Connect to the process and watch for its end."""
        self._handle = os.pidfd_open(process.pid)
        self.process = process
        self._gone.clear()
        asyncio.get_running_loop().add_reader(self._handle, self._ended)
        with self._short(CONTROL) as path:
            self._qmp = await Qmp.open(path, self._heard)
        with self._short(LINE) as path:
            await self.serial.connect(path)

    def _close_handle(self) -> None:
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _ended(self) -> None:
        if self._gone.is_set():
            return
        self._close_handle()
        if self.process is not None:
            ps.reap(self.process)
        qmp, self._qmp = self._qmp, None
        if qmp is not None:
            self._later(qmp.close())
        self._gone.set()
        self.changed()

    async def _kill(self) -> None:
        if not self.alive:
            return
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        try:
            async with asyncio.timeout(_KILL_PATIENCE):
                await self._gone.wait()
        except TimeoutError:
            raise Unavailable(f"it did not end within {_KILL_PATIENCE:g} s", where=self.node.name) from None

    async def _return(self, patience: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._gone.wait()
            await self.start()

    def _heard(self, event: str) -> None:
        if event != "RESET":
            return
        if self._must_restart:
            self._later(self.cycle())
        else:
            self.booted()

    async def _ask(self, name: str, **arguments: object) -> Any:
        if self._qmp is None:
            raise DeviceError("it is off", node=self.node.name)
        return await self._qmp.ask(name, **arguments)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s: %s", self.node.name, task.exception())

    def _last_words(self) -> str:
        try:
            return (self.home / LOG).read_text(errors="replace").strip()[-500:]
        except OSError:
            return ""
