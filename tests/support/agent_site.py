"""A controller with real agents' parts and no hardware: nodes' power is simulated, their agents are the test's own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strata.api.server import ApiServer
from strata.core.driver import Batch
from strata.core.errors import Denied, NotFound
from strata.core.model import Model
from strata.daemon.settings import Settings
from strata.engine.settings import EngineSettings
from strata.fleet.access.credentials import Authenticator
from strata.fleet.controller.controller import Controller
from strata.fleet.peers.leaders import ByLeader
from strata.fleet.peers.peers import Peer
from strata.fleet.services import Services
from strata.fleet.settings import LeadershipSettings, StoreSettings
from strata.hardware.bmc.protocol import Boot
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.no_workload import NoWorkload
from strata.provisioning.agents.door import AgentDoor
from strata.provisioning.agents.driver import BootWay, NodeDriver, Questions
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.inventories import Inventories
from strata.provisioning.agents.open import tells
from strata.provisioning.agents.service import AgentService
from strata.provisioning.agents.unknown import UnknownMachines
from strata.provisioning.exec.service import ExecService
from strata.provisioning.identity.records import PREFIX as BOOTS
from strata.provisioning.identity.records import BootRecord
from strata.provisioning.images.release import ImageConfig, Release
from strata.provisioning.model import LAYER as PROVISIONING
from strata.provisioning.personalities.resolve import Personalities
from strata.provisioning.personalities.service import PersonalityService
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Store
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.fake_agents import FRONT_SECRET
from support.power_teller import PowerTeller
from support.rooms import OpenFleet, api_services


class FakeIdentity:
    """Believes the certificate that the test says, of every node."""

    def __init__(self) -> None:
        self.serials: dict[str, str] = {}
        self.records: dict[str, BootRecord] = {}
        self.alarms: list[tuple[str, str]] = []
        self.default = BootRecord(generation=1, redeemed=1.0, serial="A1")

    def current(self, node: str, serial: str) -> bool:
        return serial == self.serials.get(node, "A1")

    async def recognises(self, node: str, serial: str) -> bool:
        return self.current(node, serial)

    def superseded(self, node: str, serial: str, peer: str) -> Denied:
        self.alarms.append((node, serial))
        return Denied("the certificate belongs to an earlier boot", where="certificate-superseded")

    def record(self, node: str) -> BootRecord:
        return self.records.get(node, self.default)


class FakeReleases:
    """Tags that the test moves."""

    def __init__(self) -> None:
        self.tags: dict[str, Release] = {}
        self.moved: list[Callable[[str], None]] = []

    def move(self, reference: str, serial: int) -> Release:
        name, _, tag = reference.partition(":")
        release = Release(
            name=name,
            tag=tag,
            serial=serial,
            image=f"sha256:{serial:064x}",
            squashfs=f"sha256:{serial + 1:064x}",
            size=1 << 20,
            chunks=f"sha256:{serial + 2:064x}",
            config=ImageConfig(argv=("/sbin/init",)),
            signature="c2ln",
        )
        self.put(reference, release)
        return release

    def put(self, reference: str, release: Release) -> None:
        self.tags[reference] = release
        for told in self.moved:
            told(reference)

    def remove(self, reference: str) -> Release:
        release = self.tags.pop(reference)
        for told in self.moved:
            told(reference)
        return release

    async def release(self, reference: str) -> Release:
        if reference not in self.tags:
            raise NotFound("no such image", where=reference)
        return self.tags[reference]


class Alone:
    """The way to other controllers, where there are none."""

    def __init__(self) -> None:
        self.peers = self

    def others(self) -> list[Peer]:
        return []

    def leader(self, name: str) -> Peer | None:
        return None

    def sort(self, names: Sequence[str]) -> ByLeader:
        return ByLeader(here=list(names), there={}, nowhere={})


class AgentSite:
    """All of it. ``service`` is there once the controller is."""

    service: OpenFleet
    services: Services

    def __init__(
        self,
        directory: Path,
        store: Store,
        identity: FakeIdentity,
        releases: FakeReleases,
        sim: SimNodes,
        hold_most: int,
        bmc: Callable[[str], Any],
    ) -> None:
        self.identity = identity
        self.releases = releases
        self.sim = sim
        self.socket = directory / "front.sock"
        """Where nginx would speak."""
        self.admin = directory / "admin.sock"
        self.asked: dict[str, float] = {}
        self.owners: dict[str, str] = {}
        self.now: Callable[[], float] = time.time
        """The time at which strangers speak."""
        self.bmc = bmc
        self.way = BootWay(boot=Boot(target="pxe"))
        self.label: Callable[[str, str], str] = lambda profile, arch: f"{profile}@abc"
        self.cannot_boot: dict[str, str] = {}
        """Nodes that have nothing to boot, and why."""
        self.by_medium: set[str] = set()
        """Nodes that find nothing to boot by themselves."""
        self.busy: dict[str, str] = {}
        """Nodes that must not lose their power, and why."""
        self.logged: list[tuple[str, Any]] = []
        self.hub = Hub(
            known=lambda name: self.service.registry.find(name) >= 0,
            leads=lambda name: self.service.controller.leads(name),
            restarted=lambda name: self.service.controller.agent_restarted(name),
            hold_most=hold_most,
        )
        self.sets = Personalities(store, Ledger(store), releases, changed=self._set_changed)
        self.inventories = Inventories(directory / "inventories.db")
        questions = Questions(
            node=lambda name: self.service.registry.node(name),
            open=lambda address: self.bmc(address),
            asked=lambda name: self.asked.get(name, 0.0),
            profile=lambda name, arch: self.label(name, arch),
            cannot_boot=lambda name: self.cannot_boot.get(name, ""),
            desired=self._desired,
            way=self._way,
            may_lose=self._may_lose,
            by_itself=lambda name: name not in self.by_medium and self.way.boot.target == "pxe",
            ahead=self._ahead,
        )
        self.driver = NodeDriver(self.hub, identity, self.sets, questions)  # type: ignore[arg-type]

    def _set_changed(self, name: str) -> None:
        nodes = np.flatnonzero(self.service.registry.wanted("image", name))
        if len(nodes):
            self.service.controller.renew_goal(nodes)

    async def _way(self, name: str) -> BootWay:
        return self.way

    def _ahead(self, name: str) -> Boot | None:
        follows = "boot" in self.service.controller.engine.way(self.service.registry.index_of(name))
        return self.way.boot if follows and not self.way.media and name not in self.by_medium else None

    async def _may_lose(self, batch: Batch) -> Sequence[str]:
        return [self.busy.get(name, "") for name in batch.names]

    def _desired(self, name: str) -> str:
        goals = self.service.registry.desires.goals("image")
        wanted = goals.table[int(goals.codes[self.service.registry.index_of(name)])]
        return wanted[0] if wanted else ""

    def put_agents(self) -> None:
        """What the API needs."""
        unknown = UnknownMachines(self.owners.get, clock=lambda: self.now())
        fleet = self.service
        fleet.put(
            AgentDoor(
                hub=self.hub,
                identity=self.identity,  # type: ignore[arg-type]
                unknown=unknown,
                inventoried=self.inventories.put,
                logged=lambda name, lines: self.logged.append((name, lines)),
            )
        )
        alone: Any = Alone()
        fleet.put(AgentService(fleet, self.hub, unknown, self.inventories, alone))
        fleet.put(ExecService(fleet, self.hub, alone))
        fleet.put(PersonalityService(fleet, self.sets))

    def fact(self, node: str, variable: str) -> str:
        """What is believed of a node."""
        return self.service.view.node(self.service.registry.index_of(node)).facts[variable].value


@contextlib.asynccontextmanager
async def agent_site(
    directory: Path,
    *,
    nodes: int = 3,
    store: Store | None = None,
    identity: FakeIdentity | None = None,
    releases: FakeReleases | None = None,
    sim: SimNodes | None = None,
    hold_most: int = 4000,
    bmc: Callable[[str], Any] | None = None,
    model: Model | None = None,
) -> AsyncIterator[AgentSite]:
    """A controller that leads everything, with ``nodes`` nodes that are on. Given parts are of one that ran before."""
    directory.mkdir(exist_ok=True)
    settings = Settings(
        state_dir=directory,
        controller_id="test",
        store=StoreSettings(url="memory:"),
        leadership=LeadershipSettings(shards=2),
        engine=EngineSettings(first_poll=0.05, longest_poll=0.5, hopeless_after=1.0, backoff=0.2, blind_look=0.1),
    )
    async with contextlib.AsyncExitStack() as parts:
        if store is None:
            store = MemoryStore()
            parts.push_async_callback(store.close)
        if sim is None:
            sim = SimNodes(nodes, timing=Timing(scale=0))
            sim.put(sim.all, now=0.0, power="on")
        site = AgentSite(
            directory,
            store,
            identity or FakeIdentity(),
            releases or FakeReleases(),
            sim,
            hold_most,
            bmc or _no_controller,
        )
        parts.push_async_callback(site.inventories.close)
        power = sim_drivers(sim, time.monotonic)["bmc"]
        driver = site.driver
        controller = Controller(
            store,
            model or Model.of(HARDWARE, PROVISIONING),
            {
                "bmc": PowerTeller(
                    power, dark=driver.lost_power, lit=driver.got_power, before=driver.about_to_get_power
                ),
                "node": driver,
                "workload": NoWorkload(),
            },
            name="test",
            history=directory / "history.db",
            engine=settings.engine,
            leadership=settings.leadership,
        )
        site.service = service = OpenFleet(controller, settings)
        site.hub.changed.append(tells(controller, driver))
        service.edits.kept_by_name += (BOOTS,)
        authenticator = Authenticator(store, service.ledger)
        site.services = api_services(fleet=service, authenticator=authenticator, front_secret=FRONT_SECRET)
        await authenticator.start()
        parts.push_async_callback(authenticator.stop)
        await controller.start()
        parts.push_async_callback(controller.stop)
        await site.sets.start()
        parts.push_async_callback(site.sets.stop)
        await site.hub.start()
        service.registry.departed.append(driver.forget)
        parts.push_async_callback(site.hub.stop)
        site.put_agents()
        parts.push_async_callback(service.of(ExecService).close)
        if not len(service.registry):
            bmcs = "http://bmc.example" if bmc else ""
            await service.edits.create_nodes(simulated_nodes(nodes, bmc_base=bmcs), "test")
            await service.settled(await store.revision())
        server = ApiServer(site.services, site.admin, site.socket)
        await server.start()
        parts.push_async_callback(server.stop)
        parts.push_async_callback(service.operations.close)
        yield site


def _no_controller(address: str) -> Any:
    raise AssertionError(f"nobody should ask the controller at {address}")
