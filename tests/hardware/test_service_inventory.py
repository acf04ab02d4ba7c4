"""Discovery, adoption and the inventory as the API sees them, over simulated controllers on real sockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest, Denied, NotFound
from strata.core.node import Interface
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet as RunningFleet
from strata.fleet.operations.operations import Operations, OperationSettings
from strata.fleet.operations.records import PREFIX, encode
from strata.hardware.bmc.protocol import Identity
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.discovery.crawl import crawl
from strata.hardware.discovery.discover import Plan, save_plan
from strata.hardware.discovery.records import DiscoverRequest, DiscoveryReport
from strata.hardware.discovery.sources import read_list
from strata.hardware.discovery.sources_scan import ScanSettings
from strata.hardware.discovery.sweep import Discovery, DiscoverySettings
from strata.hardware.events.records import HardwareEvent
from strata.hardware.inventory.nodes import NodesByBmc
from strata.hardware.inventory.records import Component, ComponentQuery, Found, Machine, Port
from strata.hardware.inventory.service import InventoryService
from strata.hardware.inventory.store import Inventory
from strata.store.audit import Ledger
from strata.store.protocol import Put
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.nodes import SimNodes
from support.registry_support import Fleet, a_fleet, spec

ADMIN = Principal(name="alice", role="admin")
SYSTEM = "/redfish/v1/Systems/1"


class Stand(RunningFleet):
    """What the inventory needs of the service."""

    def __init__(self, fleet: Fleet) -> None:
        self.controller = SimpleNamespace(store=fleet.store)  # type: ignore[assignment]
        self.registry = fleet.registry
        self.edits = fleet.edits
        self.ledger = Ledger(fleet.store)
        self.view = None  # type: ignore[assignment]
        self.operations = Operations(fleet.store, self.ledger, owner="c1", settings=OperationSettings(report_every=0.0))


class Fake:
    """Controllers that tell what the test says."""

    def __init__(self) -> None:
        self.told: dict[str, Found] = {}
        self.asked: list[str] = []

    async def __call__(self, address: str) -> Found:
        self.asked.append(address)
        return self.told[address]

    def machine(
        self, number: int, *, serial: str = "", macs: Sequence[str] = (), time: float = 0.0, parts: int = 0
    ) -> str:
        """Let a controller tell of one machine; its address."""
        address, serial = f"https://bmc{number}", serial or f"S{number}"
        self.told[address] = Found(
            address=address,
            identity=Identity(vendor="Contoso", model="HX", serial=serial),
            time=time or 2e9,
            machines=(Machine(id=SYSTEM, address=address, serial=serial, macs=tuple(macs), architecture="aarch64"),),
            components=(
                Component(id=SYSTEM, kind="system", name="system", serial=serial, macs=tuple(macs)),
                *(_dimm(serial, i) for i in range(parts)),
            ),
        )
        return address


def _dimm(serial: str, number: int) -> Component:
    return Component(
        id=f"{SYSTEM}/Memory/{number}", kind="memory", name=f"DIMM{number}", parent=SYSTEM, serial=f"{serial}-{number}"
    )


class Site:
    """The service with its parts within reach."""

    def __init__(self, fleet: Fleet, crawlers: dict[str, Any], fake: Fake) -> None:
        self.fleet = fleet
        self.fake = fake
        self.stand = Stand(fleet)
        self.nodes = NodesByBmc(fleet.registry)
        self.events: list[HardwareEvent] = []
        self.inventory = Inventory(fleet.store, sink=self.events.extend, node_at=self.nodes.at)
        settings = DiscoverySettings(scan=ScanSettings(patience=3.0, ipmi=False))
        self.discovery = Discovery({"https": fake, **crawlers}, settings=settings)
        self.service = InventoryService(self.stand, self.inventory, self.discovery, self.nodes)

    async def discover(self, **request: Any) -> tuple[DiscoveryReport, dict[str, str]]:
        """Run a discovery to its end: what it came to, and its errors."""
        job = await self.service.discover(ADMIN, DiscoverRequest(**request))
        over = await self.stand.operations.wait(job.id)
        assert over.state in ("done", "failed"), over
        assert over.done + over.failed >= over.total
        await self.fleet.settled()
        return await self.service.discovery(ADMIN, job.id), {one.node: one.detail for one in over.errors}


@contextlib.asynccontextmanager
async def a_site(**crawlers: Any) -> AsyncIterator[Site]:
    async with a_fleet() as fleet:
        here = Site(fleet, crawlers, Fake())
        await here.inventory.start()
        try:
            yield here
        finally:
            await here.stand.operations.close()
            await here.inventory.stop()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with a_site() as here:
        yield here


# -- over real sockets


@pytest.mark.slow
async def test_simulated_machines_are_found_adopted_and_looked_at() -> None:
    server = BmcServer(SimNodes(12, names=[f"sim{i}" for i in range(12)]))
    await server.start()
    try:
        async with (
            RedfishClient(Credentials("root", "simulated")) as client,
            a_site(http=lambda a: crawl(client, a)) as here,
        ):
            urls = [server.url(f"sim{i}") for i in range(12)]
            report, errors = await here.discover(addresses=urls, adopt=True, name="n{number:03}")
            assert errors == {}
            assert (report.found, report.new, report.adopted, report.conflicts) == (12, 12, 12, 0)
            names = sorted(here.fleet.registry.names[i] for i in range(here.fleet.registry.size))
            assert names == [f"n{i:03}" for i in range(1, 13)]
            hardware = await here.service.of_node(ADMIN, "n001")
            assert {part.kind for part in hardware.components} >= {"processor", "memory", "drive", "nic"}
            assert all(part.node == "n001" for part in hardware.components)
            again, _ = await here.discover(known=True, adopt=True)
            assert (again.found, again.new, again.changed, again.adopted, again.refused_count) == (12, 0, 0, 0, 0)
    finally:
        await server.stop()


@pytest.mark.slow
async def test_dead_controllers_hold_nobody_up_and_are_listed() -> None:
    server = BmcServer(SimNodes(20, names=[f"sim{i}" for i in range(20)]))
    await server.start()
    server.nodes.bmc_dead[:2] = True
    settings = RedfishSettings(timeout=3.0, quick=3.0)
    try:
        async with (
            RedfishClient(Credentials("root", "simulated"), settings=settings) as client,
            a_site(http=lambda a: crawl(client, a)) as here,
        ):
            report, errors = await here.discover(addresses=[server.url(f"sim{i}") for i in range(20)])
            assert (report.found, report.silent) == (18, 2)
            assert errors == dict.fromkeys((server.url("sim0"), server.url("sim1")), "nobody answers")
    finally:
        await server.stop()


@pytest.mark.slow
async def test_a_range_is_scanned_and_what_answers_is_read() -> None:
    server = BmcServer(SimNodes(3, names=["a", "b", "c"]), by="address")
    await server.start()
    port = server.address.rpartition(":")[2]
    try:
        async with (
            RedfishClient(Credentials("root", "simulated")) as client,
            a_site(http=lambda a: crawl(client, a)) as here,
        ):
            report, errors = await here.discover(ranges=(f"http://127.1.0.0-127.1.0.7:{port}",))
            assert (report.found, report.silent, errors) == (3, 0, {})
            page = await here.service.bmcs(ADMIN, 10, "")
            assert [item.address for item in page.items] == [server.url(name) for name in "abc"]
    finally:
        await server.stop()


# -- adoption


async def test_names_and_places_come_from_the_csv_and_the_mapping(site: Site) -> None:
    site.fake.machine(1)
    site.fake.machine(2)
    csv = "address,name,role,labels\nhttps://bmc1,login-a,login,rack=3\nhttps://bmc2,,,\n"
    mapping = "serial,location,nid\nS1,x1000c0s0b0n0,11\nS2,x1000c0s1b0n0,12\n"
    report, _ = await site.discover(csv=csv, mapping=mapping, adopt=True)
    assert (report.adopted, report.located) == (2, 2)
    login = site.fleet.registry.node("login-a")
    assert (login.role, login.location, login.nid, login.bmc) == ("login", "x1000c0s0b0n0", 11, "https://bmc1")
    assert (login.labels, login.architecture) == ({"rack": "3", "serial": "S1"}, "aarch64")
    assert site.fleet.registry.node("n00001").location == "x1000c0s1b0n0"


async def test_an_adopted_node_has_the_ports_whose_macs_nobody_else_has(site: Site) -> None:
    shared = "02:00:00:00:00:01"
    first = site.fake.machine(1, macs=("52:54:00:00:00:01", shared, "01:00:5e:00:00:01"))
    second = site.fake.machine(2, macs=("52:54:00:00:00:02", shared))
    report, _ = await site.discover(addresses=(first, second), adopt=True)
    assert report.adopted == 2
    found = {node.bmc: [one.mac for one in node.interfaces] for node in site.fleet.registry.nodes if node}
    assert found == {first: ["52:54:00:00:00:01", shared], second: ["52:54:00:00:00:02"]}


async def test_ports_that_the_owners_described_stay_as_they_are(site: Site) -> None:
    own = (Interface(mac="52:54:00:00:00:09", address="10.77.0.9"),)
    address = site.fake.machine(1, macs=("52:54:00:00:00:01",))
    await site.fleet.edits.create_nodes([spec("n1", bmc=address, interfaces=own)], "alice")
    await site.fleet.settled()
    await site.discover(addresses=(address,), adopt=True)
    await site.fleet.settled()
    assert site.fleet.registry.node("n1").interfaces == own


async def test_nodes_are_numbered_in_the_order_of_their_addresses(site: Site) -> None:
    await site.discover(addresses=[site.fake.machine(number) for number in (10, 2, 1)], adopt=True)
    assert [site.fleet.registry.node(f"n0000{i}").bmc for i in (1, 2, 3)] == [f"https://bmc{i}" for i in (1, 2, 10)]


async def test_a_node_that_is_there_is_updated_and_not_made_twice(site: Site) -> None:
    await site.fleet.edits.create_nodes([spec("old", bmc="https://bmc1/")], "alice")
    await site.fleet.settled()
    site.fake.machine(1)
    report, _ = await site.discover(known=True, mapping="serial,nid\nS1,7\n", adopt=True)
    assert (report.adopted, report.updated, report.refused) == (0, 1, ())
    node = site.fleet.registry.node("old")
    assert (node.nid, node.labels, node.bmc) == (7, {"serial": "S1"}, "https://bmc1/")


async def test_a_machine_at_a_new_address_is_the_node_with_its_serial(site: Site) -> None:
    await site.fleet.edits.create_nodes([spec("old", bmc="https://bmc9", labels={"serial": "S1"})], "alice")
    await site.fleet.settled()
    report, _ = await site.discover(addresses=(site.fake.machine(1),), adopt=True)
    assert (report.adopted, report.updated) == (0, 1)
    assert site.fleet.registry.node("old").bmc == "https://bmc1"


async def test_what_is_not_clear_is_refused_and_listed(site: Site) -> None:
    for number, serial in ((1, "SAME"), (2, "SAME"), (3, "S3"), (4, "S4")):
        site.fake.machine(number, serial=serial)
    mapping = "serial,address,location\nS3,,x1000c0s0b0n0\n,https://bmc3,x1000c0s9b0n0\n"
    report, _ = await site.discover(addresses=tuple(site.fake.told), mapping=mapping, adopt=True)
    assert report.adopted == 1
    why = {refused.machine: refused.why for refused in report.refused}
    assert "serial SAME is also claimed by https://bmc2" in why["https://bmc1"]
    assert "mapping line 3 says location x1000c0s9b0n0, mapping line 2 says" in why["https://bmc3"]
    assert report.refused_count == 3


async def test_a_name_that_is_taken_is_refused(site: Site) -> None:
    await site.fleet.create("n7")
    site.fake.machine(1)
    report, _ = await site.discover(csv="address,name\nhttps://bmc1,n7\n", adopt=True)
    assert report.adopted == 0
    assert "there is a node of this name" in report.refused[0].why


@pytest.mark.parametrize("name", ["n", "{nodes}", "n{number", "n {number}", "{number:x}", "{number.__class__}"])
async def test_a_template_that_makes_no_names_is_refused_before_anything_is_done(site: Site, name: str) -> None:
    with pytest.raises(BadRequest):
        await site.discover(addresses=(site.fake.machine(1),), adopt=True, name=name)
    assert site.fake.asked == []


# -- conflicts


async def test_a_swapped_controller_waits_for_a_person(site: Site) -> None:
    address = site.fake.machine(1)
    await site.discover(addresses=(address,), adopt=True)
    site.fake.machine(1, serial="OTHER")
    report, errors = await site.discover(known=True, adopt=True)
    assert report.swapped == 1
    assert f"--accept {address}" in errors[address]
    [conflict] = await site.service.conflicts(ADMIN)
    assert (conflict.what, conflict.value, conflict.where) == ("bmc-swapped", "OTHER", (address, "n00001"))
    assert (await site.service.of_node(ADMIN, "n00001")).serial == "S1", "the old record stands"
    report, _ = await site.discover(accept=(address,))
    assert await site.service.conflicts(ADMIN) == []
    assert (await site.service.of_node(ADMIN, "n00001")).serial == "OTHER"
    entries = await site.stand.ledger.latest(50)
    assert [entry.author for entry in entries if entry.action == "hardware.accept"] == ["alice"]


async def test_duplicate_macs_are_conflicts_with_a_hint(site: Site) -> None:
    for number in (1, 2):
        site.fake.machine(number, macs=["00:11:22:33:44:55"])
    await site.discover(addresses=tuple(site.fake.told))
    [conflict] = await site.service.conflicts(ADMIN)
    assert (conflict.what, conflict.where) == ("duplicate-mac", ("https://bmc1", "https://bmc2"))
    assert conflict.hint


async def test_a_forgotten_controller_is_gone_and_its_history_stays(site: Site) -> None:
    address = site.fake.machine(1)
    await site.discover(addresses=(address,))
    await site.service.forget(ADMIN, address)
    with pytest.raises(NotFound):
        await site.service.bmc(ADMIN, address)
    assert [change.what for change in await site.service.history(ADMIN, "*", None, 10)] == ["added"]


async def test_what_is_kept_without_being_understood_is_counted_in_the_report(site: Site) -> None:
    for number in (1, 2):
        address = site.fake.machine(number)
        told = site.fake.told[address]
        strange = [
            Component(id=f"/x/{i}", kind="other", shape=f"{kind}.v1_0_0.{kind}")
            for i, kind in enumerate(("ResourceBlock", "ResourceBlock", "OutletGroup"))
        ]
        site.fake.told[address] = msgspec.structs.replace(told, components=(*told.components, *strange))
    report, _ = await site.discover(addresses=tuple(site.fake.told))
    assert report.not_understood == {"ResourceBlock": 4, "OutletGroup": 2}


async def test_types_that_bmcs_make_up_do_not_fill_the_report(site: Site) -> None:
    address = site.fake.machine(1)
    told = site.fake.told[address]
    strange = [Component(id=f"/x/{i}", kind="other", shape=f"T{i}.v1.T{i}") for i in range(1000)]
    site.fake.told[address] = msgspec.structs.replace(told, components=(*told.components, *strange))
    report, _ = await site.discover(addresses=(address,))
    assert len(report.not_understood) < 200
    assert sum(report.not_understood.values()) == 1000


# -- looking


async def test_ports_are_listed_with_the_parts_and_counted(site: Site) -> None:
    address = site.fake.machine(1)
    port = Port(id=f"{SYSTEM}/Ports/1", owner=SYSTEM, name="eth0", up=True, mac="00:11:22:33:44:55")
    site.fake.told[address] = msgspec.structs.replace(site.fake.told[address], ports=(port,))
    await site.discover(addresses=(address,), adopt=True)
    found = await site.service.components(ADMIN, ComponentQuery(kind="port"))
    assert [(one.name, one.node, one.macs, one.facts) for one in found.items] == [
        ("eth0", "n00001", ("00:11:22:33:44:55",), {"up": True})
    ]
    assert (await site.service.bmc(ADMIN, address)).summary.components["port"] == 1


async def test_components_are_filtered_and_paged(site: Site) -> None:
    for number in range(1, 6):
        site.fake.machine(number, parts=3)
    await site.discover(addresses=tuple(site.fake.told), adopt=True)
    seen: list[str] = []
    after = ""
    while True:
        page = await site.service.components(ADMIN, ComponentQuery(kind="memory", limit=4, after=after))
        seen += [part.serial for part in page.items]
        after = page.next
        if not after:
            break
    assert seen == [f"S{number}-{i}" for number in range(1, 6) for i in range(3)]
    one = await site.service.components(ADMIN, ComponentQuery(select="n00002", text="s2-1"))
    assert [(part.node, part.serial) for part in one.items] == [("n00002", "S2-1")]


async def test_what_was_found_before_it_was_a_node_is_in_the_history_of_the_node(site: Site) -> None:
    await site.discover(addresses=(site.fake.machine(1), site.fake.machine(2)), adopt=True)
    [change] = await site.service.history(ADMIN, "n00001", None, 10)
    assert (change.what, change.node, change.bmc) == ("added", "n00001", "https://bmc1")


async def test_controllers_are_paged_by_address(site: Site) -> None:
    for number in range(5):
        site.fake.machine(number)
    await site.discover(addresses=tuple(site.fake.told))
    first = await site.service.bmcs(ADMIN, 2, "")
    assert ([item.address for item in first.items], first.total) == (["https://bmc0", "https://bmc1"], 5)
    second = await site.service.bmcs(ADMIN, 10, first.next)
    assert ([item.address for item in second.items], second.next) == ([f"https://bmc{i}" for i in (2, 3, 4)], None)


async def test_what_is_outside_the_scope_is_not_there(site: Site) -> None:
    for number in (1, 2):
        site.fake.machine(number, parts=1, macs=["00:11:22:33:44:55"])
    await site.discover(addresses=tuple(site.fake.told), adopt=True)
    members = site.fleet.registry.select("n00001")
    await site.fleet.edits.put_group("mine", members, "alice", description="")
    await site.fleet.settled()
    bob = Principal(name="bob", role="viewer", scope=("mine",))
    page = await site.service.bmcs(bob, 10, "")
    assert ([item.address for item in page.items], page.total) == (["https://bmc1"], 1)
    with pytest.raises(NotFound):
        await site.service.bmc(bob, "https://bmc2")
    with pytest.raises(NotFound):
        await site.service.of_node(bob, "n00002")
    parts = await site.service.components(bob, ComponentQuery())
    assert {part.node for part in parts.items} == {"n00001"}
    [conflict] = await site.service.conflicts(bob)
    assert conflict.where == ("https://bmc1",)
    assert {change.node for change in await site.service.history(bob, "*", None, 10)} <= {"n00001"}
    with pytest.raises(Denied):
        await site.service.discover(bob, DiscoverRequest(known=True))
    with pytest.raises(Denied):
        await site.service.forget(bob, "https://bmc1")


async def test_a_node_that_was_not_discovered_says_what_to_do(site: Site) -> None:
    await site.fleet.edits.create_nodes([spec("a", bmc="https://bmc9"), spec("b")], "alice")
    await site.fleet.settled()
    with pytest.raises(NotFound) as caught:
        await site.service.of_node(ADMIN, "a")
    assert caught.value.hint == "strata hardware discover https://bmc9"
    with pytest.raises(NotFound):
        await site.service.of_node(ADMIN, "b")


# -- the job


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"csv": "address,password\nx,calvin\n"},
        {"addresses": ("https://root:calvin@x",)},
        {"ranges": ("10.0.0.0/8",)},
        {"addresses": ("https://x",), "mapping": "mac,location\nzz,x1\n"},
        {"leases": "rubbish"},
    ],
)
async def test_bad_input_is_refused_before_a_job_is_begun(site: Site, request_: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        await site.service.discover(ADMIN, DiscoverRequest(**request_))
    assert "calvin" not in str(caught.value)
    assert await site.stand.operations.recent() == []


async def test_a_discovery_goes_on_where_another_process_left_it(site: Site) -> None:
    for number in range(6):
        site.fake.machine(number)
    plan = await site.service.discover(ADMIN, DiscoverRequest(addresses=tuple(site.fake.told), adopt=True))
    job = await site.stand.operations.show(plan.id)
    await site.stand.operations.wait(plan.id)
    # As the one before would have left it: the first four are done, and its instance is gone.
    token = await save_plan(
        site.fleet.store,
        Plan(author="alice", begun=1.0, candidates=tuple(read_list(site.fake.told)), adopt=True, name="m{number}"),
    )
    left = msgspec.structs.replace(
        job,
        id="0001",
        state="running",
        arguments={"plan": token},
        position=(0, [[0, 3]]),
        done=4,
        instance="gone",
        total=6,
    )
    await site.fleet.store.txn([Put(PREFIX + left.id, encode(left))])
    site.fake.asked.clear()
    assert await site.stand.operations.recover() == ["0001"]
    over = await site.stand.operations.wait("0001")
    assert (over.state, over.done, sorted(site.fake.asked)) == ("done", 6, ["https://bmc4", "https://bmc5"])


async def test_what_a_job_was_to_do_is_not_kept_after_it(site: Site) -> None:
    await site.discover(addresses=(site.fake.machine(1),))
    assert (await site.fleet.store.range("hardware-input/")).entries == ()
    await site.service.prune(3e9)
    assert (await site.fleet.store.range("hardware-report/")).entries == ()
    assert await site.service.history(ADMIN, "*", None, 10) == []


async def test_a_crawler_that_breaks_ends_nobody_elses_work(site: Site) -> None:
    site.fake.machine(1)
    report, errors = await site.discover(addresses=("https://bmc1", "https://unknown", "ipmi://x"))
    assert report.found == 1
    assert "internal error while talking to the BMC: KeyError" in errors["https://unknown"]
    assert "ipmi is not supported" in errors["ipmi://x"]


async def test_a_controller_with_several_machines_is_read_once_and_each_becomes_its_own_node(site: Site) -> None:
    address = "https://enclosure"
    systems = [f"/redfish/v1/Systems/{i}" for i in (1, 2)]
    site.fake.told[address] = Found(
        address=address,
        identity=Identity(serial="E1"),
        time=2e9,
        machines=tuple(Machine(id=s, address=address + s, serial=f"B{s[-1]}") for s in systems),
        components=tuple(Component(id=s, kind="system", serial=f"B{s[-1]}") for s in systems),
    )
    csv = "address,name\n" + "".join(f"{address}{s},blade{s[-1]}\n" for s in systems)
    report, _ = await site.discover(csv=csv, adopt=True)
    assert (site.fake.asked, report.adopted) == ([address], 2)
    assert site.fleet.registry.node("blade2").bmc == address + systems[1]
    assert (await site.service.of_node(ADMIN, "blade2")).serial == "B2"
    page = await site.service.bmcs(ADMIN, 10, "")
    assert page.items[0].nodes == ("blade1", "blade2")
    again, _ = await site.discover(known=True, adopt=True)
    assert (again.found, again.adopted, again.updated) == (1, 0, 0)
