"""Groups as aggregates that are reset as one, and the BMCs that all of this was aggregated from."""

from __future__ import annotations

import re
import secrets

from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.route import Call, Json, Reply, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources import ids
from strata.api.redfish.resources.forms import plain, service, status
from strata.api.redfish.resources.ids import AGGREGATES, AGGREGATION
from strata.api.redfish.resources.managers import bmc_at, bmcs, selector
from strata.api.redfish.resources.needs import ACT, READ_GROUP, READ_HARDWARE
from strata.api.redfish.resources.systems import RESETS
from strata.core.errors import BadRequest
from strata.core.texts import NAME
from strata.fleet.access.principal import Right
from strata.fleet.groups.records import GroupSpec, GroupView, MemberChange
from strata.fleet.groups.service import GroupService
from strata.fleet.nodes.service import NodeService
from strata.hardware.bmc.service import BmcService

_SOURCES = f"{AGGREGATION}/AggregationSources"
_RESET = {"ResetType": str, "BatchSize": int, "DelayBetweenBatchesInSeconds": int}
_GROUP = f"{AGGREGATES}/{{aggregate}}"

_CHANGE = Right("change", "group")

ROUTES = Routes()


@ROUTES.get(AGGREGATION, READ_GROUP)
async def _service(call: Call) -> Json:
    found = service(AGGREGATION, "Aggregation", Aggregates=link(AGGREGATES), AggregationSources=link(_SOURCES))
    if call.services.find(BmcService) is not None:
        found["Actions"] = _action("AggregationService.Reset", AGGREGATION)
    return found


def _action(name: str, path: str) -> Json:
    return {f"#{name}": {"target": f"{path}/Actions/{name}", "ResetType@Redfish.AllowableValues": list(RESETS)}}


# -- aggregates


@ROUTES.get(AGGREGATES, READ_GROUP)
async def aggregates(call: Call) -> Json:
    groups = await call.of(GroupService).groups(call.who)
    return collection(AGGREGATES, "Aggregate", "Groups", [ids.aggregate(group.name) for group in groups])


@ROUTES.get(_GROUP, READ_GROUP)
async def aggregate(call: Call) -> Json:
    return await _shown(call, await call.of(GroupService).group(call.who, call.params["aggregate"]))


async def _shown(call: Call, group: GroupView) -> Json:
    names = await call.of(NodeService).node_names(call.who, f"@{group.name}")
    path = ids.aggregate(group.name)
    actions: Json = {
        f"#Aggregate.{name}": {"target": f"{path}/Actions/Aggregate.{name}"}
        for name in ("AddElements", "RemoveElements")
    }
    if call.services.find(BmcService) is not None:
        actions |= _action("Aggregate.Reset", path)
    return resource(
        path,
        "Aggregate",
        group.name,
        Description=plain(group.description),
        Elements=[link(ids.system(name)) for name in names],
        **{"Elements@odata.count": group.count},
        ElementsCount=group.count,
        Actions=actions,
    )


@ROUTES.post(AGGREGATES, Right("create", "group"))
async def create(call: Call) -> Reply:
    """Make a group. Its id is ``Name``, if that can be one."""
    accepted = {"Name": str, "Description": str, "Elements": list}
    given = bodies.change(call, accepted, {"Id": None, "ElementsCount": None, "Actions": None})
    if given.get("Elements") is None:
        raise bodies.missing("Elements")
    name = given.get("Name") or f"aggregate-{secrets.token_hex(4)}"
    if not re.match(NAME, name):
        raise BadRequest(
            f"{name[:80]!r} cannot be a group's name", where="Name", hint="letters, digits, _ . - and at most 63"
        )
    members = await selector(call, given["Elements"], "Elements") if given["Elements"] else ""
    description = plain(given.get("Description") or "", 500) or ""
    spec = GroupSpec(members=members, description=description)
    group = await call.of(GroupService).put_group(call.who, name, spec, 0)
    return Reply(status=201, body=await _shown(call, group), headers={"Location": ids.aggregate(name)})


@ROUTES.delete(_GROUP, Right("delete", "group"))
async def delete(call: Call) -> Reply:
    """Remove a group; its nodes stay."""
    await call.of(GroupService).delete_group(call.who, call.params["aggregate"], None)
    return bodies.DONE


@ROUTES.post(f"{_GROUP}/Actions/Aggregate.AddElements", _CHANGE)
async def add(call: Call) -> Reply:
    return await _change_members(call, MemberChange(add=await _elements(call, "Aggregate.AddElements")))


@ROUTES.post(f"{_GROUP}/Actions/Aggregate.RemoveElements", _CHANGE)
async def remove(call: Call) -> Reply:
    return await _change_members(call, MemberChange(remove=await _elements(call, "Aggregate.RemoveElements")))


async def _elements(call: Call, action: str) -> str:
    given = bodies.parameters(call, action, {"Elements": list}, needed=("Elements",))
    return await selector(call, given["Elements"], "Elements")


async def _change_members(call: Call, change: MemberChange) -> Reply:
    await call.of(GroupService).change_members(call.who, call.params["aggregate"], change)
    return bodies.DONE


@ROUTES.post(f"{_GROUP}/Actions/Aggregate.Reset", ACT)
async def reset_aggregate(call: Call) -> Reply:
    """Reset every node of a group."""
    given = bodies.parameters(call, "Aggregate.Reset", _RESET, needed=("ResetType",))
    group = await call.of(GroupService).group(call.who, call.params["aggregate"])
    return await _reset(call, given, f"@{group.name}", "Aggregate.Reset")


@ROUTES.post(f"{AGGREGATION}/Actions/AggregationService.Reset", ACT)
async def reset_targets(call: Call) -> Reply:
    action = "AggregationService.Reset"
    given = bodies.parameters(call, action, {**_RESET, "TargetURIs": list}, needed=("ResetType", "TargetURIs"))
    return await _reset(call, given, await selector(call, given["TargetURIs"], "TargetURIs"), action)


async def _reset(call: Call, given: Json, select: str, action: str) -> Reply:
    kind = bodies.one_of(given["ResetType"], RESETS, "ResetType", action)
    for name in ("BatchSize", "DelayBetweenBatchesInSeconds"):
        if given.get(name):
            # The engine's budgets say how many at a time, for everybody who asks: a client cannot loosen them.
            hint = "leave it out: Strata's own budgets decide how many nodes change at a time"
            raise rejected(400, "ActionParameterNotSupported", name, action, about=name, hint=hint)
    return bodies.done(await call.of(BmcService).power(call.who, select, RESETS[kind]))


# -- sources


@ROUTES.get(_SOURCES, READ_HARDWARE)
async def sources(call: Call) -> Json:
    members = [f"{_SOURCES}/{ids.bmc_id(item.address)}" for item in await bmcs(call)]
    return collection(_SOURCES, "AggregationSource", "BMCs", members)


@ROUTES.get(f"{_SOURCES}/{{source}}", READ_HARDWARE)
async def source(call: Call) -> Json:
    """One of them. Who we are to it is nobody's business."""
    ident = call.params["source"]
    summary = await bmc_at(call, ident)
    return resource(
        f"{_SOURCES}/{ident}",
        "AggregationSource",
        plain(f"BMC at {summary.address}") or ident,
        HostName=plain(summary.address),
        UserName=None,
        Password=None,
        AggregationType="Full",
        Status=status("Enabled", "warning" if summary.trouble else "ok"),
        Links={"ResourcesAccessed": [link(ids.manager(summary.address)), *map(link, map(ids.system, summary.nodes))]},
    )
