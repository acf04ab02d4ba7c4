"""Finding one's way in a controller: the system, chassis, manager and services that belong to an address."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from strata.core.errors import DeviceError, NotOffered
from strata.hardware.redfish.bmc import below, items, path_of
from strata.hardware.redfish.client import ROOT, Answer, Json, RedfishClient, Target
from strata.hardware.redfish.power import find_system, powered
from strata.hardware.redfish.quirks import Quirks, quirks_of

MOST_CHASSIS = 8
"""Chassis of one system that are looked into."""


async def system(client: RedfishClient, target: Target) -> Json:
    """The node's system; ``NotOffered`` where the address names something else."""
    path = await find_system(client, target)
    if not path.startswith(f"{ROOT}/Systems/"):
        raise NotOffered("this is no computer system", node=target.address)
    return await powered(client, target)


async def chassis(client: RedfishClient, target: Target) -> Sequence[str]:
    """Paths of the chassis that the address is about: those of its system, or the one that it names."""
    if target.resource.startswith(f"{ROOT}/Chassis/"):
        return [target.resource]
    if target.resource and not target.resource.startswith(f"{ROOT}/Systems/"):
        return []
    if "chassis" not in target.paths:
        linked = items(below(await system(client, target), "Links"), "Chassis")
        if not linked:
            linked = items((await client.get(target.address, f"{ROOT}/Chassis")).body, "Members")
        target.paths["chassis"] = tuple(path for link in linked[:MOST_CHASSIS] if (path := path_of(target.bmc, link)))
    return target.paths["chassis"]


async def manager(client: RedfishClient, target: Target) -> str:
    """Path of the manager that answers for the address."""
    if "manager" not in target.paths:
        linked = items(below(await powered(client, target), "Links"), "ManagedBy")
        if not linked:
            linked = items((await client.get(target.address, f"{ROOT}/Managers")).body, "Members")
        paths = tuple(path for link in linked if (path := path_of(target.bmc, link)))
        if not paths:
            raise NotOffered("it tells of no manager", node=target.bmc.base)
        target.paths["manager"] = paths[:1]
    return target.paths["manager"][0]


async def service(client: RedfishClient, target: Target, name: str) -> Json:
    """The service ``name`` of the service root; ``NotOffered`` where there is none."""
    path = path_of(target.bmc, (await client.features(target.address)).services.get(name))
    if not path:
        raise NotOffered(f"it has no {name}", node=target.bmc.base)
    return (await client.get(target.address, path)).body


async def quirks(client: RedfishClient, target: Target, of: Json) -> Quirks:
    """What to do differently with this controller; ``of``: the node's system."""
    return quirks_of(await client.features(target.address), of)


def linked(target: Target, body: Json, name: str, *, what: str = "") -> str:
    """The path that ``body`` links to as ``name``; ``NotOffered`` where it does not."""
    path = path_of(target.bmc, body.get(name))
    if not path:
        raise NotOffered(f"it has no {what or name}", node=target.bmc.base)
    return path


def action(target: Target, body: Json, name: str) -> tuple[str, Json]:
    """Where to post the action ``name`` of ``body``, and what it says of itself; ``NotOffered`` without it."""
    found = below(body, "Actions", name)
    where = path_of(target.bmc, found.get("target"))
    if not where:
        raise NotOffered(f"it has no {name.lstrip('#')}", node=target.bmc.base)
    return where, found


async def maybe(client: RedfishClient, target: Target, path: str) -> Json:
    """The resource at ``path``; nothing where there is none, or where it is answered with nonsense."""
    return await _tolerant(client, target, client.get(target.address, path)) if path else {}


async def members(client: RedfishClient, target: Target, path: str) -> list[Json]:
    """The members of the collection at ``path``; none where ``maybe`` would have nothing."""
    return items(await _tolerant(client, target, client.tree(target.address, path)), "Members") if path else []


async def _tolerant(client: RedfishClient, target: Target, read: Awaitable[Answer | Json]) -> Json:
    """What was read. One part that is wrong does not hide the rest; a controller that does not answer, or that is
    busy, is an error: what is missing then is there all the same."""
    try:
        found = await read
    except NotOffered:
        return {}
    except DeviceError as wrong:
        if not wrong.reply or client.clock() < target.bmc.quiet_until:
            raise
        return {}
    return found.body if isinstance(found, Answer) else found
