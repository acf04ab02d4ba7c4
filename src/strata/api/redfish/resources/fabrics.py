"""How things are cabled: fabrics, their switches, and the ports that a cable is known to be in."""

from __future__ import annotations

from collections.abc import Mapping

from strata.api.redfish.protocol.route import Call, Json, Route, collection, link
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import known, plain, resource, status
from strata.api.redfish.resources.ids import FABRICS
from strata.api.redfish.resources.needs import READ_HARDWARE
from strata.core import xname
from strata.core.errors import BadRequest, NotFound
from strata.hardware.bmc.service import BmcService
from strata.hardware.fabric.records import FabricView, LinkView, SwitchView
from strata.hardware.fabric.service import FabricService

_UNNAMED = "fabric"


class _Map:
    """The graph by the ids that are in the paths."""

    def __init__(self, graph: FabricView) -> None:
        by_fabric: dict[str, list[SwitchView]] = {}
        for switch in graph.switches:
            by_fabric.setdefault(switch.fabric or _UNNAMED, []).append(switch)
        names = ids.named(by_fabric, lambda name: name)
        self.names = names
        self.fabrics: Mapping[str, Mapping[str, SwitchView]] = {
            ident: ids.named(by_fabric[name], lambda switch: ids.last_part(switch.id)) for ident, name in names.items()
        }
        self.paths = {
            switch.id: f"{FABRICS}/{fabric}/Switches/{ident}"
            for fabric, switches in self.fabrics.items()
            for ident, switch in switches.items()
        }
        ends: dict[str, dict[str, LinkView]] = {}
        for cable in graph.links:
            for end in (cable.a, cable.b):
                owner, port = self.end(end)
                if owner:
                    ends.setdefault(owner, {})[port] = cable
        self.ports = {switch: ids.named(ports, lambda port: port) for switch, ports in ends.items()}
        """Switch → id → the port's own name."""
        self.cables = ends

    def end(self, end: str) -> tuple[str, str]:
        """The switch and port that an end of a cable is; empty: it is on no switch."""
        owner, _, port = end.rpartition(":")
        return (owner, port) if owner in self.paths else ("", "")

    def port_path(self, switch: str, port: str) -> str:
        """The path of a port."""
        ident = next(ident for ident, name in self.ports[switch].items() if name == port)
        return f"{self.paths[switch]}/Ports/{ident}"

    def switches(self, fabric: str) -> Mapping[str, SwitchView]:
        """The switches of a fabric."""
        if fabric not in self.fabrics:
            raise NotFound("no such fabric", where=fabric[:80])
        return self.fabrics[fabric]

    def switch(self, fabric: str, ident: str) -> SwitchView:
        """One of them."""
        if ident not in self.switches(fabric):
            raise NotFound("no such switch", where=ident[:80])
        return self.fabrics[fabric][ident]


async def _graph(call: Call) -> _Map:
    if call.services.find(BmcService) is None:
        return _Map(FabricView(switches=(), links=()))

    async def ask() -> _Map:
        return _Map(await call.of(FabricService).graph(call.who))

    return await live.kept(call).get(("fabric", call.who.scope), ask)


async def fabrics(call: Call) -> Json:
    """All fabrics."""
    graph = await _graph(call)
    return collection(FABRICS, "Fabric", "Fabrics", [f"{FABRICS}/{ident}" for ident in graph.fabrics])


async def fabric(call: Call) -> Json:
    """One fabric."""
    ident, graph = call.params["fabric"], await _graph(call)
    graph.switches(ident)
    return resource(
        f"{FABRICS}/{ident}",
        "Fabric.v1_4_0",
        ident,
        plain(graph.names[ident]) or ident,
        Status=status("Enabled"),
        Switches=link(f"{FABRICS}/{ident}/Switches"),
    )


async def switches(call: Call) -> Json:
    """Its switches."""
    ident, graph = call.params["fabric"], await _graph(call)
    path = f"{FABRICS}/{ident}/Switches"
    return collection(path, "Switch", "Switches", [f"{path}/{switch}" for switch in graph.switches(ident)])


async def switch(call: Call) -> Json:
    """One switch."""
    graph = await _graph(call)
    found = graph.switch(call.params["fabric"], call.params["switch"])
    path = graph.paths[found.id]
    return resource(
        path,
        "Switch.v1_11_0",
        call.params["switch"],
        plain(found.name) or call.params["switch"],
        Description=f"{found.ports} ports" + (f"; {plain(found.nodes, 1000)}" if found.nodes else ""),
        Model=plain(found.model),
        Status=status("Enabled"),
        Ports=link(f"{path}/Ports"),
        **_location(found.location),
    )


def _location(place: str) -> Json:
    try:
        text = xname.parse(place).text if place else ""
    except BadRequest:
        text = plain(place) or ""
    return {"Location": {"PartLocation": {"ServiceLabel": text}}} if text else {}


async def ports(call: Call) -> Json:
    """The ports of a switch that something is known to be plugged into."""
    graph = await _graph(call)
    found = graph.switch(call.params["fabric"], call.params["switch"])
    path = f"{graph.paths[found.id]}/Ports"
    return collection(path, "Port", "Ports", [f"{path}/{ident}" for ident in graph.ports.get(found.id, {})])


async def port(call: Call) -> Json:
    """One port, and what is at the other end of its cable."""
    graph = await _graph(call)
    owner = graph.switch(call.params["fabric"], call.params["switch"])
    ident = call.params["port"]
    names = graph.ports.get(owner.id, {})
    if ident not in names:
        raise NotFound("no such port, or nothing is known to be in it", where=ident[:80])
    cable = graph.cables[owner.id][names[ident]]
    far = cable.b if graph.end(cable.a) == (owner.id, names[ident]) else cable.a
    far_switch, far_port = graph.end(far)
    found = resource(
        f"{graph.paths[owner.id]}/Ports/{ident}",
        "Port.v1_18_0",
        ident,
        plain(names[ident]) or ident,
        Description=plain(f"Cabled to {far}"),
        PortId=plain(names[ident]),
        CurrentSpeedGbps=cable.speed_gbps,
        Status=status({True: "Enabled", False: "StandbyOffline"}.get(cable.up) if cable.up is not None else None),
        **known({"LinkStatus": {True: "LinkUp", False: "LinkDown"}[cable.up] if cable.up is not None else None}),
    )
    if far_switch:
        found["PortType"] = "InterswitchPort"
        found["Links"] = {
            "ConnectedSwitches": [link(graph.paths[far_switch])],
            "ConnectedSwitchPorts": [link(graph.port_path(far_switch, far_port))],
        }
    return found


_RIGHTS = {"GET": READ_HARDWARE}
_SWITCH = f"{FABRICS}/{{fabric}}/Switches/{{switch}}"

ROUTES = (
    Route(template=FABRICS, get=fabrics, rights=_RIGHTS),
    Route(template=f"{FABRICS}/{{fabric}}", get=fabric, rights=_RIGHTS),
    Route(template=f"{FABRICS}/{{fabric}}/Switches", get=switches, rights=_RIGHTS),
    Route(template=_SWITCH, get=switch, rights=_RIGHTS),
    Route(template=f"{_SWITCH}/Ports", get=ports, rights=_RIGHTS),
    Route(template=f"{_SWITCH}/Ports/{{port}}", get=port, rights=_RIGHTS),
)
