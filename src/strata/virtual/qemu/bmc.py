"""The BMC of one machine: its Redfish, over the process that really is the machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from strata.core.errors import BadRequest, DeviceError, Refused, StrataError
from strata.core.host.process import Process
from strata.virtual.bmc.console import Console
from strata.virtual.bmc.http import Reply
from strata.virtual.qemu.machine import Machine, end_all
from strata.virtual.redfish import server
from strata.virtual.redfish.bmc import FENCED, Account
from strata.virtual.redfish.body import OK, Json, Refusal, done, error
from strata.virtual.redfish.router import Call, Router, Tree
from strata.virtual.redfish.server import BOOT_VALUES, NO_OVERRIDE, SYSTEM, ServerBmc, powered
from strata.virtual.redfish.site import Site

STANDBY_WATTS, IDLE_WATTS, WORK_WATTS = 8.0, 60.0, 90.0
"""Off; on and idle; more than that when one of this machine's processors works for it all the time."""
_SHORTEST = 0.5
"""Seconds: over less than this, processor time is too coarse."""


class Meter:
    """Read now and then. Time is an argument."""

    def __init__(self) -> None:
        self.watts = STANDBY_WATTS
        self.joules = 0.0
        self._last: tuple[float, float, Process | None] | None = None

    def read(self, now: float, process: Process | None) -> None:
        """Bring ``watts`` and ``joules`` up to ``now``; ``process`` is None while the machine is off."""
        spent = 0.0 if process is None else process.cpu_seconds
        if self._last is None or self._last[2] != process:
            if self._last is not None:
                self.joules += self.watts * max(0.0, now - self._last[0])
            self.watts = STANDBY_WATTS if process is None else IDLE_WATTS
            self._last = now, spent, process
            return
        since = now - self._last[0]
        if since < _SHORTEST:
            return
        share = min(1.0, max(0.0, spent - self._last[1]) / since)
        self.watts = STANDBY_WATTS if process is None else round(IDLE_WATTS + WORK_WATTS * share, 1)
        self.joules += self.watts * since
        self._last = now, spent, process


MEMORY = "controller.json"
"""In the node's folder: what the BMC must not forget when it is started anew."""
RESETS = ("On", "ForceOff", "GracefulShutdown", "ForceRestart", "GracefulRestart", "PowerCycle", "Nmi")
_RETURN = 300.0
"""Seconds that an operating system has to shut down when it is to be restarted with grace."""
_log = logging.getLogger(__name__)

FIRSTS = {"Cd": "cd", "UefiHttp": "http"}
"""Boot target → what the machine is told; all others are the usual order, in which the network comes first."""
_TARGETS = {"bios": ("None", "Pxe", "Cd"), "uefi": ("None", "Pxe", "UefiHttp", "Cd")}
_MODES = {"bios": "Legacy", "uefi": "UEFI"}
_SENSORS = {"TotalPower": ("Total power", "Power", "W"), "TotalEnergy": ("Total energy", "EnergykWh", "kW.h")}

TREE: Tree[MachineBmc] = Tree()


