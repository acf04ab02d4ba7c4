"""Nodes' BMCs, whichever protocol they speak: power, boot, sensors, limits, firmware; and the driver that uses them."""

from __future__ import annotations

from strata.core.room import Room

ROOM = Room(
    routes=("strata.hardware.bmc.routes",),
    commands={
        "Through the BMCs": {
            "hardware bmc": "strata.hardware.bmc.commands.bmc:bmc",
            "hardware power": "strata.hardware.bmc.commands.bmc:power",
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
