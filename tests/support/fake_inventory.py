"""Parts and cables, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from strata.core.errors import BadRequest, NotFound
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal, Right
from strata.fleet.operations.records import Operation
from strata.hardware.discovery.records import DiscoverRequest, DiscoveryReport
from strata.hardware.fabric.records import FabricView, SwitchNodes
from strata.hardware.inventory.records import (
    BmcHardware,
    BmcPage,
    BmcSummary,
    ComponentPage,
    ComponentQuery,
    ComponentView,
    HardwareChange,
    HardwareConflict,
    NodeHardware,
)
from support.fake_ground import IDENTITY, PDU_ADDRESS, Ground, address, job

GPU_EVERY = 4
"""Each fourth node has an accelerator."""


class FakeInventory:
    """Parts."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def _known(self, who: Principal) -> list[str]:
        return [n for n in await self.ground.facade.node_names(who, "*") if n not in self.ground.undiscovered]

    def _summary(self, node: str) -> BmcSummary:
        return BmcSummary(
            address=address(node), identity=IDENTITY, seen=1.0, nodes=(node,), machines=1, components={}, trouble=()
        )

    async def _all(self, who: Principal) -> list[BmcSummary]:
        found = [self._summary(name) for name in await self._known(who)]
        if self.ground.pdus and not who.scope:
            one = self._summary("")
            found.append(replace(one, address=PDU_ADDRESS, nodes=(), components={"pdu": 1, "outlet": 2}))
        return found

    async def bmcs(self, who: Principal, limit: int, after: str) -> BmcPage:
        found = await self._all(who)
        if not after.isascii() or not (after or "0").isdigit():
            raise BadRequest("not a cursor that we gave", where="cursor")
        start = int(after or 0)
        following = str(start + limit) if start + limit < len(found) else ""
        return BmcPage(items=tuple(found[start : start + limit]), next=following, total=len(found))

    async def bmc(self, who: Principal, at: str) -> BmcHardware:
        for summary in await self._all(who):
            if summary.address == at:
                own = parts(summary.nodes[0]) if summary.nodes else self.ground.pdus
                return BmcHardware(summary=summary, components=own)
        raise NotFound("no such controller", where=at)

    async def of_node(self, who: Principal, node: str) -> NodeHardware:
        if node not in await self._known(who):
            raise NotFound("it was not discovered", where=node)
        return NodeHardware(
            node=node, bmc=address(node), identity=IDENTITY, seen=1.0, serial=f"S-{node}",
            uuid=f"00000000-0000-0000-0000-{sum(map(ord, node)):012x}", components=parts(node),
        )  # fmt: skip

    async def discover(self, who: Principal, request: DiscoverRequest) -> Operation:
        if request.adopt:
            who.require(Right("create", "node"))
        given = (request.addresses, request.csv, request.leases, request.dhcp, request.ranges, request.ssdp)
        if not any((*given, request.known, request.accept)):
            raise BadRequest("nowhere to look")
        begun = replace(job("hardware.discover", len(request.addresses)), id=f"d{len(self.ground.discoveries)}")
        self.ground.discoveries[begun.id] = DiscoveryReport(job=begun.id, silent=len(request.addresses))
        return begun

    async def discovery(self, who: Principal, job: str) -> DiscoveryReport:
        if job not in self.ground.discoveries:
            raise NotFound("no such discovery", where="job")
        return self.ground.discoveries[job]

    async def components(self, who: Principal, query: ComponentQuery) -> ComponentPage:
        names = set(await self.ground.facade.node_names(who, query.select))
        known = [name for name in await self._known(who) if name in names]
        found = [
            one for name in known for one in parts(name) if query.kind in ("", one.kind) and query.text in one.name
        ]
        return ComponentPage(items=tuple(found[: query.limit]), next="")

    async def history(self, who: Principal, select: str, since: float | None, limit: int) -> Sequence[HardwareChange]:
        return [
            HardwareChange(
                time=1.0, what="added", bmc=address(name), node=name, component="", kind="system", old="",
                new=f"S-{name}", detail="",
            )
            for name in await self.ground.facade.node_names(who, select)
        ][:limit]  # fmt: skip

    async def conflicts(self, who: Principal) -> Sequence[HardwareConflict]:
        known = await self._known(who)
        if len(known) < 2:
            return []
        where = (address(known[0]), address(known[1]))
        hint = "look which machine has it"
        return [HardwareConflict(what="duplicate-serial", value="S-1", where=where, since=1.0, hint=hint)]

    async def forget(self, who: Principal, at: str) -> None:
        found = await self.bmc(who, at)
        self.ground.undiscovered.update(found.summary.nodes)