class MachineBmc(ServerBmc):
    """The BMC of a QEMU machine: what QEMU gives it, and no more than that."""

    services = ("AccountService", "Chassis", "EventService", "Managers", "SessionService", "Systems")
    below_system = ("Processors", "Memory", "EthernetInterfaces", "LogServices", "VirtualMedia")
    below_chassis = ("EnvironmentMetrics", "Power", "Sensors")

    def __init__(self, site: Site, number: int, machine: Machine, account: Account, clock: Callable[[], float]) -> None:
        super().__init__(site, machine.node.name, account, number, clock)
        self.machine = machine
        self.meter = Meter()
        self.allowed = RESETS
        mode, targets = _MODES[machine.node.firmware], _TARGETS[machine.node.firmware]
        self.boot_values = {**BOOT_VALUES, "BootSourceOverrideTarget": targets, "BootSourceOverrideMode": (mode,)}
        self.boot = NO_OVERRIDE | {"BootSourceOverrideMode": mode}
        self._fence = (-1, -1)
        self._work: set[asyncio.Task[Any]] = set()
        machine.booted = self._booted
        machine.changed = self._power_changed

    async def start(self) -> None:
        """Remember what was set, and find the machine if it runs."""
        self._recall()
        try:
            await self.machine.find()
            await self._aim()
        except (OSError, StrataError) as problem:
            _log.error("%s: the machine runs and cannot be reached: %s", self.name, problem)

    async def stop(self) -> None:
        """Let go of the machine, which goes on."""
        await end_all(self._work)
        await self.machine.leave()
        await end_all(self._work)  # the machine may have begun to boot meanwhile

    # -- what it is

    def part(self, kind: str, where: str) -> Json:
        """Maker, model and numbers, as the firmware tells them to the guest."""
        return {
            "Manufacturer": "Strata",
            "Model": f"Virtual {'node' if where == 'System' else where.lower()}",
            "PartNumber": "QEMU",
            "SerialNumber": self.machine.node.serial,
        }

    def uuid(self, where: str) -> str:
        """The UUID of the part at ``where``."""
        return self.machine.node.uuid if where == "System" else super().uuid(where)

    @property
    def console(self) -> Console:
        return self.machine.serial

    def power(self, now: float) -> str:
        return "On" if self.machine.alive else "Off"

    def facts(self, now: float) -> Json:
        """What QEMU gives a system."""
        return {
            "SystemType": "Virtual",
            "ProcessorSummary": {"Count": 1, "Model": "QEMU", "CoreCount": 1},
            "MemorySummary": {"TotalSystemMemoryGiB": self.machine.node.memory / 1024},
        }

    def housing(self) -> Json:
        """Nothing that one could touch."""
        return {"ChassisType": "Other"}

    def watts(self, now: float) -> float:
        self.meter.read(now, self.machine.process)
        return self.meter.watts

    def energy(self, now: float) -> float:
        """Kilowatt hours since the BMC began."""
        self.watts(now)
        return round(self.meter.joules / 3.6e6, 6)

    # -- what is done to it

    def reset(self, kind: str, fence: tuple[int, int] | None, now: float) -> Reply:
        """Switch the machine; the reply comes when that is done (with grace: when the guest was asked)."""
        if fence is not None:
            if fence <= self._fence:
                return FENCED
            self._fence = fence
        return self.promise(self._reset(kind))

    async def _reset(self, kind: str) -> None:
        machine = self.machine
        if kind == "On":
            await machine.start()
        elif kind == "ForceOff":
            await machine.kill()
        elif kind == "PowerCycle":
            await machine.cycle()
        elif not machine.alive:
            if kind == "GracefulShutdown":
                return
            raise Refused("the system is off", by="power")
        elif kind == "ForceRestart":
            await machine.restart()
        elif kind == "GracefulShutdown":
            await machine.press()
        elif kind == "GracefulRestart":
            await machine.press_and_return(_RETURN)
        else:
            await machine.nmi()

    def set_boot(self, wanted: Mapping[str, object]) -> Reply:
        """Change the boot override, from the next start or reset on."""
        super().set_boot(wanted)
        self._remember()
        return self.promise(self._aim())

    def insert(self, drive: str, image: str) -> Reply:
        """Fetch the image and put it into the drive."""

        async def work() -> None:
            await fetch_medium(image, self.machine.medium)
            self.media[drive] = image
            self._remember()
            await self.machine.medium_changed()

        return self.promise(work())

    def eject(self, drive: str) -> Reply:
        """Take it out and delete it: it may hold a node's secret."""

        async def work() -> None:
            self.media.pop(drive, None)
            self._remember()
            self.machine.medium.unlink(missing_ok=True)
            await self.machine.medium_changed()

        return self.promise(work())

    def promise(self, work: Coroutine[Any, Any, None]) -> Reply:
        """The reply that comes when ``work`` is done, whether or not somebody still waits for it."""
        task = asyncio.get_running_loop().create_task(self._kept(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return Reply(204, promise=task)

    async def _kept(self, work: Coroutine[Any, Any, None]) -> Reply:
        try:
            await work
        except Refusal as refusal:
            return refusal.reply
        except Refused as problem:
            return error(409, "OperationFailed", f"{problem}.")
        except BadRequest as problem:
            return error(400, "ActionParameterValueFormatError", f"{problem}.")
        except (OSError, StrataError) as problem:
            _log.error("%s: %s", self.name, problem)
            return error(500, "InternalError", f"The request failed: {problem}.")
        return done()

    # -- what happens

    def _power_changed(self, on: bool) -> None:
        self.revision += 1
        self.write_log("OK", *powered(on), about=SYSTEM)

    def _booted(self) -> None:
        if self.boot_taken():
            self.revision += 1
            self._remember()
            self.promise(self._aim())

    async def _aim(self) -> None:
        enabled = self.boot["BootSourceOverrideEnabled"] != "Disabled"
        await self.machine.boot_from(FIRSTS.get(str(self.boot["BootSourceOverrideTarget"]), "") if enabled else "")

    # -- what it must not forget

    def _remember(self) -> None:
        path = self.machine.home / MEMORY
        scratch = path.with_suffix(".new")
        scratch.write_bytes(msgspec.json.encode({"boot": self.boot, "media": self.media}))
        scratch.replace(path)

    def _recall(self) -> None:
        path: Path = self.machine.home / MEMORY
        try:
            told = msgspec.json.decode(path.read_bytes())
            self.boot |= {name: told["boot"][name] for name in self.boot}
            self.media = {str(k): str(v) for k, v in told["media"].items()} if self.machine.medium.exists() else {}
        except FileNotFoundError:
            pass
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as problem:
            _log.warning("%s: begins without what was set before: %s", self.name, problem)


@TREE.members("Systems/1/Processors", "Processor.v1_18_0", ["CPU1"])
def _processor(bmc: MachineBmc, call: Call) -> Json:
    return {
        "Manufacturer": "QEMU",
        "Model": "Emulated x86-64",
        "ProcessorType": "CPU",
        "ProcessorArchitecture": "x86",
        "InstructionSet": "x86-64",
        "TotalCores": 1,
        "TotalThreads": 1,
        "Status": OK,
    }


@TREE.members("Systems/1/Memory", "Memory.v1_18_0", ["DIMM1"])
def _dimm(bmc: MachineBmc, call: Call) -> Json:
    return {"MemoryType": "DRAM", "CapacityMiB": bmc.machine.node.memory, "Status": OK}


@TREE.members("Systems/1/EthernetInterfaces", "EthernetInterface.v1_9_0", ["eth0"])
def _interface(bmc: MachineBmc, call: Call) -> Json:
    mac = bmc.machine.node.mac.upper()
    return {
        "MACAddress": mac,
        "PermanentMACAddress": mac,
        "InterfaceEnabled": True,
        "LinkStatus": "LinkUp" if bmc.machine.alive else "LinkDown",
        "Status": OK,
    }


@TREE.members("Chassis/1/Sensors", "Sensor.v1_9_0", _SENSORS)
def _sensor(bmc: MachineBmc, call: Call) -> Json:
    name, kind, units = _SENSORS[call.ids[0]]
    reading = bmc.watts(call.now) if kind == "Power" else bmc.energy(call.now)
    return {
        "Name": name,
        "ReadingType": kind,
        "ReadingUnits": units,
        "PhysicalContext": "Chassis",
        "Reading": reading,
        "Status": OK,
    }


MachineBmc.router = Router(*server.COMMON, TREE)


MOST_BYTES = 2 << 30
_PIECE = 1 << 20
_FETCH_PATIENCE = aiohttp.ClientTimeout(total=600, sock_connect=10, sock_read=60)


async def fetch_medium(uri: str, to: Path) -> None:
    """Write what is at ``uri`` to a file that only we can read: all of it, or there is no file."""
    if not uri.startswith(("http://", "https://")) or len(uri) > 2048:
        raise BadRequest("an image is fetched over http:// or https://", where=uri[:80])
    scratch = to.with_suffix(".new")
    try:
        await _download(uri, scratch)
        scratch.replace(to)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise DeviceError(
            f"the image could not be fetched: {error or type(error).__name__}"[:300], node=uri[:200]
        ) from None
    finally:
        scratch.unlink(missing_ok=True)


async def _download(uri: str, to: Path) -> None:
    # Like most BMCs: it knows no authority, so it cannot check a certificate. Nor does it follow elsewhere.
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), timeout=_FETCH_PATIENCE) as http,
        http.get(uri, allow_redirects=False) as reply,
    ):
        if reply.status != 200:
            raise DeviceError(f"the image could not be fetched: HTTP {reply.status}", node=uri[:200])
        to.unlink(missing_ok=True)
        to.touch(mode=0o600)
        size = 0
        with to.open("wb") as file:
            async for piece in reply.content.iter_chunked(_PIECE):
                size += len(piece)
                if size > MOST_BYTES:
                    raise DeviceError(f"the image has more than {MOST_BYTES >> 20} MiB", node=uri[:200])
                await asyncio.to_thread(file.write, piece)
