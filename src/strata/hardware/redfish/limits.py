"""Power limits over Redfish, in the three shapes that there are: Control, EnvironmentMetrics, Power.PowerControl."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence

from strata.core.errors import BadRequest, NotOffered
from strata.hardware.bmc import PowerLimit
from strata.hardware.redfish.bmc import below, items, path_of, text
from strata.hardware.redfish.client import ROOT, Json, RedfishClient, Target
from strata.hardware.redfish.find import chassis, maybe, members, system
from strata.hardware.redfish.sensors import number

IN_POWER = "/Power#/PowerControl/"
"""What the id of a limit in the old shape has in it."""
OFF_MODES = ("Disabled", "Off")
"""Values of ControlMode that say that no cap is set."""


async def read_limits(client: RedfishClient, target: Target) -> Sequence[PowerLimit]:
    """What can be capped. The same cap told twice (by its Control and by EnvironmentMetrics) is listed once."""
    found: list[PowerLimit] = []
    told: set[str] = set()
    for path in await chassis(client, target):
        body = await maybe(client, target, path)
        own = [limit async for limit in _controls(client, target, body)]
        told |= {limit.id for limit in own}
        metrics = path_of(target.bmc, body.get("EnvironmentMetrics"))
        own += _metrics(target, metrics, await maybe(client, target, metrics), text(body.get("Name")), told)
        if not own:
            power = path_of(target.bmc, body.get("Power"))
            own += _power(power, await maybe(client, target, power))
        found += own
    return [*found, *[limit async for limit in _processors(client, target, told)]]


async def write_limit(client: RedfishClient, target: Target, limit: str, watts: float | None) -> None:
    """Cap ``limit``; None takes the cap off. Out of its bounds is refused before it is sent."""
    if watts is not None and not (math.isfinite(watts) and watts > 0):
        raise BadRequest("a limit is a number of watts above 0", where=str(watts)[:40])
    path = path_of(target.bmc, limit.partition("#")[0])
    # A controller may have several nodes: who may cap one of them may not cap its neighbour.
    own = [*await chassis(client, target), target.resource]
    if not any(part and path.startswith(f"{part}/") for part in own):
        raise BadRequest("not a power limit of this node", where=limit[:200], hint="see its power limits")
    answer = await client.get(target.address, path)
    index = limit.rpartition("/")[2]
    if IN_POWER in limit and index.isdecimal():
        known = _power(path, answer.body)
        # An empty object leaves its place in the list as it is.
        change: Json = {"PowerControl": [*[{}] * int(index[:3]), {"PowerLimit": {"LimitInWatts": watts}}]}
    elif "SetPoint" in answer.body:
        known = [_control(path, answer.body)]
        change = _set_point(answer.body, watts)
    elif below(answer.body, "PowerLimitWatts"):
        known = _metrics(target, path, answer.body, "", set())
        change = {"PowerLimitWatts": _set_point(below(answer.body, "PowerLimitWatts"), watts)}
    else:
        raise NotOffered("it has no such power limit", node=target.bmc.base)
    for one in known:
        if one.id == limit and watts is not None:
            _check(one, watts)
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


async def _controls(client: RedfishClient, target: Target, body: Json) -> AsyncIterator[PowerLimit]:
    for control in await members(client, target, path_of(target.bmc, body.get("Controls"))):
        if control.get("ControlType") == "Power" and "SetPoint" in control:
            yield _control(path_of(target.bmc, control), control)


def _control(path: str, body: Json) -> PowerLimit:
    return PowerLimit(
        id=path,
        name=text(body.get("Name")) or path,
        watts=None if body.get("ControlMode") in OFF_MODES else number(body.get("SetPoint")),
        least=number(body.get("AllowableMin")),
        most=number(body.get("AllowableMax")),
        via="Control",
    )


def _metrics(target: Target, path: str, body: Json, name: str, told: set[str]) -> list[PowerLimit]:
    limit = below(body, "PowerLimitWatts")
    if not limit or path_of(target.bmc, limit.get("DataSourceUri")) in told - {""}:
        return []
    return [
        PowerLimit(
            id=path,
            name=f"{name} power limit".strip(),
            watts=None if limit.get("ControlMode") in OFF_MODES else number(limit.get("SetPoint")),
            least=number(limit.get("AllowableMin")),
            most=number(limit.get("AllowableMax")),
            via="EnvironmentMetrics",
        )
    ]


def _power(path: str, body: Json) -> list[PowerLimit]:
    found = []
    for index, control in enumerate(items(body, "PowerControl")):
        if "PowerLimit" not in control:
            continue  # Cray's node cards list every domain, also those that cannot be capped
        # Cray tells the bounds in its own corner: the standard has no place for them here.
        cray = below(control, "Oem", "Cray", "PowerLimit")
        found.append(
            PowerLimit(
                id=f"{path}#/PowerControl/{index}",
                name=text(control.get("Name")) or f"power limit {index}",
                watts=number(below(control, "PowerLimit").get("LimitInWatts")),
                least=number(cray.get("Min")),
                most=number(cray.get("Max")),
                via="PowerControl",
            )
        )
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
