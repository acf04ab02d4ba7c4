"""Requests that go through nodes' controllers: power, boot, lights, sensors, caps, firmware.

A wish for a state (on, off) becomes a desire, and the engine fulfils it with all its brakes. What is no state (a cycle,
an NMI) is done at once, unless a brake is on. Implements ``strata.control.machine.BmcFacade``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from strata.control.batches import batch_of
from strata.control.bmc_jobs import LIMIT, BmcJobs, Deed, many_outcome
from strata.control.columns import Indices
from strata.control.fleet_views.desires import DesireChange
from strata.control.fleet_views.jobs import JobView
from strata.control.machine import Many
from strata.control.machine_views.bmcs import (
    BiosView,
    BmcView,
    FirmwareUpdate,
    FirmwareView,
    LogEntryView,
    NodeFirmware,
    NodeReadings,
    PowerLimitView,
    ReadingView,
    Scalar,
    ServiceSettingsChange,
    ServiceSettingsView,
)
from strata.control.principal import Principal
from strata.control.service import Service
from strata.core import intset
from strata.core.contain import contained
from strata.core.errors import BadRequest, NotOffered, StrataError
from strata.core.nodeset import fold
from strata.core.urls import refuse_login, shown
from strata.hardware.access.sealing import Seal
from strata.hardware.bmc import Boot, Controller, PowerAction, Reading, ServiceSettings
from strata.hardware.pace import Place

AT_ONCE = 1000
"""More nodes than this make a job."""

READ_AT_MOST = 1000
"""Nodes whose sensors or firmware one request reads: each is a device that takes its time."""

T = TypeVar("T")

_NO_LOGIN = (
    "have the server let controllers in without one, or by a token in the address that ends soon; or upload the file"
)
_POWER = {"on": "on", "off": "off", "graceful-off": "off"}


class BmcService:
    """Everything that is asked of BMCs on behalf of somebody."""

    def __init__(self, fleet: Service, open_: Callable[[str], Controller], seal: Seal) -> None:
        """``seal``: what is asked may hold a secret (an address, a BIOS password), and a job's record holds it."""
        self._fleet = fleet
        self._open = open_
        self._jobs = BmcJobs(fleet, open_, seal)

    # -- many nodes

    async def power(self, who: Principal, select: str, action: PowerAction, *, force: bool = False) -> Many:
        """Wish for a state, or have something done."""
        state = _POWER.get(action)
        if state is None:
            return await self._do(who, select, Deed(what="power", action=action, force=force))
        change = DesireChange(select=select, set={"power": state})
        result = await self._fleet.set_desires(who, change, asynchronous=False)
        if isinstance(result, JobView):
            return result
        failed = {one.node: one.error or "refused" for one in result.results if not one.ok}
        done = [one.node for one in result.results if one.ok]
        return many_outcome(done, failed)

    async def boot(self, who: Principal, select: str, boot: Boot) -> Many:
        """Set the boot override."""
        if boot.uri and boot.target != "http":
            raise BadRequest("only HTTP boot takes a URI", where="uri")
        refuse_login(boot.uri, "uri", hint=_NO_LOGIN)
        return await self._do(who, select, Deed(what="boot", boot=boot))

    async def identify(self, who: Principal, select: str, on: bool) -> Many:
        """The light."""
        return await self._do(who, select, Deed(what="identify", on=on))

    async def set_limit(self, who: Principal, select: str, limit: str, watts: float | None) -> Many:
        """Cap."""
        if watts is not None and not 0 < watts < 1e6:
            raise BadRequest(f"{watts:g} W is not a cap", where="watts")
        return await self._do(who, select, Deed(what="limit", text=limit, watts=watts))

    async def stage_bios(self, who: Principal, select: str, attributes: Mapping[str, Scalar]) -> Many:
        """Settings for the next restart."""
        if not attributes:
            raise BadRequest("give at least one attribute", where="attributes")
        return await self._do(who, select, Deed(what="bios", attributes=dict(attributes)))

    async def set_settings(self, who: Principal, select: str, settings: ServiceSettingsChange) -> Many:
        """Time and log servers."""
        if settings.ntp is None and settings.syslog is None:
            raise BadRequest("nothing to change", where="settings", hint="give ntp or syslog servers")
        change = ServiceSettings(ntp=settings.ntp, syslog=settings.syslog)
        return await self._do(who, select, Deed(what="settings", settings=change))

    async def insert_media(self, who: Principal, select: str, image: str) -> Many:
        """The virtual drives."""
        refuse_login(image, "image", hint=_NO_LOGIN)
        return await self._do(who, select, Deed(what="media", text=image))

    async def update_firmware(self, who: Principal, request: FirmwareUpdate) -> JobView:
        """A few at a time, stopping when they fail."""
        refuse_login(request.uri, "uri", hint=_NO_LOGIN)
        nodes = self._fleet.owned(who, request.select)
        arguments = {
            "uids": intset.pack(np.sort(self._fleet.registry.uids[nodes])),
            "uri": self._jobs.sealed(request.uri),
            "targets": request.targets,
            "apply_time": request.apply_time,
            "at_once": request.at_once,
        }
        await self._audit(who, "update firmware", nodes, {"uri": shown(request.uri)})
        return (await self._fleet.jobs_.start("firmware", who.name, len(nodes), arguments)).view()

    async def _do(self, who: Principal, select: str, deed: Deed) -> Many:
        nodes = self._fleet.owned(who, select)
        await self._audit(who, deed.title, nodes, {})
        if len(nodes) > AT_ONCE:
            arguments = {
                "uids": intset.pack(np.sort(self._fleet.registry.uids[nodes])),
                "deed": self._jobs.sealed(deed),
            }
            return (await self._fleet.jobs_.start("bmc", who.name, len(nodes), arguments)).view()
        names = self._fleet.view.names(nodes)
        failed = await self._jobs.carry_out(deed, nodes)
        done = [name for name in names if name not in failed]
        return many_outcome(done, failed)

    async def _audit(self, who: Principal, action: str, nodes: Indices, detail: dict[str, Any]) -> None:
        names = fold(self._fleet.view.names(nodes))
        await self._fleet.ledger.commit(who.name, action, names[:1000], [], None, detail)

    # -- one node

    async def info(self, who: Principal, node: str) -> BmcView:
        """The controller as it is now."""
        address = self._address(who, node)
        if not address:
            return BmcView(node=node, address="", reachable=False, trouble="the node has no controller's address")
        try:
            with contained(address):
                controller = self._open(address)
                identity, power = await controller.identity(), await controller.power()
        except StrataError as error:
            return BmcView(node=node, address=address, reachable=False, trouble=str(error))
        boot = await _offered(controller.boot)
        if boot is not None:
            boot = msgspec.structs.replace(boot, uri=shown(boot.uri))
        media = [msgspec.structs.replace(one, image=shown(one.image)) for one in await _offered(controller.media) or ()]
        return BmcView(
            node=node,
            address=address,
            reachable=True,
            trouble="",
            identity=identity,
            power=power or "unknown",
            boot=boot,
            media=tuple(media),
        )

    async def log(self, who: Principal, node: str, after: str, limit: int) -> Sequence[LogEntryView]:
        """The system event log."""
        controller = self._controller(who, node)
        with contained(controller.address):
            return [
                LogEntryView(
                    id=entry.id,
                    time=entry.time,
                    severity=entry.severity,
                    message=entry.message,
                    message_id=entry.message_id,
                    sensor=entry.sensor,
                )
                for entry in await controller.log(after=after, limit=limit)
            ]

    async def limits(self, who: Principal, node: str) -> Sequence[PowerLimitView]:
        """Caps."""
        controller = self._controller(who, node)
        with contained(controller.address):
            return [
                PowerLimitView(id=one.id, name=one.name, watts=one.watts, least=one.least, most=one.most, via=one.via)
                for one in await controller.power_limits()
            ]

    async def bios(self, who: Principal, node: str) -> BiosView:
        """Firmware settings."""
        controller = self._controller(who, node)
        with contained(controller.address):
            found = await controller.bios()
        return BiosView(node=node, current=found.current, staged=found.staged)

    async def settings(self, who: Principal, node: str) -> ServiceSettingsView:
        """Time and log servers."""
        controller = self._controller(who, node)
        with contained(controller.address):
            found = await controller.settings()
        return ServiceSettingsView(node=node, ntp=found.ntp, syslog=found.syslog)

    # -- reading many

    async def sensors(self, who: Principal, select: str) -> Sequence[NodeReadings]:
        """Sensors, read now."""

        async def read(node: str, controller: Controller) -> NodeReadings:
            readings = await controller.readings()
            if not readings:
                raise NotOffered("it answers, and tells of no sensor", node=controller.address)
            return NodeReadings(
                node=node, time=self._fleet.controller.clock.wall(), readings=tuple(map(_reading, readings))
            )

        def lost(node: str, trouble: str) -> NodeReadings:
            return NodeReadings(node=node, time=self._fleet.controller.clock.wall(), readings=(), trouble=trouble)

        return await self._read(who, select, read, lost)

    async def firmware(self, who: Principal, select: str) -> Sequence[NodeFirmware]:
        """Firmware, read now."""

        async def read(node: str, controller: Controller) -> NodeFirmware:
            found = await controller.firmware()
            return NodeFirmware(
                node=node,
                firmware=tuple(
                    FirmwareView(
                        id=one.id,
                        name=one.name,
                        version=one.version,
                        updateable=one.updateable,
                        component=one.component,
                    )
                    for one in found
                ),
            )

        return await self._read(who, select, read, lambda node, why: NodeFirmware(node=node, firmware=(), trouble=why))

    async def _read(
        self,
        who: Principal,
        select: str,
        read: Callable[[str, Controller], Awaitable[T]],
        lost: Callable[[str, str], T],
    ) -> Sequence[T]:
        nodes = self._fleet.seen(who, select)
        if len(nodes) > READ_AT_MOST:
            raise BadRequest(
                f"{len(nodes)} nodes; one request reads at most {READ_AT_MOST} devices",
                where="select",
                hint="ask in parts; whole-fleet readings come from telemetry",
            )
        batch = batch_of(self._fleet.registry, nodes)
        found: dict[str, T] = {}

        async def one(which: tuple[str, str], _: Place) -> None:
            node, address = which
            if not address:
                raise NotOffered("it has no controller's address", node=node)
            with contained(address):
                found[node] = await read(node, self._open(address))

        def failed(which: tuple[str, str], error: StrataError) -> None:
            found[which[0]] = lost(which[0], str(error))

        await self._jobs.pace.each(zip(batch.names, batch.bmcs, strict=True), one, failed, limit=LIMIT)
        return [found[name] for name in batch.names]

    # -- helpers

    def _address(self, who: Principal, node: str) -> str:
        found = self._fleet.registry.roster.nodes[self._fleet.index(who, node)]
        return found.bmc if found is not None else ""

    def _controller(self, who: Principal, node: str) -> Controller:
        address = self._address(who, node)
        if not address:
            raise BadRequest("the node has no controller's address", where=node, hint="set its bmc, or discover it")
        return self._open(address)


async def _offered(call: Callable[[], Awaitable[T]]) -> T | None:
    """What the controller says, or None where it has no such thing or cannot say."""
    try:
        with contained("a BMC"):
            return await call()
    except StrataError:
        return None


def _reading(one: Reading) -> ReadingView:
    return ReadingView(
        name=one.name,
        kind=one.kind,
        unit=one.unit,
        value=one.value,
        health=one.health,
        high=one.high,
        low=one.low,
        doubt=one.doubt,
    )