def part(node: str, path: str, kind: str, **more: Any) -> ComponentView:
    """One part of a node."""
    blank = dict.fromkeys(("parent", "slot", "part", "firmware", "shape"), "")
    rest = {"vendor": "Acme", "model": f"Model of {kind}", "serial": f"{node}{path}", "health": "ok", "macs": ()}
    return ComponentView(
        **{  # type: ignore[arg-type]
            "bmc": address(node), "node": node, "id": path, "kind": kind, "name": path.rpartition("/")[2],
            "facts": {}, **blank, **rest, **more,
        }
    )  # fmt: skip


def parts(node: str) -> tuple[ComponentView, ...]:
    """What every machine is made of."""
    base = "/redfish/v1/Systems/1"
    number = sum(map(ord, node))
    mac = f"02:00:00:00:{number >> 8 & 255:02x}:{number & 255:02x}"
    found = [
        part(node, base, "system", firmware="BIOS 1.2"),
        *(
            part(
                node, f"{base}/Processors/CPU{n}", "processor", slot=f"CPU {n}",
                facts={"cores": 64, "threads": 128, "speed_mhz": 3500, "type": "CPU", "architecture": "x86-64"},
            )
            for n in (1, 2)
        ),
        *(
            part(node, f"{base}/Memory/D{n}", "memory", slot=f"DIMM {n}",
                 facts={"capacity_mib": 65536, "speed_mhz": 4800, "type": "DDR5"})
            for n in range(4)
        ),
        part(node, f"{base}/Storage/1", "storage"),
        part(node, f"{base}/Storage/1#/StorageControllers/0", "storage", parent=f"{base}/Storage/1"),
        part(node, f"{base}/Storage/1/Drives/0", "drive", parent=f"{base}/Storage/1", slot="Bay 0",
             facts={"capacity_bytes": 10**12, "type": "SSD", "protocol": "NVMe"}),
        part(node, "/redfish/v1/Chassis/1/Drives/0", "drive", facts={"capacity_bytes": 4 * 10**12, "type": "HDD"}),
        part(node, f"{base}/EthernetInterfaces/eth0", "nic", macs=(mac,),
             facts={"speed_mbps": 25000, "link": "LinkUp"}),
        part(node, "/redfish/v1/Chassis/1/NetworkAdapters/1", "nic", macs=(mac, mac.replace("02:", "06:", 1))),
        part(node, "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/0", "power-supply",
             facts={"capacity_watts": 2000}, firmware="1.0"),
        part(node, "/redfish/v1/Chassis/1/ThermalSubsystem/Fans/0", "fan", health=None),
    ]  # fmt: skip
    if number % GPU_EVERY == 0:
        found.append(part(node, f"{base}/Processors/GPU0", "accelerator", facts={"type": "GPU"}, firmware="9.1"))
    return tuple(found)


class FakeFabric:
    """Cables."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def graph(self, who: Principal) -> FabricView:
        return self.ground.graph

    async def near(self, who: Principal, select: str) -> Sequence[SwitchNodes]:
        names = await self.ground.facade.node_names(who, select)
        return [SwitchNodes(switch="s0", nodes=fold(names), count=len(names))] if names else []
