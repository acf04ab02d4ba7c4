"""Nodes' BMCs, whichever protocol they speak: power, boot, sensors, limits, firmware; and the driver that uses them."""

from __future__ import annotations

from strata.core.room import Room

_POWER = "strata.hardware.bmc.commands.power"

ROOM = Room(
    routes=("strata.hardware.bmc.routes",),
    commands={
        "The hardware": {"power": f"{_POWER}:power"},
        "Switching": {
            "power on": f"{_POWER}:on",
            "power off": f"{_POWER}:off",
            "power cycle": f"{_POWER}:cycle",
            "power nmi": f"{_POWER}:nmi",
            "power status": f"{_POWER}:status",
        },
        "Through the BMCs": {
            "hardware bmc": "strata.hardware.bmc.commands.bmc:bmc",
            "hardware boot": "strata.hardware.bmc.commands.bmc:boot",
            "hardware media": "strata.hardware.bmc.commands.bmc:media",
            "hardware identify": "strata.hardware.bmc.commands.bmc:identify",
            "hardware sensors": "strata.hardware.bmc.commands.sensors:sensors",
            "hardware log": "strata.hardware.bmc.commands.sensors:log",
            "hardware limits": "strata.hardware.bmc.commands.bmc:limits",
            "hardware bios": "strata.hardware.bmc.commands.firmware:bios",
            "hardware firmware": "strata.hardware.bmc.commands.firmware:firmware",
            "hardware settings": "strata.hardware.bmc.commands.bmc:settings",
        },
    },
)
