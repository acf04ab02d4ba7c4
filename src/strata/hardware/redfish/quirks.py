"""What to do differently for one make of controller. Each has a name, its vendor in the comment, and a test.

Whatever a controller says about itself (allowed values, ActionInfo, apply times) is followed without a quirk; these
are only for what it does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from strata.hardware.redfish.bmc import Features, Json, below, text


class Quirks(NamedTuple):
    """Strategies in use with one controller. The default is what the standard says."""

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


def quirks_of(features: Features, system: Json) -> Quirks:
    """The strategies for a controller, by what its service root and the system behind it say of themselves."""
    make = _make(features, system)
    return Quirks(
        echo_boot_mode=make == "supermicro",
        usb_cd=make == "supermicro",
        future_state=make == "ami",
        console0=make == "openbmc",
        syslog="idrac" if make == "dell" else "ilo" if make == "hpe" else "subscription",
    )


def _make(features: Features, system: Json) -> str:
    """Who made the controller (not the system: an AMI controller sits on many makers' boards)."""
    oem = below(features.services, "Oem")
    for key, make in (("Ami", "ami"), ("Dell", "dell"), ("Hpe", "hpe"), ("Hp", "hpe"), ("Supermicro", "supermicro")):
        if isinstance(oem.get(key), Mapping):
            return make
    told = f"{features.vendor} {features.product}".lower() if features.vendor or features.product else ""
    told = told or text(system.get("Manufacturer")).lower()
    for word, make in (
        ("ami", "ami"), ("american megatrends", "ami"), ("dell", "dell"), ("hpe", "hpe"), ("hewlett", "hpe"),
        ("supermicro", "supermicro"), ("openbmc", "openbmc"),
    ):  # fmt: skip
        if word in told.split() or (" " in word and word in told):
            return make
    return "openbmc" if isinstance(below(system, "Oem").get("OpenBmc"), Mapping) else ""
