"""A hardware layer that behaves, in memory: every node has a controller with sensors, settings and parts.

``Ground`` is what the parts share and what tests change: who is dead, slow or braked, and what was asked of whom.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from strata.control import machine_views as m
from strata.control import views as v
from strata.control.facade import Facade
from strata.control.machine import Machine, Many
from strata.control.principal import Principal
from strata.core.errors import DeviceError, NotFound, NotOffered
from strata.core.nodeset import fold
from strata.hardware.bmc import Boot, Identity, Media, PowerAction, Severity

GPU_EVERY = 4
"""Each fourth node has an accelerator."""


class Ground:
    """What there is."""

    def __init__(self, facade: Facade) -> None:
        self.facade = facade
        self.undiscovered: set[str] = set()
        self.dead: set[str] = set()
        """Nodes whose controllers do not answer."""
        self.bare: set[str] = set()
        """Nodes whose controllers offer nothing beyond power."""
        self.slow = 0.0
        """Seconds that a controller takes."""
        self.brakes: dict[str, str] = {}
        """Node → why nothing may be done to it."""
        self.asked: list[tuple[str, ...]] = []
        """What was done, in order."""
        self.reads: list[tuple[str, str]] = []
        """What was read from controllers, in order."""
        self.boots: dict[str, Boot] = {}
        self.images: dict[str, str] = {}
        self.caps: dict[str, float] = {}
        self.staged: dict[str, dict[str, Any]] = {}
        self.alerts: list[m.AlertView] = []
        self.events: list[m.EventView] = []
        self.graph = m.FabricView(switches=(), links=())
        self.pdus: tuple[m.ComponentView, ...] = ()
        self.as_job = False
        """Whether changes of many nodes become jobs."""

    def alert(self, node: str, severity: Severity) -> None:
        """Something is wrong with a node."""
        self.alerts.append(
            m.AlertView(
                id=f"a{len(self.alerts)}", node=node, bmc=address(node), key="sensor/Fan 1", severity=severity,
                message="the fan stands still", first=1.0, last=2.0, count=1, state="open", by="", note="", fields={},
            )
        )  # fmt: skip

    async def read(self, who: Principal, node: str, what: str) -> None:
        """A controller is asked."""
        await self.facade.node(who, node)
        self.reads.append((what, node))
        await asyncio.sleep(self.slow)
        if node in self.dead:
            raise DeviceError("no answer", node=node)

    async def do(self, who: Principal, select: str, *what: str) -> Many:
        """Something is done to nodes."""
        names = list(await self.facade.node_names(who, select))
        if self.as_job:
            return job("bmc", len(names))
        troubles = {name: "no answer" for name in names if name in self.dead} | {
            name: reason for name, reason in self.brakes.items() if name in names
        }
        good = [name for name in names if name not in troubles]
        self.asked.append((*what, fold(good)))
        failed = tuple(m.Failed(nodes=name, reason=reason) for name, reason in troubles.items())
        return m.ManyOutcome(done=fold(good), done_count=len(good), failed=failed, failed_count=len(failed))


def job(kind: str, total: int) -> v.JobView:
    """Work that has begun."""
    return v.JobView(
        id="j1", kind=kind, state="running", total=total, done=0, failed=0, errors=(), author="t", created=1.0,
        finished=None,
    )  # fmt: skip


PDU_ADDRESS = "https://pdu.example"


def address(node: str) -> str:
    """Where a node's controller is."""
    return f"https://bmc-{node}.example:443"


