"""The BMC of one machine: its Redfish, over the process that really is the machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from strata.core.errors import BadRequest, Refused, StrataError
from strata.virtual.bmc.http import Reply
from strata.virtual.qemu import media, tree
from strata.virtual.qemu.machine import Machine
from strata.virtual.qemu.meter import Meter
from strata.virtual.redfish import boot as tree_boot
from strata.virtual.redfish import event_service as tree_events
from strata.virtual.redfish import logs as tree_log
from strata.virtual.redfish import services as tree_services
from strata.virtual.redfish.bmc import Account, Bmc
from strata.virtual.redfish.body import ROOT, Json, Refusal, done, error, links
from strata.virtual.redfish.journal import Entry, Journal
from strata.virtual.redfish.router import Router
from strata.virtual.redfish.site import Site

SYSTEM = tree.SYSTEM
MEMORY = "controller.json"
"""In the node's folder: what the BMC must not forget when it is started anew."""
_RETURN = 300.0
"""Seconds that an operating system has to shut down when it is to be restarted with grace."""
_log = logging.getLogger(__name__)

FIRSTS = {"Cd": "cd", "UefiHttp": "http"}
"""Boot target → what the machine is told; all others are the usual order, in which the network comes first."""
_TARGETS = {"bios": ("None", "Pxe", "Cd"), "uefi": ("None", "Pxe", "UefiHttp", "Cd")}
_MODES = {"bios": "Legacy", "uefi": "UEFI"}
_MODULES = (tree_services, tree, tree_boot, tree_log, tree_events)


class MachineBmc(Bmc):
    """A BMC and its one system."""

    router: ClassVar[Router[MachineBmc]] = Router(
        {pattern: view for module in _MODULES for pattern, view in module.VIEWS.items()},
        {pattern: deed for module in _MODULES for pattern, deed in module.DEEDS.items()},
    )
    kind = "System"
    services = ("AccountService", "Chassis", "EventService", "Managers", "SessionService", "Systems")
    manages: ClassVar[Json] = {"ManagerForServers": links(SYSTEM), "ManagerForChassis": links(f"{ROOT}/Chassis/1")}

    def __init__(self, site: Site, number: int, machine: Machine, account: Account, clock: Callable[[], float]) -> None:
        super().__init__(site, machine.node.name, account, number)
        self.machine = machine
        self.clock = clock
        self.meter = Meter()
        self.journal = Journal()
        self.light = False
        self.asset_tag = ""
        mode = _MODES[machine.node.firmware]
        self.boot_values: Mapping[str, Sequence[str]] = {
            "BootSourceOverrideEnabled": ("Disabled", "Once", "Continuous"),
            "BootSourceOverrideTarget": _TARGETS[machine.node.firmware],
            "BootSourceOverrideMode": (mode,),
        }
        self.boot: Json = {
            "BootSourceOverrideEnabled": "Disabled",
            "BootSourceOverrideTarget": "None",
            "BootSourceOverrideMode": mode,
        }
        self.drives: Mapping[str, Sequence[str]] = {"CD1": ["CD", "DVD"]}
        self.media: dict[str, str] = {}
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
        await self._drop_work()
        await self.machine.leave()
        await self._drop_work()  # the machine may have begun to boot meanwhile

    async def _drop_work(self) -> None:
        for task in list(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    # -- what it is

    def part(self, kind: str, where: str) -> Json:
        """Maker, model and numbers, as the firmware tells them to the guest."""
        serial = self.machine.node.serial
        return {
            "Manufacturer": "Strata",
            "Model": f"Virtual {kind.lower()}",
            "PartNumber": "QEMU",
            "SerialNumber": serial,
        }

    def uuid(self, where: str) -> str:
        """The UUID of the part at ``where``."""
        return self.machine.node.uuid if where == "System" else super().uuid(where)

    @property
    def console(self) -> Any:
        """The serial console."""
        return self.machine.serial

    def power(self) -> str:
        """On or Off."""
        return "On" if self.machine.alive else "Off"

    def watts(self, now: float) -> float:
        """What the machine draws."""
        self.meter.read(now, self.machine.process)
        return self.meter.watts

    def energy(self, now: float) -> float:
        """Kilowatt hours since the BMC began."""
        self.watts(now)
        return round(self.meter.joules / 3.6e6, 6)

    # -- what is done to it

    def reset(self, kind: str, fence: tuple[int, int] | None) -> Reply:
        """Switch the machine; the reply comes when that is done (with grace: when the guest was asked)."""
        if fence is not None:
            if fence <= self._fence:
                return error(412, "PreconditionFailed", "A newer or equal fence was taken before.")
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
        tree_boot.set_boot(self, wanted)
        self._remember()
        return self.promise(self._aim())

    def insert(self, drive: str, image: str) -> Reply:
        """Fetch the image and put it into the drive."""

        async def work() -> None:
            await media.fetch(image, self.machine.medium)
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

    def log(self, severity: str, message: str, message_id: str) -> None:
        """Write an entry into the system event log and tell those who listen."""
        now = self.clock()
        entry = self.journal.add(Entry(self.site.date(now), severity, message, message_id))
        self.events.tell(
            now, severity, message, message_id, SYSTEM, arguments=(SYSTEM,), entry=f"{tree_log.ENTRIES}/{entry}"
        )

    def _power_changed(self, on: bool) -> None:
        word = "On" if on else "Off"
        self.revision += 1
        text = f"The resource '{SYSTEM}' has powered {word.lower()}."
        self.log("OK", text, f"ResourceEvent.1.3.ResourcePowered{word}")

    def _booted(self) -> None:
        """The firmware begins: an override for once has done its work."""
        if self.boot["BootSourceOverrideEnabled"] == "Once":
            self.boot |= {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}
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
