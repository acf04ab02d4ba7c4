"""Power over Redfish: read it, switch it, measure it. Vendors differ, so ask what is allowed and believe little."""

from __future__ import annotations

import math
from collections.abc import Mapping

from strata.core.errors import DeviceError
from strata.core.state import Fence
from strata.hardware.redfish import ROOT, Bmc, Json, RedfishClient

FENCE_HEADER = "X-Strata-Fence"

ON_TYPES = ("On", "ForceOn")
OFF_TYPES = ("ForceOff", "GracefulShutdown")
"""Reset types, best first. Off is by force: what ran on the node has left it by then, and a hung OS does not obey."""

POWER_STATES = {"On": "on", "Off": "off", "PoweringOn": "off", "PoweringOff": "on"}
"""What Redfish says → the fact. A change under way has not happened yet; ``Paused`` and the like are unknown."""

MOST_WATTS = 100_000
"""A node that claims to draw more is not believed."""


async def read_power(client: RedfishClient, address: str) -> str | None:
    """``on``, ``off``, or None where the controller does not say."""
    body = await _system(client, address)
    state = body.get("PowerState")
    return POWER_STATES.get(state) if isinstance(state, str) else None


async def switch_power(
    client: RedfishClient, address: str, *, on: bool, fence: Fence | None = None, begin_before: float = math.inf
) -> None:
    """Ask for a reset; returning means that the controller accepted it, no more.

    Raises ``Conflict`` when it has taken a newer fence, ``OutcomeUnknown`` when there is no answer, ``DeviceError``
    when it refuses, ``Unavailable`` when ``begin_before`` has passed.
    """
    bmc = client.bmc(address)
    if not bmc.reset_target:
        await _system(client, address)
    if not bmc.reset_target:
        raise DeviceError("the system offers no reset action", node=bmc.base)
    kind = _choose(bmc, ON_TYPES if on else OFF_TYPES)
    headers = {FENCE_HEADER: f"{fence.epoch}.{fence.generation}"} if fence else {}
    body = {"ResetType": kind}
    await client.request(address, "POST", bmc.reset_target, body, headers=headers, begin_before=begin_before)


async def read_watts(client: RedfishClient, address: str) -> float | None:
    """What the node's chassis draws, or None where the controller does not say or cannot be believed."""
    bmc = client.bmc(address)
    links = (await _system(client, address)).get("Links")
    chassis = links.get("Chassis") if isinstance(links, Mapping) else None
    path = _path(bmc, chassis[0]) if isinstance(chassis, list) and chassis else ""
    if not path:
        return None
    controls = (await client.get(address, f"{path}/Power")).body.get("PowerControl")
    control = controls[0] if isinstance(controls, list) and controls else {}
    watts = control.get("PowerConsumedWatts") if isinstance(control, Mapping) else None
    if not isinstance(watts, float | int | str):
        return None
    try:
        found = float(watts)  # some vendors write numbers as strings
    except ValueError:
        return None
    return found if 0 <= found <= MOST_WATTS else None


async def _system(client: RedfishClient, address: str) -> Json:
    """The node's system resource; on the way, learn where it is and what resets it takes."""
    bmc = client.bmc(address)
    if not bmc.system:
        members = (await client.get(address, f"{ROOT}/Systems")).body.get("Members")
        if not isinstance(members, list) or len(members) != 1 or not _path(bmc, members[0]):
            raise DeviceError(
                f"{len(members) if isinstance(members, list) else 'no'} systems behind one controller",
                node=bmc.base,
                hint=f"name the node's own in its bmc address: ...{ROOT}/Systems/ID",
            )
        bmc.system = _path(bmc, members[0])
    body = (await client.get(address, bmc.system)).body
    if not bmc.reset_target:
        await _learn_reset(client, address, bmc, body)
    return body


async def _learn_reset(client: RedfishClient, address: str, bmc: Bmc, system: Json) -> None:
    actions = system.get("Actions")
    reset = actions.get("#ComputerSystem.Reset") if isinstance(actions, Mapping) else None
    if not isinstance(reset, Mapping):
        return
    allowed = reset.get("ResetType@Redfish.AllowableValues")
    info = reset.get("@Redfish.ActionInfo")
    if allowed is None and isinstance(info, str):
        parameters = (await client.get(address, _path(bmc, {"@odata.id": info}) or info)).body.get("Parameters")
        for parameter in parameters if isinstance(parameters, list) else ():
            if isinstance(parameter, Mapping) and parameter.get("Name") == "ResetType":
                allowed = parameter.get("AllowableValues")
    bmc.reset_types = tuple(kind for kind in allowed if isinstance(kind, str)) if isinstance(allowed, list) else ()
    bmc.reset_target = _path(bmc, {"@odata.id": reset.get("target")})


def _choose(bmc: Bmc, wanted: tuple[str, ...]) -> str:
    """The best type that the controller allows; the best of all where it does not say what it allows."""
    if not bmc.reset_types:
        return wanted[0]
    for kind in wanted:
        if kind in bmc.reset_types:
            return kind
    raise DeviceError(f"it allows none of {', '.join(wanted)}, only {', '.join(bmc.reset_types)[:200]}", node=bmc.base)


def _path(bmc: Bmc, link: object) -> str:
    """The path of a link, below the controller's own address. A link that leads elsewhere is no link."""
    path = link.get("@odata.id") if isinstance(link, Mapping) else None
    if not isinstance(path, str):
        return ""
    path = path.removeprefix(bmc.origin).removeprefix(bmc.path).rstrip("/")
    return path if path.startswith(f"{ROOT}/") and "/../" not in path else ""
