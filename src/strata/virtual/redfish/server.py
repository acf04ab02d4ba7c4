"""The BMC of a server, simulated or a QEMU machine: one system in one chassis, its power, boot, console and log.

What is particular to one kind of server (its parts, how it is switched) is its own BMC's to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from strata.virtual.bmc.console import Console
from strata.virtual.bmc.http import Reply
from strata.virtual.redfish import events, logs, services
from strata.virtual.redfish.bmc import Account, Bmc, read_fence
from strata.virtual.redfish.body import OK, ROOT, Json, action, done, link, links, one_of, only, read_json, refuse
from strata.virtual.redfish.logs import Entry, Journal
from strata.virtual.redfish.router import Call, Tree
from strata.virtual.redfish.services import MANAGER
from strata.virtual.redfish.site import Site

SYSTEM, CHASSIS = f"{ROOT}/Systems/1", f"{ROOT}/Chassis/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
BOOT_VALUES: Mapping[str, Sequence[str]] = {
    "BootSourceOverrideEnabled": ("Disabled", "Once", "Continuous"),
    "BootSourceOverrideTarget": ("None", "Pxe", "UefiHttp", "Cd", "Hdd", "Usb", "BiosSetup"),
    "BootSourceOverrideMode": ("UEFI", "Legacy"),
}
NO_OVERRIDE: Json = {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}

TREE: Tree[ServerBmc] = Tree()
COMMON: tuple[Tree[ServerBmc], ...] = (services.TREE, events.TREE, logs.TREE, TREE)  # type: ignore[assignment]
"""What every server's BMC has."""


class ServerBmc(Bmc, ABC):
    """A BMC and its one system."""

    kind = "System"
    manages: ClassVar[Json] = {"ManagerForServers": links(SYSTEM), "ManagerForChassis": links(CHASSIS)}
    settable: ClassVar[Mapping[str, tuple[type, ...]]] = {
        "Boot": (dict,), "LocationIndicatorActive": (bool,), "AssetTag": (str,),
    }  # fmt: skip
    """What a change of the system may name."""
    below_system: ClassVar[Iterable[str]] = ()
    below_chassis: ClassVar[Iterable[str]] = ()
    """Resources that the system and the chassis link to."""
    drives: ClassVar[Mapping[str, Sequence[str]]] = {"CD1": ["CD", "DVD"]}
    """Virtual drive → the kinds of media that it takes."""

    def __init__(self, site: Site, name: str, account: Account, key: int, clock: Callable[[], float]) -> None:
        super().__init__(site, name, account, key)
        self.clock = clock
        self.light = False
        self.asset_tag = ""
        self.allowed: Sequence[str] = ()
        """The values of ResetType that it takes."""
        self.boot_values = BOOT_VALUES
        """What the properties of the boot override may be."""
        self.boot: Json = NO_OVERRIDE | {"BootSourceOverrideMode": "UEFI"}
        self.media: dict[str, str] = {}
        """Virtual drive → what is in it."""
        self._journal: Journal | None = None

    @property
    def journal(self) -> Journal:
        """The system event log."""
        if self._journal is None:
            self._journal = Journal()
        return self._journal

    @property
    @abstractmethod
    def console(self) -> Console:
        """The serial console."""

    @abstractmethod
    def power(self, now: float) -> str | None:
        """On, Off or nothing."""

    @abstractmethod
    def watts(self, now: float) -> float:
        """What the server draws."""

    @abstractmethod
    def energy(self, now: float) -> float:
        """Kilowatt hours so far."""

    @abstractmethod
    def facts(self, now: float) -> Json:
        """Properties of the system that only this kind of server has."""

    @abstractmethod
    def housing(self) -> Json:
        """The same of the chassis."""

    # -- what is done to it

    @abstractmethod
    def reset(self, kind: str, fence: tuple[int, int] | None, now: float) -> Reply:
        """Switch the server."""

    def set_boot(self, wanted: Mapping[str, object]) -> Reply:
        """Change the boot override."""
        only(wanted, **dict.fromkeys(self.boot, (str,)))
        for name, values in self.boot_values.items():
            if wanted.get(name, values[0]) not in values:
                refuse(400, "PropertyValueNotInList", f"{name} is one of {', '.join(values)}.")
        after = self.boot | dict(wanted)
        if wanted.get("BootSourceOverrideEnabled") == "Disabled":
            after["BootSourceOverrideTarget"] = "None"
        self.boot = after
        return done()

    def insert(self, drive: str, image: str) -> Reply:
        """Put the image at this URI into an empty virtual drive."""
        self.media[drive] = image
        return done()

    def eject(self, drive: str) -> Reply:
        """Take out what is there, if anything is."""
        self.media.pop(drive, None)
        return done()

    # -- what happens

    def boot_taken(self) -> bool:
        """It starts: an override for once has done its work. Whether there was one."""
        once = self.boot["BootSourceOverrideEnabled"] == "Once"
        if once:
            self.boot |= NO_OVERRIDE
        return once

    def write_log(self, severity: str, message: str, message_id: str, *, sensor: str = "", about: str = "") -> str:
        """Write an entry into the system event log and tell those who listen. The id of the entry."""
        now = self.clock()
        entry = self.journal.add(Entry(self.site.date(now), severity, message, message_id, sensor))
        arguments = (about,) if about else ()
        path = f"{logs.ENTRIES}/{entry}"
        self.events.tell(now, severity, message, message_id, SYSTEM, arguments=arguments, entry=path)
        return entry


def powered(on: bool) -> tuple[str, str]:
    """What is said when a system was switched: the text and the id of the message."""
    word = "On" if on else "Off"
    return f"The resource '{SYSTEM}' has powered {word.lower()}.", f"ResourceEvent.1.3.ResourcePowered{word}"


