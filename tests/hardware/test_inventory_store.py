"""What hardware there is: written once, known everywhere, with its history and its contradictions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import pytest

from strata.core.errors import NotFound
from strata.hardware.bmc.protocol import Identity
from strata.hardware.events.records import HardwareEvent
from strata.hardware.inventory.index import Serials, hashed
from strata.hardware.inventory.records import Component, Found, Known, Machine, Place
from strata.hardware.inventory.store import BMCS, Inventory
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.open import open_store
from strata.store.protocol import Op, Put
from support.work import counted

if TYPE_CHECKING:
    from support.etcd_cluster import EtcdCluster

SYSTEM = "/redfish/v1/Systems/1"


def part(name: str, serial: str = "", **more: object) -> Component:
    return Component(id=f"{SYSTEM}/{name}", kind="memory", name=name, serial=serial, parent=SYSTEM, **more)  # type: ignore[arg-type]


def found(
    number: int,
    *parts: Component,
    time: float = 100.0,
    serial: str = "",
    uuid: str = "",
    macs: Sequence[str] = (),
    **more: object,
) -> Found:
    """What the BMC ``number`` tells: one system with these parts."""
    address = f"https://bmc{number}"
    serial = serial or f"S{number}"
    system = Component(id=SYSTEM, kind="system", serial=serial)
    machine = Machine(id=SYSTEM, address=address, serial=serial, uuid=uuid, macs=tuple(macs))
    return Found(
        address=address,
        identity=Identity(vendor="Contoso", serial=serial),
        time=time,
        machines=(machine,),
        components=(system, *parts),
        **more,  # type: ignore[arg-type]
    )


class CountingStore(MemoryStore):
    """Counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    async def txn(self, ops: Sequence[Op], *, expect: Mapping[str, int] | None = None) -> int:
        self.written += [op.key for op in ops]
        return await super().txn(ops, expect=expect)


class Site:
    """An inventory, its store and the events that it raised."""

    def __init__(self) -> None:
        self.store = CountingStore()
        self.events: list[HardwareEvent] = []
        self.inventory = Inventory(self.store, sink=self.events.extend, node_at=lambda address: address[8:])

    async def record(self, *founds: Found, accept: Sequence[str] = ()) -> list[str]:
        return [result.outcome for result in await self.inventory.record(founds, accept=accept)]

    async def history(self) -> list[tuple[str, str, str]]:
        changes = await self.inventory.history(since=None, limit=100)
        return [(change.what, change.old, change.new) for change in changes]


async def until(true: Callable[[], bool]) -> None:
    """Let others run until something is so."""
    async with asyncio.timeout(60):
        for _ in iter(true, True):
            await asyncio.sleep(0.001)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    here = Site()
    await here.inventory.start()
    yield here
    await here.inventory.stop()
    await here.store.close()


async def test_a_new_bmc_is_one_line_of_history(site: Site) -> None:
    assert await site.record(found(1, part("DIMM1", "M1"), part("DIMM2", "M2"))) == ["new"]
    [change] = await site.inventory.history(since=None, limit=100)
    assert (change.what, change.node, change.detail) == ("added", "bmc1", "Contoso, 3 parts")
    parts = await site.inventory.parts("https://bmc1")
    assert [component.serial for component in parts.components] == ["S1", "M1", "M2"]


