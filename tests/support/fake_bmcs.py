"""Controllers that behave, in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from strata.core.errors import DeviceError, NotOffered
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal
from strata.fleet.desires.records import DesireChange
from strata.fleet.operations.records import Operation
from strata.hardware.bmc.protocol import Boot, Firmware, Media, PowerAction, PowerLimit, Reading
from strata.hardware.bmc.records import (
    BmcView,
    FirmwareUpdate,
    LogEntryView,
    Many,
    NodeBios,
    NodeFirmware,
    NodeReadings,
    NodeSettings,
    Scalar,
    ServiceSettingsChange,
)
from support.fake_ground import IDENTITY, Ground, address, job


class FakeBmcs:
    """Controllers."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def power(self, who: Principal, select: str, action: PowerAction, *, force: bool = False) -> Many:
        if action in ("on", "off"):
            await self.ground.facade.set_desires(
                who, DesireChange(select=select, set={"power": action}), asynchronous=False
            )
        return await self.ground.do(who, select, "power", action)

    async def boot(self, who: Principal, select: str, boot: Boot) -> Many:
        for name in await self.ground.owned(who, select):
            self.ground.boots[name] = boot
        return await self.ground.do(who, select, "boot", boot.target)

    async def identify(self, who: Principal, select: str, on: bool) -> Many:
        return await self.ground.do(who, select, "identify", str(on))

    async def info(self, who: Principal, node: str) -> BmcView:
        await self.ground.read(who, node, "info")
        boot = self.ground.boots.get(node, Boot(target="none"))
        media = (Media(id="Cd", kind="CD", image=self.ground.images.get(node, "")),)
        return BmcView(
            node=node, address=address(node), reachable=True, trouble="", identity=IDENTITY, power="on", boot=boot,
            media=media,
        )  # fmt: skip

    async def sensors(self, who: Principal, select: str) -> Sequence[NodeReadings]:
        found = []
        for node in await self.ground.facade.node_names(who, select):
            readings, trouble = () if node in self.ground.bare else READINGS, ""
            try:
                await self.ground.read(who, node, "sensors")
            except DeviceError as error:
                readings, trouble = (), str(error)
            found.append(NodeReadings(node=node, time=time.time(), readings=readings, trouble=trouble))
        return found

    async def log(self, who: Principal, node: str, after: str, limit: int) -> Sequence[LogEntryView]:
        await self.ground.read(who, node, "log")
        return [
            LogEntryView(
                id=f"/redfish/v1/Systems/1/LogServices/SEL/Entries/{n}", time=float(n), severity="warning",
                message=f"power supply {n} failed", message_id="", sensor="PSU",
            )
            for n in (1, 2, 3)
        ]  # fmt: skip

    async def limits(self, who: Principal, node: str) -> Sequence[PowerLimit]:
        await self.ground.read(who, node, "limits")
        if node in self.ground.bare:
            raise NotOffered("it cannot be capped", node=node)
        cap = self.ground.caps.get(node)
        return [PowerLimit(id="/c", name="Node", watts=cap, least=100.0, most=900.0, via="PowerControl")]

    async def set_limit(self, who: Principal, select: str, limit: str, watts: float | None) -> Many:
        for node in await self.ground.owned(who, select):
            self.ground.caps.pop(node, None)
            if watts is not None:
                self.ground.caps[node] = watts
        return await self.ground.do(who, select, "limit", str(watts))

    async def bios(self, who: Principal, node: str) -> NodeBios:
        await self.ground.read(who, node, "bios")
        if node in self.ground.bare:
            raise NotOffered("it has no settings", node=node)
        staged = self.ground.staged.get(node, {})
        return NodeBios(node=node, current={"ProcTurbo": "Enabled", "Cores": 64}, staged=staged)

    async def stage_bios(self, who: Principal, select: str, attributes: Mapping[str, Scalar]) -> Many:
        for node in await self.ground.owned(who, select):
            self.ground.staged.setdefault(node, {}).update(attributes)
        return await self.ground.do(who, select, "bios", *attributes)

    async def firmware(self, who: Principal, select: str) -> Sequence[NodeFirmware]:
        names = await self.ground.facade.node_names(who, select)
        return [
            NodeFirmware(node=name, firmware=(), trouble="no answer")
            if name in self.ground.dead
            else NodeFirmware(node=name, firmware=(FIRMWARE,))
            for name in names
        ]

    async def update_firmware(self, who: Principal, request: FirmwareUpdate) -> Operation:
        names = await self.ground.owned(who, request.select)
        self.ground.asked.append(("firmware", request.uri, request.apply_time, fold(names)))
        return job("firmware", len(names))

    async def settings(self, who: Principal, node: str) -> NodeSettings:
        await self.ground.read(who, node, "settings")
        return NodeSettings(node=node, ntp=None, syslog=None)

    async def set_settings(self, who: Principal, select: str, settings: ServiceSettingsChange) -> Many:
        return await self.ground.do(who, select, "settings")

    async def insert_media(self, who: Principal, select: str, image: str) -> Many:
        for node in await self.ground.owned(who, select):
            self.ground.images[node] = image
        return await self.ground.do(who, select, "media", image)


FIRMWARE = Firmware(id="/f", name="BIOS", version="1.2", updateable=True, component="")


def _reading(name: str, kind: str, unit: str, value: float | None, **more: Any) -> Reading:
    rest = {"health": "ok", "high": None, "low": None, "doubt": "", **more}
    return Reading(name=name, kind=kind, unit=unit, value=value, **rest)


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
