"""What the tests of the Redfish resources share: a small machine in two cabinets whose simulated BMCs answer on
loopback, the hardware layer that asks them, and the Redfish service over that. No processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
from api_support import Service, made_fleet
from loopback_reach import loopback_hardware
from route_table import Clock

from strata.api.front import Door
from strata.api.redfish.resources.push import EventPush
from strata.daemon.settings import Settings
from strata.fleet.access.accounts import Accounts
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import LOCAL_ADMIN, Principal, Role
from strata.fleet.access.sealing import Seal
from strata.fleet.nodes.records import NodeSpec
from strata.fleet.settings import StoreSettings
from strata.hardware.alerts.service import AlertService
from strata.hardware.consoles.service import ConsoleService
from strata.hardware.credentials.records import BmcCredentialSpec
from strata.hardware.credentials.service import BmcCredentialService
from strata.hardware.discovery.records import DiscoverRequest
from strata.hardware.events.hub import EventHub
from strata.hardware.events.records import HardwareEvent
from strata.hardware.inventory.service import InventoryService
from strata.hardware.settings import HardwareSettings
from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.plant.plant import Plant
from support.rooms import OpenFleet

ROOT = "/redfish/v1"
PASSWORD = "correct horse battery"
KEY = BmcCredentialSpec(pattern="default", user=SIMULATED_ACCOUNT.user, password=SIMULATED_ACCOUNT.password)
"""What opens the simulated BMCs."""
PLACES = {f"n{n:03d}": node.location for n, node in enumerate(simulated_nodes(4))} | {
    "n004": "x1001c0s0b0n0",
    "n005": "",
}
"""Four nodes in one slot, one in another cabinet, and one that nobody knows the place of."""
NOBODY = "https://nobody.example"
"""A BMC that does not answer."""


class MachineService(Service):
    """The engine looks at the nodes in their own world: whatever comes to a BMC, the API has asked for."""

    def __init__(self, fleet: OpenFleet, clock: Clock, bmcs: BmcServer) -> None:
        super().__init__(fleet, clock, bmcs.nodes)
        self.bmcs = bmcs
        self.accounts = fleet.of(Accounts)
        self.logins = fleet.of(Logins)
        self.push = fleet.put(EventPush(fleet.store, fleet.ledger, fleet.of(Seal)))
        self.ledger = fleet.ledger

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        return list(self.sim.names)

    def as_user(self, name: str, password: str = PASSWORD, door: Door = "front") -> httpx.AsyncClient:
        client = self.client(door)
        client.auth = httpx.BasicAuth(name, password)
        return client

    async def account(self, name: str, role: Role, scope: tuple[str, ...] = ()) -> Principal:
        return (await self.accounts.create(LOCAL_ADMIN, name, PASSWORD, role, scope=scope)).principal

    def told(self, node: str) -> tuple[object, ...]:
        """What a node's BMC has been told."""
        bmc = self.bmcs.bmc(node)
        cap = float(self.sim.electricity.caps[bmc.node])
        return (*bmc.resets, *bmc.boots), dict(bmc.boot), bmc.light, dict(bmc.staged), cap

    async def lose_bmc(self, node: str) -> None:
        """A node's BMC answers no more."""
        known = self.service.registry.node(node)
        spec = NodeSpec(name=node, location=known.location, bmc=NOBODY)
        await self.service.replace_node(LOCAL_ADMIN, node, spec, None)

    def alert(self, node: str) -> None:
        """Something is wrong with a node."""
        event = HardwareEvent(
            time=time.time(), severity="warning", message="fan\nfailed", source="push", key="sensor/Fan", node=node,
            bmc=self.bmcs.url(node),
        )  # fmt: skip
        self.of(EventHub).take([event])

    async def discover(self, *nodes: str, plant: bool = False) -> None:
        """Have the BMCs of nodes looked at; ``plant``: and those of the machine room."""
        assert self.bmcs.plant is not None
        names = [*nodes, *(self.bmcs.plant.names if plant else ())]
        request = DiscoverRequest(addresses=tuple(self.bmcs.url(name) for name in names))
        begun = await self.of(InventoryService).discover(LOCAL_ADMIN, request)
        over = await self.service.operations.wait(begun.id)
        assert (over.state, over.failed) == ("done", 0), over

    async def furnish(self) -> None:
        """Have some of everything."""
        await self.discover(*self.nodes, plant=True)
        first, second, *_ = self.nodes
        await self.put_group("rack", f"{first},{second}")
        self.bmcs.bmc(first).log("warning", "power supply 1 failed")
        for _ in range(2):
            self.alert(first)
        await self.of(EventHub).alerts.settled()
        self.of(ConsoleService)._log.append(first, "serial", ["login:", "Kernel panic - not syncing"])


@contextlib.asynccontextmanager
async def machine_service(
    directory: Path, places: Mapping[str, str] = PLACES, *, authority: bool = False
) -> AsyncIterator[MachineService]:
    """The machine and its service, running. ``places``: its nodes, and where each is."""
    settings = Settings(
        state_dir=directory,
        controller_id="test",
        store=StoreSettings(url="memory:"),
        hardware=HardwareSettings(poll=False, consoles=False),
    )
    async with contextlib.AsyncExitStack() as parts:
        sim = SimNodes(len(places), names=list(places), timing=Timing(scale=0))
        bmcs = BmcServer(sim, plant=Plant(sim), clock=time.monotonic)
        await bmcs.start()
        parts.push_async_callback(bmcs.stop)
        fleet, clock = await parts.enter_async_context(made_fleet(settings, authority=authority))
        await loopback_hardware(fleet, bmcs.address)
        for driver in sim_drivers(sim, time.monotonic).values():
            fleet.drive(driver)
        await fleet.start()
        service = MachineService(fleet, clock, bmcs)
        await service.push.start(fleet.of(AlertService))
        parts.push_async_callback(service.push.stop)
        specs = [NodeSpec(name=name, location=place, bmc=bmcs.url(name)) for name, place in places.items()]
        await fleet.create_nodes(LOCAL_ADMIN, specs)
        await fleet.of(BmcCredentialService).put(LOCAL_ADMIN, KEY)
        yield service


async def get(client: httpx.AsyncClient, path: str) -> Any:
    """A resource that must be there."""
    answer = await client.get(path if path.startswith("/") else f"{ROOT}/{path}")
    assert answer.status_code == 200, (path, answer.status_code, answer.text)
    return answer.json()


def members(collection: Any) -> list[str]:
    """The last parts of the members' paths."""
    return [link["@odata.id"].rpartition("/")[2] for link in collection["Members"]]


def links(found: Any) -> Iterator[str]:
    """Every path that a resource points to, but for the targets of its actions."""
    if isinstance(found, list):
        for item in found:
            yield from links(item)
    elif isinstance(found, dict):
        for key, value in found.items():
            if isinstance(value, str) and key in ("@odata.id", "DataSourceUri"):
                yield value
            else:
                yield from links(value)


def targets(found: Any) -> Iterator[str]:
    """The targets of a resource's actions."""
    for action in found.get("Actions", {}).values():
        yield action["target"]
