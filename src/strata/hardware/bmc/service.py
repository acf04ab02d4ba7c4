"""Requests that go through nodes' BMCs: power, boot, lights, sensors, caps, firmware.

A wish for a state (on, off) becomes a desire, and the engine fulfils it with all its brakes. What is no state (a cycle,
an NMI) is done at once, unless a brake is on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import asdict, replace

from strata.core import intset
from strata.core.errors import BadRequest, NotOffered, StrataError
from strata.core.fault_isolation import contained
from strata.core.nodeset import fold
from strata.core.urls import refuse_login, shown
from strata.fleet.access.principal import Principal
from strata.fleet.access.sealing import Seal
from strata.fleet.columns import Indices
from strata.fleet.desires.records import DesireChange
from strata.fleet.desires.service import DesireService
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.batches import batch_of
from strata.fleet.operations.records import Operation
from strata.hardware.bmc.operations import BmcOperations, BmcOrder, many_outcome
from strata.hardware.bmc.protocol import Bmc, Boot, PowerAction, PowerLimit
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

AT_ONCE = 1000
"""More nodes than this make an operation."""

READ_AT_MOST = 1000
"""Nodes whose sensors or firmware one request reads: each is a device that takes its time."""

T = TypeVar("T")

_NO_LOGIN = (
    "let the server give BMCs the file without a login, or by a short-lived token in the address; or upload the file"
)
_POWER = {"on": "on", "off": "off", "graceful-off": "off"}


class BmcService:
    """Everything that is asked of BMCs on behalf of somebody."""

    def __init__(self, fleet: Fleet, open_: Callable[[str], Bmc], seal: Seal) -> None:
        """``seal``: what is asked may hold a secret (an address, a BIOS password), and a job's record holds it."""
        self._fleet = fleet
        self._open = open_
        self._jobs = BmcOperations(fleet, open_, seal)

    # -- many nodes

    async def power(self, who: Principal, select: str, action: PowerAction, *, force: bool = False) -> Many:
        """Switch, cycle or interrupt the selected nodes. An operation for more than 1000."""
        state = _POWER.get(action)
        if state is None:
            return await self._do(who, select, BmcOrder(what="power", action=action, force=force))
        change = DesireChange(select=select, set={"power": state})
        result = await self._fleet.of(DesireService).set_desires(who, change, asynchronous=False)
        if isinstance(result, Operation):
            return result
        failed = {one.node: one.error or "refused" for one in result.results if not one.ok}
        done = [one.node for one in result.results if one.ok]
        return many_outcome(done, failed, result.revision)

    async def boot(self, who: Principal, select: str, boot: Boot) -> Many:
        """Set the boot override."""
        if boot.uri and boot.target != "http":
            raise BadRequest("only HTTP boot takes a URI", where="uri")
        refuse_login(boot.uri, "uri", hint=_NO_LOGIN)
        return await self._do(who, select, BmcOrder(what="boot", boot=boot))

    async def identify(self, who: Principal, select: str, on: bool) -> Many:
        """Switch the identify light of the selected nodes."""
        return await self._do(who, select, BmcOrder(what="identify", on=on))

    async def set_limit(self, who: Principal, select: str, limit: str, watts: float | None) -> Many:
        """Cap the power of the selected nodes."""
        if watts is not None and not 0 < watts < 1e6:
            raise BadRequest(f"{watts:g} W is not a cap", where="watts")
        return await self._do(who, select, BmcOrder(what="limit", text=limit, watts=watts))

    async def stage_bios(self, who: Principal, select: str, attributes: Mapping[str, Scalar]) -> Many:
        """Stage firmware settings of the selected nodes; they take effect at the next restart."""
        if not attributes:
            raise BadRequest("give at least one attribute", where="attributes")
        return await self._do(who, select, BmcOrder(what="bios", attributes=dict(attributes)))

    async def set_settings(self, who: Principal, select: str, change: ServiceSettingsChange) -> Many:
        """Set the time and log servers of the selected nodes' BMCs."""
        if change.ntp is None and change.syslog is None:
            raise BadRequest("nothing to change", where="settings", hint="give ntp or syslog servers")
        return await self._do(who, select, BmcOrder(what="settings", settings=change))

    async def insert_media(self, who: Principal, select: str, image: str) -> Many:
        """Put an image into the virtual drives of the selected nodes, or eject it."""
        refuse_login(image, "image", hint=_NO_LOGIN)
        return await self._do(who, select, BmcOrder(what="media", text=image))

    async def update_firmware(self, who: Principal, request: FirmwareUpdate) -> Operation:
        """Update firmware of the selected nodes, a few at a time; it stops when they fail."""
        refuse_login(request.uri, "uri", hint=_NO_LOGIN)
        nodes = self._fleet.owned(who, request.select)
        arguments = {
            "uids": intset.pack(np.sort(self._fleet.registry.uids[nodes])),
            "uri": self._jobs.sealed(request.uri),
            "targets": request.targets,
            "apply_time": request.apply_time,
            "at_once": request.at_once,
        }
        await self._audit(who, "firmware.update", nodes, {"uri": shown(request.uri)})
        return (await self._fleet.operations.start("firmware", who.name, len(nodes), arguments)).shown()

    async def _do(self, who: Principal, select: str, order: BmcOrder) -> Many:
        nodes = self._fleet.owned(who, select)
        await self._audit(who, order.title, nodes, {})
        if len(nodes) > AT_ONCE:
            arguments = {
                "uids": intset.pack(np.sort(self._fleet.registry.uids[nodes])),
                "order": self._jobs.sealed(order),
            }
            return (await self._fleet.operations.start("bmc", who.name, len(nodes), arguments)).shown()
        names = self._fleet.view.names(nodes)
        failed = await self._jobs.carry_out(order, nodes)
        done = [name for name in names if name not in failed]
        return many_outcome(done, failed)

    async def _audit(self, who: Principal, action: str, nodes: Indices, detail: dict[str, Any]) -> None:
        names = fold(self._fleet.view.names(nodes))
        await self._fleet.ledger.commit(who.name, action, names[:1000], [], None, detail)

    # -- one node

    async def info(self, who: Principal, node: str) -> BmcView:
        """The node's BMC, as it is now."""
        address = self._address(who, node)
        if not address:
            return BmcView(node=node, address="", reachable=False, trouble="the node has no BMC's address")
        try:
            with contained(address):
                bmc = self._open(address)
                identity, power = await bmc.identity(), await bmc.power()
        except StrataError as error:
            return BmcView(node=node, address=address, reachable=False, trouble=str(error))
        boot = await _offered(bmc.boot)
        if boot is not None:
            boot = replace(boot, uri=shown(boot.uri))
        media = [replace(one, image=shown(one.image)) for one in await _offered(bmc.media) or ()]
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

    async def log(self, who: Principal, node: str, after: str = "", limit: int = 1000) -> Sequence[LogEntryView]:
        """The system event log of the node's BMC."""
        bmc = self._bmc(who, node)
        with contained(bmc.address):
            return [LogEntryView.of(entry) for entry in await bmc.log(after=after, limit=limit)]

    async def limits(self, who: Principal, node: str) -> Sequence[PowerLimit]:
        """What can be capped, and to what it is."""
        bmc = self._bmc(who, node)
        with contained(bmc.address):
            return await bmc.power_limits()

    async def bios(self, who: Principal, node: str) -> NodeBios:
        """Firmware settings, in force and staged."""
        bmc = self._bmc(who, node)
        with contained(bmc.address):
            return NodeBios(node=node, **asdict(await bmc.bios()))

    async def settings(self, who: Principal, node: str) -> NodeSettings:
        """Time and log servers of the node's BMC."""
        bmc = self._bmc(who, node)
        with contained(bmc.address):
            return NodeSettings(node=node, **asdict(await bmc.settings()))

    # -- reading many

    async def sensors(self, who: Principal, select: str) -> Sequence[NodeReadings]:
        """Sensors of the selected nodes, read now; at most 1000 nodes."""

        async def read(node: str, bmc: Bmc) -> NodeReadings:
            readings = await bmc.readings()
            if not readings:
                raise NotOffered("it answers, but lists no sensors", node=bmc.address)
            return NodeReadings(node=node, time=self._fleet.controller.clock.wall(), readings=tuple(readings))

        def lost(node: str, trouble: str) -> NodeReadings:
            return NodeReadings(node=node, time=self._fleet.controller.clock.wall(), readings=(), trouble=trouble)

        return await self._read(who, select, read, lost)

    async def firmware(self, who: Principal, select: str) -> Sequence[NodeFirmware]:
        """Firmware of the selected nodes, read now; at most 1000 nodes."""

        async def read(node: str, bmc: Bmc) -> NodeFirmware:
            return NodeFirmware(node=node, firmware=tuple(await bmc.firmware()))

        return await self._read(who, select, read, lambda node, why: NodeFirmware(node=node, firmware=(), trouble=why))

    async def _read(
        self,
        who: Principal,
        select: str,
        read: Callable[[str, Bmc], Awaitable[T]],
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

        async def one(node: str, bmc: Bmc) -> None:
            found[node] = await read(node, bmc)

        for node, error in (await self._jobs.each(batch, one)).items():
            found[node] = lost(node, str(error))
        return [found[name] for name in batch.names]

    # -- helpers

    def _address(self, who: Principal, node: str) -> str:
        found = self._fleet.registry.nodes[self._fleet.index(who, node)]
        return found.bmc if found is not None else ""

    def _bmc(self, who: Principal, node: str) -> Bmc:
        address = self._address(who, node)
        if not address:
            raise BadRequest("the node has no BMC's address", where=node, hint="set its bmc, or discover it")
        return self._open(address)


async def _offered(call: Callable[[], Awaitable[T]]) -> T | None:
    """What the BMC says, or None where it has no such thing or cannot say."""
    try:
        with contained("a BMC"):
            return await call()
    except StrataError:
        return None
