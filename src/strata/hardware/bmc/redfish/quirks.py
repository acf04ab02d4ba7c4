"""Vendors' quirks: what a BMC needs done differently from what the standard says. A new one is a field here, set in
``quirks_of``, and asked for where it matters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, NamedTuple

from strata.core.errors import NotOffered
from strata.hardware.bmc.redfish.client import Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import Features, below, text
from strata.hardware.bmc.redfish.find import manager, maybe


class Quirks(NamedTuple):
    """Strategies in use with one BMC. The default is what the standard says."""

    echo_boot_mode: bool = False
    """Supermicro: a boot override without BootSourceOverrideMode falls back to the default mode, so the present one
    is sent along (DMTF/Redfishtool pull 106); older ones do not show a mode and refuse it, so only where it is shown
    (ironcore-dev/metal-operator pull 985)."""
    usb_cd: bool = False
    """Supermicro X11, X12: virtual media are a USB CD drive; ``Cd`` is allowed, and does not boot (sushy)."""
    future_state: bool = False
    """AMI MegaRAC (ASRock Rack, Gigabyte): boot properties are changed on the system's settings resource, not on the
    system (DMTF/Redfish-Tacklebox issue 144). Dell shows such a resource as well, and refuses the target there."""
    console0: bool = False
    """OpenBMC: the WebSocket of the console is at /console0, though SerialConsole does not tell (bmcweb)."""
    syslog: Literal["subscription", "idrac", "ilo"] = "subscription"
    """Dell iDRAC: attributes SysLog.1.* of the manager. HPE iLO: RemoteSyslog* in the manager's network protocol.
    Neither takes a subscription with a syslog destination."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those that differ from the standard."""
        default = Quirks()
        return tuple(
            field.replace("_", "-") if value is True else f"{field}-{value}"
            for field, value, usual in zip(self._fields, self, default, strict=True)
            if value != usual
        )


MAKES = (("Ami", "ami"), ("Dell", "dell"), ("Hpe", "hpe"), ("Hp", "hpe"), ("Supermicro", "supermicro"))
"""Names in an Oem object → the make of the BMC that puts them there."""
WORDS = (
    ("ami", "ami"), ("american megatrends", "ami"), ("dell", "dell"), ("hpe", "hpe"), ("hewlett", "hpe"),
    ("supermicro", "supermicro"), ("openbmc", "openbmc"),
)  # fmt: skip
PRODUCTS = {"dell": "idrac", "hpe": "ilo"}
"""Makers of several kinds of BMC, and the kind that the quirks are of: HPE's Cray blades have no iLO."""


def quirks_of(features: Features, system: Json, manager: Json) -> Quirks:
    """The strategies for a BMC, by what its service root, the manager that answers for the system and the
    system itself say of themselves. ``manager`` is empty where it is not known which does."""
    make = make_of(features) or _make(features, system, manager)
    return Quirks(
        echo_boot_mode=make == "supermicro",
        usb_cd=make == "supermicro",
        future_state=make == "ami",
        console0=make == "openbmc",
        syslog="idrac" if make == "dell" else "ilo" if make == "hpe" else "subscription",
    )


def make_of(features: Features) -> str:
    """Who made the BMC, where its service root leaves no doubt; else empty."""
    return _by_corner(features.services)


def _make(features: Features, system: Json, manager: Json) -> str:
    """Who made the BMC (not the system: an AMI BMC sits on many makers' boards)."""
    found = _by_corner(manager)
    if found:
        return found
    told = f"{features.vendor} {features.product}".strip()
    maker = text(manager.get("Manufacturer"))
    about = " ".join(text(manager.get(name)) for name in ("Id", "Name", "Model", "FirmwareVersion")).lower()
    # The maker of the machine says something of its BMC only where nothing else does.
    machine = "" if told or maker else text(system.get("Manufacturer"))
    for words in (told, f"{maker} {text(manager.get('Model'))}", machine):
        found = _by_words(words.lower())
        if found and PRODUCTS.get(found, "") in about:
            return found
    return "openbmc" if isinstance(below(system, "Oem").get("OpenBmc"), Mapping) else ""


def _by_corner(body: Json) -> str:
    oem = below(body, "Oem")
    return next((make for key, make in MAKES if isinstance(oem.get(key), Mapping)), "")


def _by_words(told: str) -> str:
    return next((make for word, make in WORDS if word in told.split() or (" " in word and word in told)), "")


async def quirks(client: RedfishClient, target: Target, of: Json) -> Quirks:
    """What to do differently with this BMC; ``of``: the node's system."""
    features = await client.features(target.address)
    own: Json = {}
    if not make_of(features):
        with suppress(NotOffered):
            own = await maybe(client, target, await manager(client, target))
    return quirks_of(features, of, own)
