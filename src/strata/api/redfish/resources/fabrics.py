"""How things are cabled: fabrics, their switches, and the ports that a cable is known to be in."""

from __future__ import annotations

from collections.abc import Mapping

from strata.api.redfish.protocol.route import Call, Json, Routes, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import plain, status
from strata.api.redfish.resources.ids import FABRICS
from strata.api.redfish.resources.needs import READ_HARDWARE
from strata.core import xname
from strata.core.errors import BadRequest, NotFound
from strata.hardware.bmc.service import BmcService
from strata.hardware.fabric.records import FabricView, LinkView, SwitchView
from strata.hardware.fabric.service import FabricService

_UNNAMED = "fabric"
_SWITCH = f"{FABRICS}/{{fabric}}/Switches/{{switch}}"

ROUTES = Routes()


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
        ident = next(ident for ident, name in self.ports[switch].items() if name == port)
        return f"{self.paths[switch]}/Ports/{ident}"


async def _graph(call: Call) -> _Map:
    if call.services.find(BmcService) is None:
        return _Map(FabricView(switches=(), links=()))

    async def ask() -> _Map:
        return _Map(await call.of(FabricService).graph(call.who))

    return await live.kept(call).get(("fabric", call.who.scope), ask)


async def _fabrics(call: Call) -> Mapping[str, str]:
    return (await _graph(call)).names


@ROUTES.members(f"{FABRICS}/{{fabric}}", "Fabric", "Fabrics", READ_HARDWARE, _fabrics)
async def _fabric(call: Call, path: str, name: str) -> Json:
    title = plain(name) or call.params["fabric"]
    return resource(path, "Fabric", title, Status=status("Enabled"), Switches=link(f"{path}/Switches"))


async def _switches(call: Call) -> Mapping[str, SwitchView]:
    found = (await _graph(call)).fabrics.get(call.params["fabric"])
    if found is None:
        raise NotFound("no such fabric", where=call.params["fabric"][:80])
    return found


@ROUTES.members(_SWITCH, "Switch", "Switches", READ_HARDWARE, _switches)
async def _switch(call: Call, path: str, found: SwitchView) -> Json:
    return resource(
        path,
        "Switch",
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


async def _ports(call: Call) -> Mapping[str, tuple[SwitchView, str]]:
    """The ports that something is known to be plugged into: each one's switch, and its own name."""
    owner = (await _switches(call)).get(call.params["switch"])
    if owner is None:
        raise NotFound("no such switch", where=call.params["switch"][:80])
    return {ident: (owner, name) for ident, name in (await _graph(call)).ports.get(owner.id, {}).items()}


@ROUTES.members(f"{_SWITCH}/Ports/{{port}}", "Port", "Ports", READ_HARDWARE, _ports)
async def _port(call: Call, path: str, here: tuple[SwitchView, str]) -> Json:
    """One port, and what is at the other end of its cable."""
    graph, (owner, name) = await _graph(call), here
    cable = graph.cables[owner.id][name]
    far = cable.b if graph.end(cable.a) == (owner.id, name) else cable.a
    far_switch, far_port = graph.end(far)
    found = resource(
        path,
        "Port",
        plain(name) or call.params["port"],
        Description=plain(f"Cabled to {far}"),
        PortId=plain(name),
        CurrentSpeedGbps=cable.speed_gbps,
        Status=status(None if cable.up is None else "Enabled" if cable.up else "StandbyOffline"),
        **({} if cable.up is None else {"LinkStatus": "LinkUp" if cable.up else "LinkDown"}),
    )
    if far_switch:
        found["PortType"] = "InterswitchPort"
        found["Links"] = {
            "ConnectedSwitches": [link(graph.paths[far_switch])],
            "ConnectedSwitchPorts": [link(graph.port_path(far_switch, far_port))],
        }
    return found
