"""Every room of Strata that people meet, a line each. A room that is not listed here has no REST and no commands."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.util import resolve_name
from types import ModuleType
from typing import Any, Literal, Protocol

from strata.core.room import Room

ROOMS = (
    "fleet.nodes",
    "fleet.groups",
    "fleet.desires",
    "fleet.plans",
    "fleet.brakes",
    "fleet.budgets",
    "fleet.operations",
    "fleet.watch",
    "fleet.machine",
    "fleet.system",
    "fleet.audit",
    "fleet.access",
    "fleet.peers",
    "hardware",
    "hardware.inventory",
    "hardware.bmc",
    "hardware.credentials",
    "hardware.consoles",
    "hardware.events",
    "hardware.alerts",
    "hardware.webhooks",
    "hardware.fabric",
    "hardware.emergency",
    "provisioning.boot",
    "provisioning.bootnets",
    "provisioning.agents",
    "provisioning.exec",
    "provisioning.images",
    "provisioning.personalities",
    "provisioning.minos",
    "power",
    "power.capmc",
    "power.telemetry",
    "power.accounting",
    "power.policies",
    "power.queue",
    "power.simulation",
    "platform.workload",
    "platform.slurm",
    "platform.basil",
    "platform.config",
    "platform.delivery",
    "platform.ansible",
    "platform.cloudinit",
    "platform.secrets",
    "platform.health",
    "platform.flows",
    "platform.rollouts",
    "platform.playbooks",
    "platform.sources",
    "jobs.containers",
    "jobs.projects",
    "jobs.targets",
    "jobs.submission",
    "jobs.reservations",
    "jobs.accelerators",
    "jobs.environments",
    "api.redfish",
    "cli",
    "daemon",
    "virtual",
)


def rooms(layer: str = "") -> Iterator[tuple[str, Room]]:
    """All of them with their packages, in order; or those of one layer."""
    for name in ROOMS:
        if not layer or name.partition(".")[0] == layer:
            package = f"strata.{name}"
            room = importlib.import_module(package).ROOM
            assert isinstance(room, Room)
            yield package, room


class Opens(Protocol):
    """What rooms are opened on: a fleet."""

    def put(self, service: Any) -> Any:
        """Let others find a service by its type."""

    async def keep(self, part: Any) -> Any:
        """Start a part now, and stop it when the fleet stops."""


def put_services(fleet: Opens, layer: str) -> list[Any]:
    """Make the services that the layer's rooms name, and put them on the fleet."""
    return [fleet.put(_named(place, package)(fleet)) for package, room in rooms(layer) for place in room.services]


async def open_services(fleet: Opens, layer: str) -> None:
    """The same, and start those that are to be started."""
    for service in put_services(fleet, layer):
        if hasattr(service, "start"):
            await fleet.keep(service)


def route_modules() -> Iterator[ModuleType]:
    """The modules with REST routes."""
    return (importlib.import_module(module, package) for package, room in rooms() for module in room.routes)


def apps(kind: Literal["apps", "raw_apps"]) -> dict[str, Any]:
    """ASGI applications by the path that they answer."""
    found = {}
    for package, room in rooms():
        for path, place in getattr(room, kind).items():
            found[path] = _named(place, package)
    return found


def commands(group: str = "") -> Iterator[tuple[str, str, str]]:
    """The commands below ``group`` (``""``: below ``strata`` itself): section of the help, last word, where it is. A
    room is imported when its turn comes: whoever has found a word needs none of the rooms after it."""
    for package, room in rooms():
        for section, table in room.commands.items():
            for words, place in table.items():
                before, _, last = words.rpartition(" ")
                if before == group:
                    yield section, last, resolve_name(place, package)


def _named(place: str, package: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module, package), name)
