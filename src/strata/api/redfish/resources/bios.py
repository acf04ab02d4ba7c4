"""Firmware settings of a node: those in force, and those that wait for its next restart."""

from __future__ import annotations

from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.route import Call, Json, Reply, Route, link
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import resource
from strata.api.redfish.resources.ids import SYSTEMS
from strata.api.redfish.resources.needs import ACT, READ_BMC
from strata.core.errors import BadRequest, NotOffered
from strata.fleet.nodes.service import NodeService
from strata.hardware.bmc.records import NodeBios
from strata.hardware.bmc.service import BmcService

_KIND = "Bios.v1_2_3"
_LONGEST = 1024
_MOST = 1000


async def _settings(call: Call) -> NodeBios:
    """What its controller says; nothing where the hardware has no such settings."""
    view = await call.of(NodeService).node(call.who, call.params["system"])
    try:
        return await live.kept(call).get(("bios", view.name), lambda: call.of(BmcService).bios(call.who, view.name))
    except (NotOffered, BadRequest):
        return NodeBios(node=view.name, current={}, staged={})


async def bios(call: Call) -> Json:
    """The settings in force."""
    found = await _settings(call)
    path = f"{ids.system(found.node)}/Bios"
    return resource(
        path,
        _KIND,
        "Bios",
        "Firmware settings",
        Attributes=dict(found.current),
        **{
            "@Redfish.Settings": {
                "@odata.type": "#Settings.v1_4_0.Settings",
                "SettingsObject": link(f"{path}/Settings"),
                "SupportedApplyTimes": ["OnReset"],
            }
        },
    )


async def staged(call: Call) -> Json:
    """The settings that the next restart brings into force."""
    found = await _settings(call)
    path = f"{ids.system(found.node)}/Bios/Settings"
    return resource(path, _KIND, "Settings", "Staged firmware settings", Attributes=dict(found.staged))


async def stage(call: Call) -> Reply:
    """Stage settings."""
    given = bodies.change(call, {"Attributes": dict}, await staged(call))["Attributes"] or {}
    if not given:
        raise rejected(400, "NoOperation")
    if len(given) > _MOST:
        raise BadRequest(f"{len(given)} settings; at most {_MOST} at a time", where="Attributes")
    for name, value in given.items():
        if isinstance(value, dict | list) or len(str(value)) > _LONGEST:
            raise rejected(400, "PropertyValueTypeError", str(value)[:80], name, about=f"Attributes/{name}")
    node = call.params["system"]
    outcome = await call.of(BmcService).stage_bios(call.who, node, given)
    live.kept(call).forget(("bios", node))
    return bodies.done(outcome)


ROUTES = (
    Route(template=f"{SYSTEMS}/{{system}}/Bios", get=bios, rights={"GET": READ_BMC}),
    Route(
        template=f"{SYSTEMS}/{{system}}/Bios/Settings", get=staged, patch=stage, rights={"GET": READ_BMC, "PATCH": ACT}
    ),
)