# -- the system


@TREE.members("Systems", "ComputerSystem.v1_26_0", ["1"])
def _system(bmc: ServerBmc, call: Call) -> Json:
    console = {"ServiceEnabled": True, "Interactive": True, "ConsoleURI": f"{SYSTEM}/SerialConsole"}
    allowed = {f"{name}@Redfish.AllowableValues": values for name, values in bmc.boot_values.items()}
    return {
        "Name": bmc.name,
        **bmc.part("System", "System"),
        "UUID": bmc.uuid("System"),
        "HostName": bmc.name,
        "AssetTag": bmc.asset_tag,
        "PowerState": bmc.power(call.now),
        "Status": OK,
        "LocationIndicatorActive": bmc.light,
        "Boot": allowed | bmc.boot,
        "SerialConsole": {"MaxConcurrentSessions": 4, "WebSocket": console},
        **{name: link(f"{SYSTEM}/{name}") for name in bmc.below_system},
        "Links": {"Chassis": links(CHASSIS), "ManagedBy": links(MANAGER)},
        "Actions": action(SYSTEM, "ComputerSystem.Reset", ResetType=bmc.allowed),
        **bmc.facts(call.now),
    }


@TREE.handles("PATCH Systems/1")
def _set_system(bmc: ServerBmc, call: Call) -> Reply:
    body = only(read_json(call.request.body), **bmc.settable)
    boot, led, light, tag = map(body.get, ("Boot", "IndicatorLED", "LocationIndicatorActive", "AssetTag"))
    if led not in (None, "Off", "Lit", "Blinking"):
        refuse(400, "PropertyValueNotInList", "IndicatorLED is Off, Lit or Blinking.")
    reply = bmc.set_boot(boot) if isinstance(boot, dict) else done()
    bmc.light = bool(light) if light is not None else bmc.light if led is None else led != "Off"
    bmc.asset_tag = bmc.asset_tag if tag is None else str(tag)[:256]
    return reply


@TREE.handles("POST Systems/1/Actions/ComputerSystem.Reset")
def _reset(bmc: ServerBmc, call: Call) -> Reply:
    return bmc.reset(one_of(read_json(call.request.body), "ResetType", bmc.allowed), read_fence(call), call.now)


@TREE.handles("GET Systems/1/SerialConsole")
def _console(bmc: ServerBmc, call: Call) -> Reply:
    reply = bmc.console.attach(call.request)
    bmc.attend(call.now)
    return reply


# -- virtual media


@TREE.members("Systems/1/VirtualMedia", "VirtualMedia.v1_6_0", lambda bmc, call: bmc.drives)
def _medium(bmc: ServerBmc, call: Call) -> Json:
    image = bmc.media.get(call.ids[0], "")
    return {
        "MediaTypes": bmc.drives[call.ids[0]],
        "Image": image or None,
        "ImageName": image.rpartition("/")[2] or None,
        "Inserted": bool(image),
        "ConnectedVia": "URI" if image else "NotConnected",
        "WriteProtected": True,
        "Actions": action(call.path, "VirtualMedia.InsertMedia") | action(call.path, "VirtualMedia.EjectMedia"),
    }


@TREE.handles("POST Systems/1/VirtualMedia/*/Actions/VirtualMedia.InsertMedia")
def _insert(bmc: ServerBmc, call: Call) -> Reply:
    name = call.ids[0]
    image = read_json(call.request.body).get("Image")
    if name not in bmc.drives:
        refuse(404, "ResourceMissingAtURI", f"There is no drive {name[:80]}.")
    if not isinstance(image, str) or "://" not in image:
        refuse(400, "ActionParameterMissing", "The action needs the parameter Image, a URI.")
    if bmc.media.get(name):
        refuse(409, "ResourceInUse", "There is an image in the drive: eject it first.")
    return bmc.insert(name, image)


@TREE.handles("POST Systems/1/VirtualMedia/*/Actions/VirtualMedia.EjectMedia")
def _eject(bmc: ServerBmc, call: Call) -> Reply:
    return bmc.eject(call.ids[0])


# -- the chassis, and what it draws


@TREE.members("Chassis", "Chassis.v1_23_0", ["1"])
def _chassis(bmc: ServerBmc, call: Call) -> Json:
    return {
        "Name": bmc.name,
        **bmc.part("System", "Chassis"),
        "PowerState": bmc.power(call.now),
        "Status": OK,
        **{name: link(f"{CHASSIS}/{name}") for name in bmc.below_chassis},
        "Links": {"ComputerSystems": links(SYSTEM), "ManagedBy": links(MANAGER)},
        **bmc.housing(),
    }


@TREE.view("Chassis/1/EnvironmentMetrics", "EnvironmentMetrics.v1_3_0")
def environment(bmc: ServerBmc, call: Call) -> Json:
    """Power and energy at a glance."""
    return {
        "Name": "Environment",
        "PowerWatts": {"Reading": bmc.watts(call.now), "DataSourceUri": f"{CHASSIS}/Sensors/TotalPower"},
        "EnergykWh": {"Reading": bmc.energy(call.now), "DataSourceUri": f"{CHASSIS}/Sensors/TotalEnergy"},
    }


@TREE.view("Chassis/1/Power", "Power.v1_7_1")
def _power(bmc: ServerBmc, call: Call) -> Json:
    return {"PowerControl": [power_control(bmc, call.now)]}


def power_control(bmc: ServerBmc, now: float) -> Json:
    """What a server draws, as the older ``Power`` has it."""
    return {
        "@odata.id": f"{CHASSIS}/Power#/PowerControl/0",
        "MemberId": "0",
        "Name": "Node power",
        "PowerConsumedWatts": bmc.watts(now),
        "Status": OK,
    }
