"""``strata hardware``: the machines themselves, through their controllers. The commands are in their own modules."""

from __future__ import annotations

import click

from strata.cli.lazy import LazyGroup

COMMANDS = {
    "What there is": {
        "discover": "strata.cli.hardware_inventory:discover",
        "list": "strata.cli.hardware_inventory:list_",
        "show": "strata.cli.hardware_inventory:show",
        "components": "strata.cli.hardware_inventory:components",
        "history": "strata.cli.hardware_inventory:history",
        "conflicts": "strata.cli.hardware_inventory:conflicts",
        "forget": "strata.cli.hardware_inventory:forget",
        "events": "strata.cli.hardware_events:events",
    },
    "Through the controllers": {
        "bmc": "strata.cli.hardware_bmc:bmc",
        "power": "strata.cli.hardware_bmc:power",
        "boot": "strata.cli.hardware_bmc:boot",
        "media": "strata.cli.hardware_bmc:media",
        "identify": "strata.cli.hardware_bmc:identify",
        "sensors": "strata.cli.hardware_sensors:sensors",
        "log": "strata.cli.hardware_sensors:log",
        "limits": "strata.cli.hardware_bmc:limits",
        "bios": "strata.cli.hardware_firmware:bios",
        "firmware": "strata.cli.hardware_firmware:firmware",
        "settings": "strata.cli.hardware_bmc:settings",
        "console": "strata.cli.console:console",
        "credentials": "strata.cli.hardware_credentials:credentials",
    },
}
"""Section of the help → command → where it is."""


@click.group(cls=LazyGroup, table=COMMANDS)
def hardware() -> None:
    """Look at hardware and work it through its controllers."""
