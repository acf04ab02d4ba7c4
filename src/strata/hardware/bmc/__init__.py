"""Nodes' BMCs, whichever protocol they speak: power, boot, sensors, limits, firmware; and the driver that uses them."""

from strata.core.room import Room

_POWER = ".commands.power"

ROOM = Room(
    routes=(".routes",),
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
