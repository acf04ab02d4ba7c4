"""Where nodes are: cabinets, chassis and slots, read off the nodes' locations, and each node's own enclosure."""

from __future__ import annotations

import asyncio

from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.route import Call, Json, Reply, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import status
from strata.api.redfish.resources.ids import CHASSIS
from strata.api.redfish.resources.needs import ACT, READ, READ_BMC
from strata.api.redfish.resources.systems import power_state, system_status
from strata.core import xname
from strata.core.errors import BadRequest, NotFound
from strata.fleet.nodes.locations import ancestor_finder
from strata.fleet.nodes.records import NodeView
from strata.fleet.nodes.service import NodeService
from strata.hardware.bmc.service import BmcService

LEVELS = ("Cabinet", "Chassis", "ComputeModule")
"""The places that are Chassis, each within the one before."""
_TYPES = {"Cabinet": "Rack", "Chassis": "Enclosure", "ComputeModule": "Blade"}
_WORDS = {"Cabinet": "Cabinet", "Chassis": "Chassis", "ComputeModule": "Slot"}
_FINDERS = tuple(ancestor_finder(level) for level in LEVELS)

ROUTES = Routes()


@ROUTES.get(CHASSIS, READ)
async def all_chassis(call: Call) -> Json:
    """Every place that holds a node, then every node's enclosure: names only."""
    nodes = call.of(NodeService)
    places = [place for level in LEVELS for place in await nodes.locations(call.who, "*", level)]
    names = await nodes.node_names(call.who, "*")
    members = [ids.place(place) for place in places] + [ids.enclosure(name) for name in names]
    return collection(CHASSIS, "Chassis", "Cabinets, chassis, slots and nodes", members)


@ROUTES.get(f"{CHASSIS}/{{chassis}}", READ)
async def chassis(call: Call) -> Json:
    """A place, or a node's enclosure."""
    node = ids.node_of_enclosure(call.params["chassis"])
    return await _enclosure(call, node) if node else await _place(call, call.params["chassis"])


async def node_here(call: Call) -> NodeView:
    """The node whose enclosure the call is about; ``NotFound`` for any other Chassis."""
    node = ids.node_of_enclosure(call.params["chassis"])
    if not node:
        raise NotFound("only the enclosures of nodes have this", where=call.params["chassis"][:80])
    return await call.of(NodeService).node(call.who, node)


async def _enclosure(call: Call, node: str) -> Json:
    view = await call.of(NodeService).node(call.who, node)
    hardware = await live.hardware(call, node)
    path = ids.enclosure(node)
    managers = [link(f"{ids.MANAGERS}/{ids.SERVICE_MANAGER}")]
    if hardware is not None:
        managers.append(link(ids.manager(hardware.bmc)))
    links: Json = {"ComputerSystems": [link(ids.system(node))], "ManagedBy": managers}
    if home := _home(view.location):
        links["ContainedBy"] = link(ids.place(home))
    found = resource(
        path,
        "Chassis",
        f"Enclosure of {node}",
        ChassisType="Module",
        PowerState=power_state(view),
        Status=await system_status(call, view, hardware),
        Drives=link(f"{path}/Drives"),
        Links=links,
        **_location(view.location),
    )
    if call.services.find(BmcService) is not None and call.who.may(READ_BMC):
        found |= {
            "LocationIndicatorActive": None,
            "Sensors": link(f"{path}/Sensors"),
            "PowerSubsystem": link(f"{path}/PowerSubsystem"),
            "ThermalSubsystem": link(f"{path}/ThermalSubsystem"),
            "EnvironmentMetrics": link(f"{path}/EnvironmentMetrics"),
        }
    return found


async def _place(call: Call, name: str) -> Json:
    try:
        here = xname.parse(name)
    except BadRequest:
        raise NotFound("no such place, and no node", where=name[:80]) from None
    nodes = call.of(NodeService)
    names = await nodes.node_names(call.who, f"location:{here}") if here.type in LEVELS else ()
    if not names or here.text != name:
        raise NotFound("no node is there", where=name[:80])
    inner = LEVELS[LEVELS.index(here.type) + 1 :]
    within = await nodes.locations(call.who, f"location:{here}", inner[0]) if inner else ()
    # What is in no smaller place is directly here.
    inside = await asyncio.gather(*(nodes.node_names(call.who, f"location:{place}") for place in within))
    further = {node for nodes in inside for node in nodes}
    links: Json = {
        "ComputerSystems": [link(ids.system(node)) for node in names],
        "Contains": [link(ids.place(place)) for place in within]
        + [link(ids.enclosure(node)) for node in names if node not in further],
        "ManagedBy": [link(f"{ids.MANAGERS}/{ids.SERVICE_MANAGER}")],
    }
    if home := _home(here.parent.text if here.parent is not None else ""):
        links["ContainedBy"] = link(ids.place(home))
    return resource(
        ids.place(name),
        "Chassis",
        f"{_WORDS[here.type]} {name}",
        ChassisType=_TYPES[here.type],
        Status=status("Enabled"),
        Links=links,
        **_location(name),
    )


def _home(location: str) -> str:
    """The smallest place that a location is in; empty: none."""
    return next((found for find in reversed(_FINDERS) if (found := find(location))), "")


def _location(place: str) -> Json:
    if not place:
        return {}
    found: Json = {"PartLocation": {"ServiceLabel": place, "LocationType": "Slot"}}
    above = xname.parse(place).parent
    if above is not None and above.type != "System":
        found["PartLocationContext"] = above.text
    if cabinet := _FINDERS[0](place):
        found["Placement"] = {"Rack": cabinet}
    return {"Location": found}


@ROUTES.patch(f"{CHASSIS}/{{chassis}}", ACT)
async def patch_chassis(call: Call) -> Reply:
    """Switch the identify light of a node's enclosure."""
    current = await chassis(call)
    node = ids.node_of_enclosure(call.params["chassis"])
    given = bodies.change(call, {"LocationIndicatorActive": bool} if node else {}, current)
    return bodies.done(await call.of(BmcService).identify(call.who, node, bool(given["LocationIndicatorActive"])))
