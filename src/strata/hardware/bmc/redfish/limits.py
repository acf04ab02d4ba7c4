"""Power limits over Redfish, in the three shapes that there are: Control, EnvironmentMetrics, Power.PowerControl."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from strata.core.errors import BadRequest, NotOffered
from strata.hardware.bmc.protocol import PowerLimit
from strata.hardware.bmc.redfish.client import ROOT, Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, path_of, text
from strata.hardware.bmc.redfish.find import follow, home, maybe, members, system
from strata.hardware.bmc.redfish.pairing import Home, name_of
from strata.hardware.bmc.redfish.sensors import number

IN_POWER = "/Power#/PowerControl/"
"""What the id of a limit in the old shape has in it."""
OFF_MODES = ("Disabled", "Off")
"""Values of ControlMode that say that no cap is set."""


async def read_limits(client: RedfishClient, target: Target) -> Sequence[PowerLimit]:
    """What can be capped. The same cap told twice (by its Control and by EnvironmentMetrics) is listed once; one of
    other nodes, or of several at once, is not. ``NotOffered`` where there are only such."""
    near = await home(client, target)
    found: list[PowerLimit] = []
    told: set[str] = set()
    common: list[str] = []
    for path in (*near.own, *near.shared):
        listed, left_out = await _of_chassis(client, target, near, path, told)
        found += listed
        common += [name_of(path)] if left_out else []
    found += [limit async for limit in _processors(client, target, told)]
    if common and not found:
        raise NotOffered(
            f"it has no power limit of its own: that of {', '.join(common)} is for several nodes",
            node=target.bmc.base,
            hint=f"cap the chassis as a component of its own, with the bmc address ...{ROOT}/Chassis/ID",
        )
    return found


async def _of_chassis(
    client: RedfishClient, target: Target, near: Home, path: str, told: set[str]
) -> tuple[list[PowerLimit], bool]:
    """The limits in one chassis that are the node's, and whether there are others."""
    body = await maybe(client, target, path)
    where = follow(target)

    def ours(item: Json) -> bool:
        return _ours(near, path, item, where)

    controls = [one async for one in _controls(client, target, body)]
    found = [_control(where(one), one) for one in controls if ours(one)]
    told |= {where(one) for one in controls}
    metrics = where(body.get("EnvironmentMetrics"))
    more = _metrics(target, metrics, await maybe(client, target, metrics), text(body.get("Name")), told)
    found += more if ours({}) else []
    if not controls and not more:
        power = where(body.get("Power"))
        old = await maybe(client, target, power)
        every = _power(power, old)
        found = [limit for limit, control in every if ours(control)]
        return found, len(found) < len(every)
    return found, len(found) < len(controls) + len(more)


def _ours(near: Home, path: str, item: Json, where: Callable[[object], str]) -> bool:
    """Whether what is in the chassis at ``path`` is this node's alone: by default in a chassis of its own, and only if
    it says so in one that holds several."""
    relation = near.relation(item, where)
    return relation == "own" or (relation == "" and path not in near.shared)


async def write_limit(client: RedfishClient, target: Target, limit: str, watts: float | None) -> None:
    """Cap ``limit``; None takes the cap off. Out of its bounds is refused before it is sent."""
    if watts is not None and not (math.isfinite(watts) and watts > 0):
        raise BadRequest("a limit is a number of watts above 0", where=str(watts)[:40])
    path = path_of(target.bmc, limit.partition("#")[0])
    # A BMC may have several nodes: who may cap one of them may not cap its neighbour.
    near = await home(client, target)
    places = [part for part in (*near.own, *near.shared, target.resource) if part]
    within = next((part for part in places if path.startswith(f"{part}/")), "")
    if not within:
        raise BadRequest("not a power limit of this node", where=limit[:200], hint="see its power limits")
    answer = await client.get(target.address, path)
    item = answer.body
    if IN_POWER in limit:
        every = {one.id: (one, control) for one, control in _power(path, answer.body)}
        if limit not in every:
            raise NotOffered("it has no such power limit", node=target.bmc.base, request=limit[:200])
        known, item = every[limit]
        # An empty object leaves its place in the list as it is.
        before = int(limit.rpartition("/")[2])
        change: Json = {"PowerControl": [*[{}] * before, {"PowerLimit": {"LimitInWatts": watts}}]}
    elif "SetPoint" in answer.body:
        known = _control(path, answer.body)
        change = _set_point(answer.body, watts)
    elif more := _metrics(target, path, answer.body, "", set()):
        known = more[0]
        change = {"PowerLimitWatts": _set_point(below(answer.body, "PowerLimitWatts"), watts)}
    else:
        raise NotOffered("it has no such power limit", node=target.bmc.base, request=limit[:200])
    if not _ours(near, within, item, follow(target)):
        hint = "see its power limits"
        raise BadRequest("not a power limit of this node: others have it, or have it too", where=limit[:200], hint=hint)
    if watts is not None:
        _check(known, watts)
    await client.patch(target.address, path, change, tag=answer.etag)


