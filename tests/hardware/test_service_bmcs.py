"""What is asked of nodes' controllers on behalf of people, over a whole controller and simulated BMCs on sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest, Denied, NotFound
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.access.sealing import Seal
from strata.fleet.groups.records import GroupSpec
from strata.fleet.nodes.records import NodeSpec
from strata.fleet.operations.records import Operation, OperationRow
from strata.hardware.bmc import service as service_bmcs
from strata.hardware.bmc.operations import BmcOrder
from strata.hardware.bmc.protocol import Boot
from strata.hardware.bmc.records import FirmwareUpdate, ManyOutcome, ServiceSettingsChange
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.bmc.service import BmcService
from support.cray_blade import NODES as NODES_OF_BLADE
from support.cray_blade import CrayBlade
from support.simulated_machine import SimulatedMachine, simulated_machine

NODES = 6
SEAL = Seal([b"k" * 32])


class Site:
    def __init__(self, machine: SimulatedMachine) -> None:
        self.machine = machine
        self.service = machine.service
        self.bmcs = BmcService(machine.service, machine.bmcs.open, SEAL)

    def bmc(self, name: str) -> Any:
        return self.machine.server.bmc(name)

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not what():  # noqa: ASYNC110 (the simulator has no event for it)
                await asyncio.sleep(0.01)

    async def ended(self, job: str) -> OperationRow:
        return await self.service.operations.wait(job)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with simulated_machine(tmp_path, NODES, on=True) as machine:
        yield Site(machine)


@pytest.mark.slow
async def test_a_wish_for_a_state_is_a_desire_that_the_engine_fulfils(site: Site) -> None:
    outcome = await site.bmcs.power(LOCAL_ADMIN, "n[00001-00002]", "on")
    assert isinstance(outcome, ManyOutcome)
    assert (outcome.done, outcome.failed) == ("n[00001-00002]", ())
    await site.until(lambda: site.machine.on("n00001") and site.machine.on("n00002"))
    assert not site.machine.on("n00003")
    [desire] = site.service.registry.desires.of(site.service.registry.index_of("n00001"))
    assert (desire.variable, desire.values, desire.origin) == ("power", ("on",), "node")


@pytest.mark.slow
async def test_what_is_no_state_is_done_at_once_and_leaves_no_desire(site: Site) -> None:
    await site.bmcs.power(LOCAL_ADMIN, "n00001", "on")
    await site.until(lambda: site.machine.on("n00001"))
    before = len(site.bmc("n00001").resets)
    outcome = await site.bmcs.power(LOCAL_ADMIN, "n00001", "nmi")
    assert isinstance(outcome, ManyOutcome)
    assert outcome.done == "n00001"
    assert site.bmc("n00001").resets[before:] == ["Nmi"]


@pytest.mark.slow
async def test_a_frozen_node_is_cycled_only_by_who_insists(site: Site) -> None:
    await site.bmcs.power(LOCAL_ADMIN, "n00001", "on")
    await site.until(lambda: site.machine.on("n00001"))
    before = len(site.bmc("n00001").resets)
    await site.service.freeze(LOCAL_ADMIN, "node:n00001", "careful")
    refused = await site.bmcs.power(LOCAL_ADMIN, "n00001", "cycle")
    assert isinstance(refused, ManyOutcome)
    assert refused.done == ""
    assert "frozen" in refused.failed[0].reason
    assert site.bmc("n00001").resets[before:] == []
    insisted = await site.bmcs.power(LOCAL_ADMIN, "n00001", "cycle", force=True)
    assert isinstance(insisted, ManyOutcome)
    assert insisted.done == "n00001"
    assert len(site.bmc("n00001").resets[before:]) == 1


async def test_boot_light_cap_and_settings_reach_the_device_and_are_read_back(site: Site) -> None:
    for outcome in (
        await site.bmcs.boot(LOCAL_ADMIN, "n00001", Boot(target="http", once=False, uri="https://192.0.2.1/x.efi")),
        await site.bmcs.identify(LOCAL_ADMIN, "n00001", True),
        await site.bmcs.set_limit(LOCAL_ADMIN, "n00001", "", 400),
        await site.bmcs.insert_media(LOCAL_ADMIN, "n00001", "https://192.0.2.1/rescue.iso"),
        await site.bmcs.set_settings(LOCAL_ADMIN, "n00001", ServiceSettingsChange(ntp=("192.0.2.1",))),
        await site.bmcs.stage_bios(LOCAL_ADMIN, "n00001", {"HyperThreading": False}),
    ):
        assert isinstance(outcome, ManyOutcome)
        assert (outcome.done, outcome.failed) == ("n00001", ())
    view = await site.bmcs.info(LOCAL_ADMIN, "n00001")
    assert view.reachable
    assert view.identity is not None
    assert view.identity.serial
    assert view.boot is not None
    assert (view.boot.target, view.boot.once, view.boot.uri) == ("http", False, "https://192.0.2.1/x.efi")
    assert "https://192.0.2.1/rescue.iso" in [drive.image for drive in view.media]
    assert (await site.bmcs.limits(LOCAL_ADMIN, "n00001"))[0].watts == 400
    assert (await site.bmcs.settings(LOCAL_ADMIN, "n00001")).ntp == ("192.0.2.1",)
    bios = await site.bmcs.bios(LOCAL_ADMIN, "n00001")
    assert bios.current["HyperThreading"] is True
    assert bios.staged["HyperThreading"] is False


async def test_a_node_that_cannot_be_reached_says_why_and_holds_nobody_up(site: Site) -> None:
    spec = NodeSpec(name="lost", bmc="http://127.0.0.1:9")
    await site.service.create_nodes(LOCAL_ADMIN, [spec, NodeSpec(name="bare")])
    found = {one.node: one for one in await site.bmcs.sensors(LOCAL_ADMIN, "n00001,lost,bare")}
    assert any(reading.kind == "temperature" for reading in found["n00001"].readings)
    assert not found["n00001"].trouble
    assert "nobody answers" in found["lost"].trouble
    assert "address" in found["bare"].trouble
    view = await site.bmcs.info(LOCAL_ADMIN, "lost")
    assert not view.reachable
    outcome = await site.bmcs.identify(LOCAL_ADMIN, "n00001,lost,bare", True)
    assert isinstance(outcome, ManyOutcome)
    assert (outcome.done, outcome.failed_count) == ("n00001", 2)


@pytest.mark.parametrize("names", [None, {name: f"Blade-{name[-1]}" for name in NODES_OF_BLADE}])
async def test_a_cap_of_a_node_in_a_blade_reaches_that_node_or_none(site: Site, names: dict[str, str] | None) -> None:
    async with CrayBlade(names=names) as blade, RedfishClient(Credentials("root", "x")) as client:
        site.bmcs._jobs._open = lambda _: RedfishBmc(client, blade.node(1))
        outcome = await site.bmcs.set_limit(LOCAL_ADMIN, "n00001", "", 400)
        assert isinstance(outcome, ManyOutcome)
        if names is None:
            assert (outcome.done, outcome.failed) == ("n00001", ())
            assert [blade.cap(place) for place in range(4)] == [None, 400, None, None]
        else:
            assert outcome.done == ""
            assert "which chassis is that of Systems/Node1" in outcome.failed[0].reason
            assert blade.changed == set()


async def test_a_scope_limits_what_is_seen_and_changed(site: Site) -> None:
    service = site.service
    await service.put_group(LOCAL_ADMIN, "mine", GroupSpec(members="n00001"), None)
    mine = Principal(name="ann", role="operator", scope=("mine",))
    with pytest.raises(Denied):
        await site.bmcs.identify(mine, "n[00001-00002]", True)
    with pytest.raises(NotFound):
        await site.bmcs.info(mine, "n00002")
    with pytest.raises(NotFound):
        await site.bmcs.sensors(mine, "n00002")
    assert (await site.bmcs.info(mine, "n00001")).reachable


async def test_nonsense_is_refused_before_anything_is_asked(site: Site) -> None:
    for call in (
        site.bmcs.set_limit(LOCAL_ADMIN, "n00001", "", -5),
        site.bmcs.stage_bios(LOCAL_ADMIN, "n00001", {}),
        site.bmcs.set_settings(LOCAL_ADMIN, "n00001", ServiceSettingsChange()),
        site.bmcs.boot(LOCAL_ADMIN, "n00001", Boot(target="pxe", uri="https://192.0.2.1/")),
    ):
        with pytest.raises(BadRequest):
            await call


async def test_every_change_is_in_the_audit_log(site: Site) -> None:
    await site.bmcs.identify(LOCAL_ADMIN, "n[00001-00003]", True)
    last = (await site.service.ledger.latest(1))[0]
    assert (last.author, last.action, last.target) == ("local-admin", "bmc.identify", "n[00001-00003]")


@pytest.mark.slow
async def test_very_many_nodes_are_a_job(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_bmcs, "AT_ONCE", 3)
    accepted = await site.bmcs.identify(LOCAL_ADMIN, "n[00001-00006]", True)
    assert isinstance(accepted, Operation)
    job = await site.ended(accepted.id)
    assert (job.state, job.done, job.failed) == ("done", 6, 0)


async def test_a_cycle_that_was_under_way_at_a_crash_is_not_sent_again(site: Site) -> None:
    work = site.bmcs._jobs._many
    registry = site.service.registry
    uids = registry.uids[registry.select("n[00001-00002]", site.service.view)].tolist()
    arguments = {
        "uids": [[min(uids), max(uids)]],
        "order": msgspec.to_builtins(BmcOrder(what="power", action="cycle", force=True)),
    }
    first = await anext(work(arguments, None))
    assert first.durable
    assert site.bmc("n00001").resets == []
    after = [step async for step in work(arguments, first.position)]
    assert site.bmc("n00001").resets == []
    assert [node for step in after for node, _ in step.failed] == ["n00001", "n00002"]
    assert "restarted" in after[0].failed[0][1]


@pytest.mark.slow
async def test_firmware_is_updated_a_few_at_a_time_and_stops_when_it_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.hardware.bmc.operations._POLL", 0.01)
    for name in ("n00003", "n00004"):
        site.bmc(name).updates.fail_next = True
    request = FirmwareUpdate(select="n[00001-00006]", uri="https://192.0.2.1/bios-9.9.bin", at_once=2)
    job = await site.ended((await site.bmcs.update_firmware(LOCAL_ADMIN, request)).id)
    assert job.state == "failed"
    assert (job.done, job.failed) == (2, 2)
    assert any("stopped" in one.detail for one in job.errors)
    assert not site.bmc("n00005").updates.tasks


@pytest.mark.slow
async def test_the_address_of_an_image_is_sealed_while_its_job_is_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.hardware.bmc.operations._POLL", 0.01)
    request = FirmwareUpdate(select="n00001", uri="https://192.0.2.1/bios-9.9.bin?sig=s3cret")
    assert (await site.ended((await site.bmcs.update_firmware(LOCAL_ADMIN, request)).id)).state == "done"
    stored = (await site.service.controller.store.range("")).entries
    assert any(entry.key.startswith("job/") for entry in stored)
    assert not [entry.key for entry in stored if b"s3cret" in entry.value]
    told = [entry.detail for entry in await site.service.ledger.latest() if entry.action == "firmware.update"]
    assert told == [{"uri": "https://192.0.2.1/bios-9.9.bin?[hidden]"}]


@pytest.mark.slow
async def test_what_very_many_controllers_are_told_is_sealed_while_its_job_is_stored(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.hardware.bmc.service.AT_ONCE", 1)
    view = await site.bmcs.boot(LOCAL_ADMIN, "n[00001-00003]", Boot(target="http", uri="https://192.0.2.1/a?k=s3cret"))
    assert not isinstance(view, ManyOutcome)
    assert (await site.ended(view.id)).done == 3
    stored = (await site.service.controller.store.range("")).entries
    assert not [entry.key for entry in stored if b"s3cret" in entry.value]
    shown = (await site.bmcs.info(LOCAL_ADMIN, "n00001")).boot
    assert shown is not None and shown.uri == "https://192.0.2.1/a?[hidden]"


async def test_addresses_with_a_login_are_refused_before_anything_is_stored(site: Site) -> None:
    bad = "https://alice:pw@192.0.2.1/a.iso"
    before = await site.service.controller.store.revision()
    with pytest.raises(BadRequest, match="uri: a user name or password in an address would be kept and shown"):
        await site.bmcs.update_firmware(LOCAL_ADMIN, FirmwareUpdate(select="n00001", uri=bad))
    with pytest.raises(BadRequest, match="uri"):
        await site.bmcs.boot(LOCAL_ADMIN, "n00001", Boot(target="http", uri=bad))
    with pytest.raises(BadRequest, match="image"):
        await site.bmcs.insert_media(LOCAL_ADMIN, "n00001", bad)
    audit = (await site.service.controller.store.range("audit/0")).entries
    assert not [entry for entry in audit if entry.modified > before]
