"""Groups as aggregates that are reset as one, and the controllers that all of this was aggregated from."""

from __future__ import annotations

import re
import secrets

from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.route import Call, Json, Reply, Route, collection, link
from strata.api.redfish.resources import ids
from strata.api.redfish.resources.forms import ENABLED, plain, resource, status
from strata.api.redfish.resources.ids import AGGREGATES, AGGREGATION
from strata.api.redfish.resources.managers import controller_at, controllers
from strata.api.redfish.resources.needs import ACT, READ_GROUP, READ_HARDWARE
from strata.api.redfish.resources.systems import RESETS
from strata.api.redfish.resources.targets import selector
from strata.core.errors import BadRequest
from strata.core.texts import NAME
from strata.fleet.access.principal import Right
from strata.fleet.groups.records import GroupSpec, GroupView, MemberChange
from strata.fleet.groups.service import GroupService
from strata.fleet.nodes.service import NodeService
from strata.hardware.bmc.service import BmcService

_SOURCES = f"{AGGREGATION}/AggregationSources"
_RESET = {"ResetType": str, "BatchSize": int, "DelayBetweenBatchesInSeconds": int}


async def service(call: Call) -> Json:
    """The service."""
    found = resource(
        AGGREGATION,
        "AggregationService.v1_0_3",
        "AggregationService",
        "Aggregation",
        ServiceEnabled=True,
        Status=dict(ENABLED),
        Aggregates=link(AGGREGATES),
        AggregationSources=link(_SOURCES),
    )
    if call.services.find(BmcService) is not None:
        found["Actions"] = _action("AggregationService.Reset", AGGREGATION)
    return found


def _action(name: str, path: str) -> Json:
    return {f"#{name}": {"target": f"{path}/Actions/{name}", "ResetType@Redfish.AllowableValues": list(RESETS)}}


# -- aggregates


async def aggregates(call: Call) -> Json:
    """All groups."""
    groups = await call.of(GroupService).groups(call.who)
    return collection(AGGREGATES, "Aggregate", "Groups", [ids.aggregate(group.name) for group in groups])


async def aggregate(call: Call) -> Json:
    """One group."""
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
        "Aggregate.v1_0_3",
        group.name,
        group.name,
        Description=plain(group.description),
        Elements=[link(ids.system(name)) for name in names],
        **{"Elements@odata.count": group.count},
        ElementsCount=group.count,
        Actions=actions,
    )


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


async def delete(call: Call) -> Reply:
    """Remove a group; its nodes stay."""
    await call.of(GroupService).delete_group(call.who, call.params["aggregate"], None)
    return bodies.DONE


async def add(call: Call) -> Reply:
    """Put nodes in."""
    given = bodies.parameters(call, "Aggregate.AddElements", {"Elements": list}, needed=("Elements",))
    change = MemberChange(add=await selector(call, given["Elements"], "Elements"))
    await call.of(GroupService).change_members(call.who, call.params["aggregate"], change)
    return bodies.DONE


async def remove(call: Call) -> Reply:
    """Take nodes out."""
    given = bodies.parameters(call, "Aggregate.RemoveElements", {"Elements": list}, needed=("Elements",))
    change = MemberChange(remove=await selector(call, given["Elements"], "Elements"))
    await call.of(GroupService).change_members(call.who, call.params["aggregate"], change)
    return bodies.DONE


async def reset_aggregate(call: Call) -> Reply:
    """Reset every node of a group."""
    given = bodies.parameters(call, "Aggregate.Reset", _RESET, needed=("ResetType",))
    group = await call.of(GroupService).group(call.who, call.params["aggregate"])
    return await _reset(call, given, f"@{group.name}", "Aggregate.Reset")


async def reset_targets(call: Call) -> Reply:
    """Reset systems and aggregates."""
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


async def sources(call: Call) -> Json:
    """The discovered controllers."""
    members = [f"{_SOURCES}/{ids.controller_id(item.address)}" for item in await controllers(call)]
    return collection(_SOURCES, "AggregationSource", "Controllers", members)


async def source(call: Call) -> Json:
    """One of them. Who we are to it is nobody's business."""
    ident = call.params["source"]
    summary = await controller_at(call, ident)
    return resource(
        f"{_SOURCES}/{ident}",
        "AggregationSource.v1_5_0",
        ident,
        plain(f"Controller at {summary.address}") or ident,
        HostName=plain(summary.address),
        UserName=None,
        Password=None,
        AggregationType="Full",
        Status=status("Enabled", "warning" if summary.trouble else "ok"),
        Links={"ResourcesAccessed": [link(ids.manager(summary.address)), *map(link, map(ids.system, summary.nodes))]},
    )


_GROUP = f"{AGGREGATES}/{{aggregate}}"
_CHANGE_GROUP = {"POST": Right("change", "group")}

ROUTES = (
    Route(template=AGGREGATION, get=service, rights={"GET": READ_GROUP}),
    Route(template=f"{AGGREGATION}/Actions/AggregationService.Reset", post=reset_targets, rights={"POST": ACT}),
    Route(
        template=AGGREGATES, get=aggregates, post=create, rights={"GET": READ_GROUP, "POST": Right("create", "group")}
    ),
    Route(
        template=_GROUP, get=aggregate, delete=delete, rights={"GET": READ_GROUP, "DELETE": Right("delete", "group")}
    ),
    Route(template=f"{_GROUP}/Actions/Aggregate.AddElements", post=add, rights=_CHANGE_GROUP),
    Route(template=f"{_GROUP}/Actions/Aggregate.RemoveElements", post=remove, rights=_CHANGE_GROUP),
    Route(template=f"{_GROUP}/Actions/Aggregate.Reset", post=reset_aggregate, rights={"POST": ACT}),
    Route(template=_SOURCES, get=sources, rights={"GET": READ_HARDWARE}),
    Route(template=f"{_SOURCES}/{{source}}", get=source, rights={"GET": READ_HARDWARE}),
)
