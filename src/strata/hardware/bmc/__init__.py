"""Nodes' BMCs, whichever protocol they speak: power, boot, sensors, limits, firmware; and the driver that uses them."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={
        "The hardware": {"power": ".commands.power:power"},
        "Switching": {
            "power on": ".commands.power:on",
            "power off": ".commands.power:off",
            "power cycle": ".commands.power:cycle",
            "power nmi": ".commands.power:nmi",
            "power status": ".commands.power:status",
        },
        "Through the BMCs": {
            "hardware bmc": ".commands.bmc:bmc",
            "hardware boot": ".commands.bmc:boot",
            "hardware media": ".commands.bmc:media",
            "hardware identify": ".commands.bmc:identify",
            "hardware sensors": ".commands.sensors:sensors",
            "hardware log": ".commands.sensors:log",
            "hardware limits": ".commands.bmc:limits",
            "hardware bios": ".commands.firmware:bios",
            "hardware firmware": ".commands.firmware:firmware",
            "hardware settings": ".commands.bmc:settings",
        },
    },
)