class FakeBmcs:
    """Controllers."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def power(self, who: Principal, select: str, action: PowerAction, *, force: bool = False) -> Many:
        if action in ("on", "off"):
            await self.ground.facade.set_desires(
                who, v.DesireChange(select=select, set={"power": action}), asynchronous=False
            )
        return await self.ground.do(who, select, "power", action)

    async def boot(self, who: Principal, select: str, boot: Boot) -> Many:
        for name in await self.ground.facade.node_names(who, select):
            self.ground.boots[name] = boot
        return await self.ground.do(who, select, "boot", boot.target)

    async def identify(self, who: Principal, select: str, on: bool) -> Many:
        return await self.ground.do(who, select, "identify", str(on))

    async def info(self, who: Principal, node: str) -> m.BmcView:
        await self.ground.read(who, node, "info")
        boot = self.ground.boots.get(node, Boot(target="none"))
        media = (Media(id="Cd", kind="CD", image=self.ground.images.get(node, "")),)
        return m.BmcView(
            node=node, address=address(node), reachable=True, trouble="", identity=IDENTITY, power="on", boot=boot,
            media=media,
        )  # fmt: skip

    async def sensors(self, who: Principal, select: str) -> Sequence[m.NodeReadings]:
        try:
            await self.ground.read(who, select, "sensors")
        except DeviceError as error:
            return [m.NodeReadings(node=select, time=time.time(), readings=(), trouble=str(error))]
        readings = () if select in self.ground.bare else READINGS
        return [m.NodeReadings(node=select, time=time.time(), readings=readings)]

    async def log(self, who: Principal, node: str, after: str, limit: int) -> Sequence[m.LogEntryView]:
        await self.ground.read(who, node, "log")
        return [
            m.LogEntryView(
                id=f"/redfish/v1/Systems/1/LogServices/SEL/Entries/{n}", time=float(n), severity="warning",
                message=f"power supply {n} failed", message_id="", sensor="PSU",
            )
            for n in (1, 2, 3)
        ]  # fmt: skip

    async def limits(self, who: Principal, node: str) -> Sequence[m.PowerLimitView]:
        await self.ground.read(who, node, "limits")
        if node in self.ground.bare:
            raise NotOffered("it cannot be capped", node=node)
        cap = self.ground.caps.get(node)
        return [m.PowerLimitView(id="/c", name="Node", watts=cap, least=100.0, most=900.0, via="PowerControl")]

    async def set_limit(self, who: Principal, select: str, limit: str, watts: float | None) -> Many:
        self.ground.caps.pop(select, None)
        if watts is not None:
            self.ground.caps[select] = watts
        return await self.ground.do(who, select, "limit", str(watts))

    async def bios(self, who: Principal, node: str) -> m.BiosView:
        await self.ground.read(who, node, "bios")
        if node in self.ground.bare:
            raise NotOffered("it has no settings", node=node)
        staged = self.ground.staged.get(node, {})
        return m.BiosView(node=node, current={"ProcTurbo": "Enabled", "Cores": 64}, staged=staged)

    async def stage_bios(self, who: Principal, select: str, attributes: Mapping[str, m.Scalar]) -> Many:
        self.ground.staged.setdefault(select, {}).update(attributes)
        return await self.ground.do(who, select, "bios", *attributes)

    async def firmware(self, who: Principal, select: str) -> Sequence[m.NodeFirmware]:
        return []

    async def update_firmware(self, who: Principal, request: m.FirmwareUpdate) -> v.JobView:
        names = await self.ground.facade.node_names(who, request.select)
        self.ground.asked.append(("firmware", request.uri, request.apply_time, fold(names)))
        return job("firmware", len(names))

    async def settings(self, who: Principal, node: str) -> m.ServiceSettingsView:
        return m.ServiceSettingsView(node=node, ntp=None, syslog=None)

    async def set_settings(self, who: Principal, select: str, settings: m.ServiceSettingsChange) -> Many:
        return await self.ground.do(who, select, "settings")

    async def insert_media(self, who: Principal, select: str, image: str) -> Many:
        self.ground.images[select] = image
        return await self.ground.do(who, select, "media", image)


IDENTITY = Identity(
    vendor="Acme", model="BMC 9", serial="B1", uuid="00000000-0000-0000-0000-0000000000aa", firmware="2.40"
)


def _reading(name: str, kind: str, unit: str, value: float | None, **more: Any) -> m.ReadingView:
    rest = {"health": "ok", "high": None, "low": None, "doubt": "", **more}
    return m.ReadingView(name=name, kind=kind, unit=unit, value=value, **rest)


READINGS = (
    _reading("Inlet Temp", "temperature", "Cel", 21.5, high=45.0, low=5.0),
    _reading("CPU1 Temp", "temperature", "Cel", 55.0, high=95.0),
    _reading("Fan 1", "fan", "RPM", 8000.0),
    _reading("Fan 1", "fan", "%", 40.0),
    _reading("Total Power", "power", "W", 312.0),
    _reading("CPU Power", "power", "W", 120.0),
    _reading("Energy", "energy", "kW.h", 12.5),
    _reading("Old Energy", "energy", "BTU", 1.0),
    _reading("Old Temp", "temperature", "[degF]", 70.0),
    _reading("P12V", "voltage", "V", 12.1),
    _reading("I12V", "current", "A", 2.5),
    _reading("Humidity", "humidity", "%", 40.0),
    _reading("Clock", "frequency", "Hz", 50.0),
    _reading("CPU Load", "utilisation", "%", 3.0),
    _reading("Strange\x1b[2J/..", "other", "furlong", 3.0, health=None),
    _reading("Gone", "temperature", "Cel", None, health=None, doubt="65535 is no temperature"),
)


class FakeInventory:
    """Parts."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def _known(self, who: Principal) -> list[str]:
        return [n for n in await self.ground.facade.node_names(who, "*") if n not in self.ground.undiscovered]

    def _summary(self, node: str) -> m.ControllerSummary:
        return m.ControllerSummary(
            address=address(node), identity=IDENTITY, seen=1.0, nodes=(node,), machines=1, components={}, trouble=()
        )

    async def _all(self, who: Principal) -> list[m.ControllerSummary]:
        found = [self._summary(name) for name in await self._known(who)]
        if self.ground.pdus:
            found.append(replace(found[0], address=PDU_ADDRESS, nodes=(), components={"pdu": 1, "outlet": 2}))
        return found

    async def controllers(self, who: Principal, limit: int, after: str) -> m.ControllerPage:
        found = await self._all(who)
        start = int(after or 0)
        following = str(start + limit) if start + limit < len(found) else ""
        return m.ControllerPage(items=tuple(found[start : start + limit]), next=following, total=len(found))

    async def controller(self, who: Principal, at: str) -> m.ControllerView:
        for summary in await self._all(who):
            if summary.address == at:
                own = parts(summary.nodes[0]) if summary.nodes else self.ground.pdus
                return m.ControllerView(summary=summary, components=own)
        raise NotFound("no such controller", where=at)

    async def of_node(self, who: Principal, node: str) -> m.NodeHardware:
        if node not in await self._known(who):
            raise NotFound("it was not discovered", where=node)
        return m.NodeHardware(
            node=node, controller=address(node), identity=IDENTITY, seen=1.0, serial=f"S-{node}",
            uuid=f"00000000-0000-0000-0000-{sum(map(ord, node)):012x}", components=parts(node),
        )  # fmt: skip


