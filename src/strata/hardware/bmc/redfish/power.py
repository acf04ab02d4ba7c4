"""Power over Redfish: read it, switch it. Vendors differ, so ask what is allowed and believe little.

What is powered is what the address names: a system (the only one, where it names none), a chassis, a PDU's outlet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from strata.core.errors import DeviceError, NotOffered
from strata.core.state import Fence
from strata.hardware.bmc.protocol import PowerAction
from strata.hardware.bmc.redfish.client import ROOT, Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import Switch, below, items, path_of, text

FENCE_HEADER = "X-Strata-Fence"

RESET_TYPES: Mapping[PowerAction, tuple[str, ...]] = {
    "on": ("On", "ForceOn"),
    "off": ("ForceOff", "Off", "GracefulShutdown"),
    "graceful-off": ("GracefulShutdown",),
    "cycle": ("PowerCycle", "ForceRestart"),
    "graceful-restart": ("GracefulRestart",),
    "nmi": ("Nmi",),
}
"""Reset types, best first. Off is by force: what ran on the node has left it by then, and a hung OS does not obey.
Graceful never falls back to force: who asks for grace has something to lose. ``Off`` is Cray's, for node cards."""

OUTLET_STATES: Mapping[PowerAction, tuple[str, ...]] = {"on": ("On",), "off": ("Off",), "cycle": ("PowerCycle",)}
"""What an outlet's PowerControl takes."""

POWER_STATES = {"On": "on", "Off": "off", "PoweringOn": "off", "PoweringOff": "on"}
"""What Redfish says → the fact. A change under way has not happened yet; ``Paused`` and the like are unknown."""

RESET, CONTROL = "ResetType", "PowerState"
"""The one parameter of a reset, and of an outlet's power control."""

ACTIONS = (
    ("#ComputerSystem.Reset", RESET), ("#Chassis.Reset", RESET), ("#Outlet.PowerControl", CONTROL),
    ("#OutletGroup.PowerControl", CONTROL), ("#PowerDistribution.Reset", RESET),
)  # fmt: skip
"""What switches power, by the kind of the resource."""


async def read_power(client: RedfishClient, address: str) -> str | None:
    """``on``, ``off``, or None where the BMC does not say."""
    body = await powered(client, client.target(address))
    state = body.get("PowerState")
    found = POWER_STATES.get(state) if isinstance(state, str) else None
    if found is None and "PowerState" in body:
        shown = repr(text(state, 40)) if isinstance(state, str) else str(state)[:40]
        client.bmc(address).flaw = f"it does not say whether its node is on: PowerState is {shown}"
    return found


async def switch_power(
    client: RedfishClient,
    address: str,
    action: PowerAction,
    *,
    fence: Fence | None = None,
    begin_before: float = math.inf,
) -> None:
    """Ask for it; returning means that the BMC accepted it, no more.

    Raises ``Conflict`` when it has taken a newer fence, ``OutcomeUnknown`` when there is no answer, ``DeviceError``
    when it refuses, ``NotOffered`` when it cannot, ``Unavailable`` when ``begin_before`` has passed.
    """
    target = client.target(address)
    if target.switch is None:
        await powered(client, target)
    where, parameter, value = _choose(target, action)
    headers = {FENCE_HEADER: f"{fence.epoch}.{fence.generation}"} if fence else {}
    await client.request(address, "POST", where, {parameter: value}, headers=headers, begin_before=begin_before)


async def powered(client: RedfishClient, target: Target) -> Json:
    """The resource that the address names; on the way, learn where it is and what switches it."""
    resource = target.resource or await find_system(client, target)
    body = (await client.get(target.address, resource)).body
    if target.switch is None:
        target.switch = await _learn(client, target, body)
    return body


async def find_system(client: RedfishClient, target: Target) -> str:
    """The only system behind the BMC. Where there are several, the address must name one."""
    if not target.resource:
        members = (await client.get(target.address, f"{ROOT}/Systems")).body.get("Members")
        only = path_of(target.bmc, members[0]) if isinstance(members, list) and len(members) == 1 else ""
        if not only:
            raise DeviceError(
                f"{len(members) if isinstance(members, list) else 'no'} systems behind one BMC",
                node=target.bmc.base,
                hint=f"name the node's own in its bmc address: ...{ROOT}/Systems/ID",
            )
        target.resource = only
    return target.resource


async def _learn(client: RedfishClient, target: Target, body: Json) -> Switch | None:
    for name, parameter in ACTIONS:
        action = below(body, "Actions", name)
        where = path_of(target.bmc, action.get("target"))
        if where:
            return Switch(where, parameter, await _allowed(client, target, action, parameter))
    return None


async def _allowed(client: RedfishClient, target: Target, action: Json, parameter: str) -> tuple[str, ...]:
    allowed = action.get(f"{parameter}@Redfish.AllowableValues")
    info = path_of(target.bmc, action.get("@Redfish.ActionInfo"))
    if allowed is None and info:
        for found in items((await client.get(target.address, info)).body, "Parameters"):
            if found.get("Name") == parameter:
                allowed = found.get("AllowableValues")
    return tuple(kind for kind in allowed if isinstance(kind, str)) if isinstance(allowed, list) else ()


def _choose(target: Target, action: PowerAction) -> tuple[str, str, str]:
    """Where to post, the parameter, and the best value that the BMC allows (of all, where it does not say)."""
    switch = target.switch
    if switch is None:
        raise NotOffered("it offers no reset action", node=target.bmc.base)
    wanted = (RESET_TYPES if switch.parameter == RESET else OUTLET_STATES).get(action, ())
    for kind in wanted if switch.allowed else wanted[:1]:
        if not switch.allowed or kind in switch.allowed:
            return switch.where, switch.parameter, kind
    offered = f": it allows only {', '.join(switch.allowed)[:200]}" if switch.allowed else ""
    raise NotOffered(f"it cannot do {action}{offered}", node=target.bmc.base)
