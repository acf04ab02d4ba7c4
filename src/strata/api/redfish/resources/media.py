"""The virtual drive of a node's controller: what is in it, put something in, take it out."""

from __future__ import annotations

from strata.api.redfish.protocol import bodies
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.route import Call, Json, Reply, Route, collection
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import plain, resource
from strata.api.redfish.resources.ids import SYSTEMS
from strata.api.redfish.resources.needs import ACT, READ_BMC
from strata.fleet.nodes.service import NodeService
from strata.hardware.bmc.service import BmcService

_DRIVE = "Cd"
"""There is one: the controller's first, or the one for compact discs."""
_INSERT = {"Image": str, "Inserted": bool, "WriteProtected": bool}


async def _node(call: Call) -> str:
    call.of(BmcService)  # without the hardware layer there is none
    return (await call.of(NodeService).node(call.who, call.params["system"])).name


async def drives(call: Call) -> Json:
    """The one drive."""
    path = f"{ids.system(await _node(call))}/VirtualMedia"
    return collection(path, "VirtualMedia", "Virtual drives", [f"{path}/{_DRIVE}"])


async def drive(call: Call) -> Json:
    """What is in it; null where its controller does not answer soon."""
    node = await _node(call)
    path = f"{ids.system(node)}/VirtualMedia/{_DRIVE}"
    bmc = await live.bmc(call, node)
    media = bmc.media if bmc is not None else ()
    found = next((one for one in media if "cd" in one.kind.lower()), media[0] if media else None)
    return resource(
        path,
        "VirtualMedia.v1_6_5",
        _DRIVE,
        "Virtual drive",
        MediaTypes=["CD", "DVD"],
        Image=plain(found.image, 2048) if found is not None else None,
        Inserted=bool(found.image) if found is not None else None,
        ConnectedVia=("URI" if found.image else "NotConnected") if found is not None else None,
        WriteProtected=True,
        Actions={
            f"#VirtualMedia.{name}": {"target": f"{path}/Actions/VirtualMedia.{name}"}
            for name in ("InsertMedia", "EjectMedia")
        },
    )


async def insert(call: Call) -> Reply:
    """Put an image in."""
    action = "VirtualMedia.InsertMedia"
    given = bodies.parameters(call, action, _INSERT, needed=("Image",))
    for name in ("Inserted", "WriteProtected"):
        if given.get(name) is False:
            raise rejected(400, "ActionParameterNotSupported", name, action, about=name, hint="it is always true here")
    if "://" not in given["Image"]:
        raise rejected(400, "ActionParameterValueFormatError", given["Image"], "Image", action, about="Image")
    return await _put(call, given["Image"])


async def eject(call: Call) -> Reply:
    """Take it out."""
    bodies.parameters(call, "VirtualMedia.EjectMedia", {})
    return await _put(call, "")


async def _put(call: Call, image: str) -> Reply:
    node = await _node(call)
    outcome = await call.of(BmcService).insert_media(call.who, node, image)
    live.kept(call).forget(("bmc", node))
    return bodies.done(outcome)


_HERE = f"{SYSTEMS}/{{system}}/VirtualMedia"

ROUTES = (
    Route(template=_HERE, get=drives, rights={"GET": READ_BMC}),
    Route(template=f"{_HERE}/{_DRIVE}", get=drive, rights={"GET": READ_BMC}),
    Route(template=f"{_HERE}/{_DRIVE}/Actions/VirtualMedia.InsertMedia", post=insert, rights={"POST": ACT}),
    Route(template=f"{_HERE}/{_DRIVE}/Actions/VirtualMedia.EjectMedia", post=eject, rights={"POST": ACT}),
)