def part(node: str, path: str, kind: str, **more: Any) -> m.ComponentView:
    """One part of a node."""
    blank = dict.fromkeys(("parent", "slot", "part", "firmware", "shape"), "")
    rest = {"vendor": "Acme", "model": f"Model of {kind}", "serial": f"{node}{path}", "health": "ok", "macs": ()}
    return m.ComponentView(
        **{  # type: ignore[arg-type]
            "controller": address(node), "node": node, "id": path, "kind": kind, "name": path.rpartition("/")[2],
            "facts": {}, **blank, **rest, **more,
        }
    )  # fmt: skip


def parts(node: str) -> tuple[m.ComponentView, ...]:
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


class FakeAlerts:
    """Events and alerts."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def events(
        self, who: Principal, select: str, severity: str, since: float | None, limit: int, after: str
    ) -> m.EventPage:
        names = set(await self.ground.facade.node_names(who, select))
        found = [event for event in reversed(self.ground.events) if event.node in names]
        return m.EventPage(items=tuple(found[:limit]), next="")

    async def alerts(self, who: Principal, *, all_: bool, limit: int, after: str) -> m.AlertPage:
        names = set(await self.ground.facade.node_names(who, "*"))
        found = [alert for alert in self.ground.alerts if alert.node in names]
        return m.AlertPage(items=tuple(found[:limit]), next="", open=len(found))

    async def follow(self, who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[m.EventView]]:
        return self._silence()

    async def _silence(self) -> AsyncIterator[Sequence[m.EventView]]:
        await asyncio.Event().wait()
        yield ()


class FakeFabric:
    """Cables."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def graph(self, who: Principal) -> m.FabricView:
        return self.ground.graph


def fake_machine(facade: Facade) -> tuple[Machine, Ground]:
    """A hardware layer for the nodes of ``facade``."""
    ground = Ground(facade)
    parts_: Any = {
        "bmcs": FakeBmcs(ground),
        "inventory": FakeInventory(ground),
        "alerts": FakeAlerts(ground),
        "fabric": FakeFabric(ground),
        "consoles": None,
        "credentials": None,
        "emergency": None,
    }
    return Machine(**parts_), ground


def furnish(ground: Ground, nodes: Sequence[str]) -> None:
    """Cables, PDUs, events and alerts, so that every kind of resource is there."""
    switches = tuple(
        m.SwitchView(id=f"/redfish/v1/Fabrics/hsn/Switches/s{n}", name=f"s{n}", fabric="hsn", location="x1000c0r0",
                     model="Slingshot", ports=64, nodes=fold(nodes[n::2]))
        for n in (0, 1)
    )  # fmt: skip
    cables = [
        m.LinkView(a=f"{switches[0].id}:p63", b=f"{switches[1].id}:p63", up=True, speed_gbps=200, source="redfish")
    ]
    cables += [
        m.LinkView(a=f"{switches[n % 2].id}:p{n}", b=f"{node}:hsn0", up=None, speed_gbps=None, source="lldp")
        for n, node in enumerate(nodes[:8])
    ]
    ground.graph = m.FabricView(switches=switches, links=tuple(cables))
    pdu = "/redfish/v1/PowerEquipment/RackPDUs/1"
    ground.pdus = (
        part("", pdu, "pdu", controller=PDU_ADDRESS, name="PDU A", firmware="3"),
        *(
            part("", f"{pdu}/Outlets/A{n}", "outlet", controller=PDU_ADDRESS, parent=pdu, facts={"power": "On"})
            for n in (1, 2)
        ),
    )
    ground.alert(nodes[0], "warning")
    ground.events += [
        m.EventView(
            id=n, time=float(n), severity="critical", message="fan\nfailed", source="push", key="sensor/Fan",
            node=nodes[0], bmc=address(nodes[0]), message_id="", fields={},
        )
        for n in (1, 2)
    ]  # fmt: skip