def _check(limit: PowerLimit, watts: float) -> None:
    if (limit.least is not None and watts < limit.least) or (limit.most is not None and watts > limit.most):
        least, most = (f"{bound:g}" if bound is not None else "?" for bound in (limit.least, limit.most))
        raise BadRequest(f"it takes {least} to {most} W", where=f"{watts:g} W for {limit.name}")


def _set_point(body: Json, watts: float | None) -> Json:
    moded = "ControlMode" in body
    if watts is None:
        return {"ControlMode": "Disabled"} if moded else {"SetPoint": None}
    return {"SetPoint": watts, "ControlMode": "Automatic"} if moded else {"SetPoint": watts}


async def _controls(client: RedfishClient, target: Target, body: Json) -> AsyncIterator[Json]:
    for control in await members(client, target, path_of(target.bmc, body.get("Controls"))):
        if control.get("ControlType") == "Power" and "SetPoint" in control:
            yield control


def _control(path: str, body: Json) -> PowerLimit:
    least, most = bounds(body)
    return PowerLimit(
        id=path,
        name=text(body.get("Name")) or path,
        watts=None if body.get("ControlMode") in OFF_MODES else number(body.get("SetPoint")),
        least=least,
        most=most,
        via="Control",
    )


def bounds(body: Json) -> tuple[float | None, float | None]:
    """What a Control takes: Cray's node cards go by the first version of its schema, with other names."""
    least, most = number(body.get("AllowableMin")), number(body.get("AllowableMax"))
    return (
        number(body.get("SettingRangeMin")) if least is None else least,
        number(body.get("SettingRangeMax")) if most is None else most,
    )


def _metrics(target: Target, path: str, body: Json, name: str, told: set[str]) -> list[PowerLimit]:
    limit = below(body, "PowerLimitWatts")
    if not limit or path_of(target.bmc, limit.get("DataSourceUri")) in told - {""}:
        return []
    least, most = bounds(limit)
    return [
        PowerLimit(
            id=path,
            name=f"{name} power limit".strip(),
            watts=None if limit.get("ControlMode") in OFF_MODES else number(limit.get("SetPoint")),
            least=least,
            most=most,
            via="EnvironmentMetrics",
        )
    ]


def _power(path: str, body: Json) -> list[tuple[PowerLimit, Json]]:
    """The limits of the old shape, each with the entry that it is in. Places count also those that are no objects."""
    found = []
    listed = body.get("PowerControl")
    for index, control in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(control, Mapping) or "PowerLimit" not in control:
            continue  # Cray's node cards list every domain, also those that cannot be capped
        # Cray tells the bounds in its own corner: the standard has no place for them here.
        cray = below(control, "Oem", "Cray", "PowerLimit")
        limit = PowerLimit(
            id=f"{path}#/PowerControl/{index}",
            name=text(control.get("Name")) or f"power limit {index}",
            watts=number(below(control, "PowerLimit").get("LimitInWatts")),
            least=number(cray.get("Min")),
            most=number(cray.get("Max")),
            via="PowerControl",
        )
        found.append((limit, control))
    return found


async def _processors(client: RedfishClient, target: Target, told: set[str]) -> AsyncIterator[PowerLimit]:
    """Caps of processors and accelerators, which have EnvironmentMetrics of their own."""
    if not target.resource.startswith(f"{ROOT}/Systems/"):
        return
    path = path_of(target.bmc, (await system(client, target)).get("Processors"))
    for processor in await members(client, target, path):
        metrics = path_of(target.bmc, processor.get("EnvironmentMetrics"))
        name = text(processor.get("Name")) or text(processor.get("Id"))
        for limit in _metrics(target, metrics, await maybe(client, target, metrics), name, told):
            yield limit