async def test_nothing_is_written_when_nothing_has_changed(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1")))
    site.store.written.clear()
    assert await site.record(found(1, part("DIMM1", "M1"), time=200.0)) == ["same"]
    assert site.store.written == []
    known = site.inventory.get("https://bmc1")
    assert known is not None
    assert known.seen == 200.0
    await site.record(found(1, part("DIMM1", "M1"), time=100_000.0))
    assert site.store.written == [f"{BMCS}https://bmc1"], "now and then the store hears that it was seen"


async def test_power_alone_is_no_change(site: Site) -> None:
    one = found(1)
    await site.record(one)
    on = msgspec.structs.replace(one, machines=(msgspec.structs.replace(one.machines[0], power="on"),))
    assert await site.record(on) == ["same"]


async def test_a_swapped_part_is_in_the_history_with_both_serials(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1")))
    assert await site.record(found(1, part("DIMM1", "M9"), time=200.0)) == ["changed"]
    assert (await site.history())[0] == ("swapped", "M1", "M9")
    assert site.events[-1].severity == "warning"
    assert "M1 → M9" in site.events[-1].message
    assert site.events[-1].node == "bmc1"


async def test_a_part_that_was_elsewhere_before_has_moved(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1")), found(2))
    await site.record(found(2, part("DIMM4", "M1"), time=200.0))
    assert (await site.history())[0] == ("moved", "https://bmc1", "https://bmc2")


async def test_a_part_in_a_new_machine_that_came_from_an_old_one_has_moved(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1")))
    await site.record(found(2, part("DIMM1", "M1"), time=200.0))
    assert [what for what, _, _ in await site.history()] == ["added", "moved", "added"]


async def test_a_machine_that_has_moved_with_all_its_parts_is_one_move(site: Site) -> None:
    parts = [part(f"DIMM{i}", f"M{i}") for i in range(8)]
    await site.record(found(1, *parts))
    await site.record(found(2, *parts, part("DIMM9", "M9"), serial="S1", time=200.0))
    moved = [event for event in site.events if "moved" in event.message]
    assert [event.message for event in moved] == [
        "system moved: serial S1, with 8 other parts (https://bmc1 → https://bmc2)"
    ]


async def test_a_part_that_could_not_be_read_is_not_gone(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1"), part("DIMM2", "M2")))
    await site.record(found(1, part("DIMM2", "M2"), time=200.0, trouble=(f"{SYSTEM}/DIMM1: it answered 500",)))
    assert [what for what, _, _ in await site.history()] == ["added"]
    parts = await site.inventory.parts("https://bmc1")
    assert {component.serial for component in parts.components} == {"S1", "M1", "M2"}
    await site.record(found(1, part("DIMM2", "M2"), time=300.0))
    assert (await site.history())[0] == ("removed", "M1", "")


async def test_another_bmc_at_an_address_does_not_take_over(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1")))
    stranger = found(1, part("DIMM1", "X1"), serial="OTHER", time=200.0)
    assert await site.record(stranger) == ["swapped"]
    known = site.inventory.get("https://bmc1")
    assert known is not None
    assert (known.identity.serial, known.stranger and known.stranger.serial) == ("S1", "OTHER")
    assert [one.address for one in site.inventory.strangers()] == ["https://bmc1"]
    assert (await site.inventory.parts("https://bmc1")).components[1].serial == "M1"
    assert (site.events[-1].severity, site.events[-1].key) == ("critical", "inventory/controller")
    assert "was S1 and is OTHER" in site.events[-1].message
    before = len(await site.history())
    await site.record(stranger)
    assert len(await site.history()) == before, "the same stranger is news once"


async def test_a_person_accepts_another_bmc(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1")))
    stranger = found(1, part("DIMM1", "X1"), serial="OTHER", time=200.0)
    await site.record(stranger)
    assert await site.record(stranger, accept=["https://bmc1"]) == ["changed"]
    assert list(site.inventory.strangers()) == []
    assert (await site.inventory.parts("https://bmc1")).components[1].serial == "X1"
    assert (await site.history())[0][0] == "bmc-swapped"


async def test_the_right_bmc_put_back_ends_the_conflict(site: Site) -> None:
    await site.record(found(1))
    await site.record(found(1, serial="OTHER", time=200.0))
    assert await site.record(found(1, time=300.0)) == ["changed"]
    assert list(site.inventory.strangers()) == []
    assert site.events[-1].severity == "ok"
    assert site.events[-1].key == "inventory/controller"


async def test_duplicates_are_reported_and_end_with_their_cause(site: Site) -> None:
    mac = "00:11:22:33:44:55"
    await site.record(found(1, macs=[mac]), found(2, macs=[mac], time=150.0))
    [clash] = site.inventory.clashes()
    assert clash == ("mac", mac, ("https://bmc1", "https://bmc2"), 150.0)
    assert "duplicate-mac" in site.events[-1].key
    await site.record(found(2, time=200.0))
    assert list(site.inventory.clashes()) == []


async def test_one_machine_at_two_addresses_is_a_conflict(site: Site) -> None:
    await site.record(found(1, serial="SAME"), found(2, serial="SAME"))
    assert [clash.mark for clash in site.inventory.clashes()] == ["serial"]
    await site.inventory.forget("https://bmc1", "alice", Ledger(site.store))
    assert list(site.inventory.clashes()) == []
    with pytest.raises(NotFound):
        await site.inventory.forget("https://bmc1", "alice", Ledger(site.store))


async def test_an_internal_address_that_all_of_a_make_share_is_no_conflict(site: Site) -> None:
    await site.record(*(found(i, macs=["02:00:00:00:00:01"]) for i in range(20)))
    assert list(site.inventory.clashes()) == []


async def test_two_machines_in_one_place_are_a_conflict(site: Site) -> None:
    await site.record(found(1), found(2))
    place = {SYSTEM: Place(location="x1000c0s0b0n0")}
    await site.inventory.place({"https://bmc1": place, "https://bmc2": place})
    assert [clash.mark for clash in site.inventory.clashes()] == ["location"]


async def test_another_controller_of_strata_knows_what_this_one_found(site: Site) -> None:
    other = Inventory(site.store)
    await other.start()
    try:
        await site.record(found(1, part("DIMM1", "M1")))
        await until(lambda: other.get("https://bmc1") is not None)
        assert other.addresses() == ["https://bmc1"]
        await site.inventory.forget("https://bmc1", "alice", Ledger(site.store))
        await until(lambda: not len(other))
    finally:
        await other.stop()


async def test_a_machine_is_found_by_what_a_node_calls_its_bmc(site: Site) -> None:
    await site.record(found(1))
    for bmc in ("https://bmc1", "https://bmc1/", f"https://bmc1{SYSTEM}"):
        assert site.inventory.machine(bmc) is not None
    assert site.inventory.machine("https://bmc1/redfish/v1/Systems/2") is None
    assert site.inventory.machine("https://bmc2") is None


async def test_history_is_forgotten_after_its_time(site: Site) -> None:
    await site.record(found(1, time=100.0), found(2, time=200.0))
    assert await site.inventory.prune(150.0) == 1
    assert [change.time for change in await site.inventory.history(since=None, limit=9)] == [200.0]
    assert await site.inventory.history(since=201.0, limit=9) == []


async def test_a_bmc_that_makes_parts_up_without_end_is_cut(site: Site) -> None:
    noise = [part(f"P{i}", secrets.token_urlsafe(90)) for i in range(20_000)]
    assert await site.record(found(1, *noise)) == ["new"]
    known = site.inventory.get("https://bmc1")
    assert known is not None
    assert "more parts than are kept" in known.trouble[0]
    assert 1000 < known.counts["memory"] < 20_000


def test_serials_are_found_among_many() -> None:
    serials = Serials()
    for i in range(5000):
        serials.add(f"b{i}", hashed(f"{i}-{j}" for j in range(20)))
    assert serials.find(hashed(["4711-7"])) == {"b4711"}
    serials.add("again", hashed(["4711-7"]))
    assert serials.find(hashed(["4711-7", "absent"])) == {"b4711", "again"}


@pytest.mark.slow
async def test_a_hundred_thousand_bmcs_are_loaded_at_a_bounded_cost_for_each() -> None:
    store = MemoryStore()
    counts = {"system": 1, "memory": 16, "processor": 2, "drive": 2, "nic": 2}
    for begin in range(0, 100_000, 500):
        ops = []
        for i in range(begin, begin + 500):
            machine = Machine(
                id=SYSTEM, address=f"https://b{i}", serial=f"S{i}", uuid=f"{i:032x}", macs=(f"00:{i:015x}",)
            )
            known = Known(
                address=f"https://b{i}",
                identity=Identity(vendor="Contoso", model="HX", serial=f"S{i}"),
                first=1.0,
                seen=1.0,
                digest=bytes(12),
                machines=(machine,),
                counts=counts,
                serials=hashed(f"{i}.{j}" for j in range(24)),
            )
            ops.append(Put(f"{BMCS}https://b{i}", msgspec.msgpack.encode(known)))
        await store.txn(ops)
    inventory = Inventory(store)
    with counted() as work:
        await inventory.start()
    assert len(inventory) == 100_000
    assert inventory.holders("serial", "S77777") == ("https://b77777",)
    assert list(inventory.clashes()) == []
    assert work.calls < 500 * 100_000
    await inventory.stop()
    await store.close()


async def test_a_record_that_cannot_be_read_spoils_no_other(site: Site) -> None:
    await site.record(found(1))
    await site.store.txn([Put(f"{BMCS}https://bmc2", b"\xc1")])
    other = Inventory(site.store)
    await other.start()
    assert other.addresses() == ["https://bmc1"]
    await other.stop()


@pytest.mark.server
@pytest.mark.slow
async def test_an_inventory_fits_through_the_small_transactions_of_etcd(etcd_cluster: EtcdCluster) -> None:
    store = open_store(etcd_cluster.url("inventory"))
    inventory, other = Inventory(store), Inventory(store)
    await inventory.start()
    await other.start()
    try:
        founds = [found(i, *(part(f"D{j}", f"{i}-{j}") for j in range(20))) for i in range(300)]
        assert {result.outcome for result in await inventory.record(founds)} == {"new"}
        assert len(inventory) == 300
        await until(lambda: len(other) == 300)
        assert len((await other.parts("https://bmc299")).components) == 21
        seen = [known.address async for some in other.walk() for known, _ in some]
        assert seen == list(other.addresses())
        assert len(await other.history(since=None, limit=1000)) == 300
        assert await other.prune(1e6) == 300
    finally:
        await inventory.stop()
        await other.stop()
        await store.close()
