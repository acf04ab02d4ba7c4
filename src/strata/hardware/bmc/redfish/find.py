"""Finding one's way in a BMC: the system, chassis, manager and services that belong to an address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from strata.core.errors import DeviceError, NotOffered
from strata.hardware.bmc.redfish.client import ROOT, Answer, Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, items, path_of, text
from strata.hardware.bmc.redfish.pairing import Home, home_of, manager_of, name_of
from strata.hardware.bmc.redfish.power import find_system, powered

MOST_CHASSIS = 8
"""Chassis of one system that are looked into."""
MOST_NAMED = 8
"""Candidates that an error names."""
UNREAD = "@Message.ExtendedInfo"
"""What a member of a collection has that could not be read."""


async def system(client: RedfishClient, target: Target) -> Json:
    """The node's system; ``NotOffered`` where the address names something else."""
    path = await find_system(client, target)
    if not path.startswith(f"{ROOT}/Systems/"):
        raise NotOffered("this is no computer system", node=target.address)
    return await powered(client, target)


async def home(client: RedfishClient, target: Target) -> Home:
    """The chassis that the address is about: those of its system, or the one that it names. ``NotOffered`` where any
    of several might be its own: what is another node's is not touched."""
    found = await around(client, target)
    if found.unclear:
        listed = ", ".join(name_of(path) for path in found.unclear[:MOST_NAMED])
        more = f" and {len(found.unclear) - MOST_NAMED} more" if len(found.unclear) > MOST_NAMED else ""
        raise NotOffered(
            f"it does not say which chassis is that of {name_of(found.system)}: it has {listed}{more}, no links "
            "between systems and chassis, and no chassis of the same id",
            node=target.bmc.base,
            hint="a newer firmware may link them; until then make the chassis that is meant a component of its own, "
            f"with the bmc address ...{ROOT}/Chassis/ID",
        )
    return found


async def around(client: RedfishClient, target: Target) -> Home:
    """As ``home``, and with what is ``unclear`` where that cannot be told."""
    if target.resource.startswith(f"{ROOT}/Chassis/"):
        return Home(own=(target.resource,))
    if target.resource and not target.resource.startswith(f"{ROOT}/Systems/"):
        return Home()
    if target.home is None:
        found = await _look_around(client, target)
        if found.unclear:
            return found  # a node that is switched on may tell more: it is looked at again
        target.home = found._replace(own=found.own[:MOST_CHASSIS], shared=found.shared[:MOST_CHASSIS])
    return target.home


async def _look_around(client: RedfishClient, target: Target) -> Home:
    where = follow(target)
    body = await system(client, target)
    systems = await _bodies(client, target, "Systems")
    systems[target.resource] = body
    told = [path for link in items(below(body, "Links"), "Chassis") if (path := where(link))]
    chassis: dict[str, Json] = {}
    managers: dict[str, Json] = {}
    if told and len(systems) == 1:
        chassis = {path: found for path in told[:MOST_CHASSIS] if (found := await _there(client, target, path))}
    if not chassis:
        chassis = await _bodies(client, target, "Chassis")
    if len(systems) > 1 and not told:
        managers = await _bodies(client, target, "Managers")
    return home_of(target.resource, systems, chassis, managers, where)


async def _there(client: RedfishClient, target: Target, path: str) -> Json | None:
    """The resource at ``path``, as far as it can be read; None where there is none."""
    try:
        return await maybe(client, target, path, missing=False) or {"@odata.id": path}
    except NotOffered:
        return None


async def _bodies(client: RedfishClient, target: Target, collection: str) -> dict[str, Json]:
    """The members of a collection of the service root by path (none where there is no such collection); one that
    cannot be read is empty."""
    try:
        found = items(await client.tree(target.address, f"{ROOT}/{collection}"), "Members")
    except NotOffered:
        return {}
    return {path: {} if UNREAD in one else one for one in found if (path := path_of(target.bmc, one))}


async def manager(client: RedfishClient, target: Target, *, offering: str = "") -> str:
    """Path of the manager that answers for the address. ``offering``: what will be asked of it, which decides where
    nothing else does. ``NotOffered`` where there is none, or where it is not said which."""
    kept = f"manager {offering}"
    if kept not in target.paths:
        where, body = follow(target), await powered(client, target)
        paths = tuple(path for link in items(below(body, "Links"), "ManagedBy") if (path := where(link)))
        if len(paths) != 1:
            managers = await _bodies(client, target, "Managers")
            uuid = text((await client.features(target.address)).services.get("UUID"))
            paths = manager_of(target.resource, body, managers, uuid, where, offering=offering)
        if not paths:
            raise NotOffered("it lists no manager", node=target.bmc.base)
        if len(paths) > 1:
            listed = ", ".join(name_of(path) for path in paths[:MOST_NAMED])
            raise NotOffered(
                f"it does not say which manager answers for {name_of(target.resource)}: it has {listed}",
                node=target.bmc.base,
                hint="a newer firmware may tell (Links.ManagedBy, ManagerType)",
            )
        target.paths[kept] = paths
    return target.paths[kept][0]


def follow(target: Target) -> Callable[[object], str]:
    """Turns a link of the target's BMC into a path."""
    return partial(path_of, target.bmc)


async def service(client: RedfishClient, target: Target, name: str) -> Json:
    """The service ``name`` of the service root; ``NotOffered`` where there is none."""
    path = path_of(target.bmc, (await client.features(target.address)).services.get(name))
    if not path:
        raise NotOffered(f"it has no {name}", node=target.bmc.base)
    return (await client.get(target.address, path)).body


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


async def maybe(client: RedfishClient, target: Target, path: str, *, missing: bool = True) -> Json:
    """The resource at ``path``; nothing where it is answered with nonsense, or where there is none (unless one that is
    ``missing`` shall be told of)."""
    return await _tolerant(client, target, client.get(target.address, path), missing=missing) if path else {}


async def members(client: RedfishClient, target: Target, path: str) -> list[Json]:
    """The members of the collection at ``path``; none where ``maybe`` would have nothing."""
    return items(await _tolerant(client, target, client.tree(target.address, path)), "Members") if path else []


async def _tolerant(
    client: RedfishClient, target: Target, read: Awaitable[Answer | Json], *, missing: bool = True
) -> Json:
    """What was read. One part that is wrong does not hide the rest; a BMC that does not answer, or that is
    busy, is an error: what is missing then is there all the same."""
    try:
        found = await read
    except NotOffered:
        if not missing:
            raise
        return {}
    except DeviceError as wrong:
        if not wrong.reply or client.clock() < target.bmc.quiet_until:
            raise
        return {}
    return found.body if isinstance(found, Answer) else found
