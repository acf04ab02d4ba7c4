"""An IPMI BMC, against pyghmi's BMC in a process of its own; ipmitool looks at the same BMC."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import numpy as np
import pytest

from strata.core.driver import Batch
from strata.core.errors import BadRequest, DeviceError, NotFound, NotOffered, OutcomeUnknown, Unavailable
from strata.core.state import Outcome
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.dialects import dialects
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.bmc.ipmi.bmc import IpmiBmc
from strata.hardware.bmc.ipmi.client import IpmiClient
from strata.hardware.bmc.ipmi.inventory import inventory
from strata.hardware.bmc.ipmi.records import FruLocator
from strata.hardware.bmc.ipmi.session import IpmiSettings
from strata.hardware.bmc.ipmi.store import IpmiStore, own
from strata.hardware.bmc.protocol import Bmc, Boot, PowerAction
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.model import LAYER
from strata.power.telemetry.bmcs import NodeSource
from strata.power.telemetry.collector import Nodes
from support.fake_ipmi_bmc import PASSWORD, USER, FakeIpmiBmc, ipmitool

pytestmark = pytest.mark.slow
POWER_ON = next(mutation for mutation in LAYER.mutations if mutation.name == "power-on")
PATIENT = IpmiSettings(timeout=3.0, login=60.0)
QUICK = IpmiSettings(timeout=1.0, login=1.0)


@pytest.fixture
def bmc() -> Iterator[FakeIpmiBmc]:
    """A BMC that behaves."""
    found = FakeIpmiBmc(suites=[3, 17])
    yield found
    found.close()


@pytest.fixture
async def client() -> AsyncIterator[IpmiClient]:
    """A client that waits long for those that answer: how busy this machine is must not matter."""
    found = IpmiClient(lambda _: Credentials(USER, PASSWORD), settings=PATIENT)
    yield found
    await found.close()


@pytest.fixture
def controller(bmc: FakeIpmiBmc, client: IpmiClient) -> IpmiBmc:
    """That BMC, through that client."""
    return IpmiBmc(client, IpmiStore(client), bmc.address)


async def refused(bmc: FakeIpmiBmc, password: str = PASSWORD) -> str:
    """Why a login is."""
    client = IpmiClient(lambda _: Credentials(USER, password), settings=PATIENT)
    try:
        with pytest.raises(DeviceError) as wrong:
            await client.ask(bmc.address, 0x06, 0x01)
    finally:
        await client.close()
    return str(wrong.value)


def test_it_is_a_bmc(controller: IpmiBmc) -> None:
    kept: Bmc = controller
    assert kept.address.startswith("ipmi://")


@pytest.mark.parametrize("suite", [3, 17])
async def test_ipmitool_and_strata_see_the_same_power(client: IpmiClient, suite: int) -> None:
    bmc = FakeIpmiBmc(suites=[suite])
    controller = IpmiBmc(client, IpmiStore(client), bmc.address)
    try:
        await controller.set_power("on")
        assert await controller.power() == "on"
        assert ipmitool(bmc, "power", "status", suite=suite) == "Chassis Power is on"
        assert "Down/Off" in ipmitool(bmc, "power", "off", suite=suite)
        assert await controller.power() == "off"
    finally:
        bmc.close()


async def test_every_power_action_is_the_right_control(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    actions: list[PowerAction] = ["on", "graceful-off", "on", "cycle", "nmi", "off"]
    for action in actions:
        await controller.set_power(action)
    assert bmc.state["controls"] == [1, 5, 1, 2, 4, 0]
    with pytest.raises(NotOffered, match="graceful-restart"):
        await controller.set_power("graceful-restart")


async def test_a_bmc_without_a_cycle_is_reset(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    bmc.tell(refuses=[2, 4])
    await controller.set_power("cycle")
    assert bmc.state["controls"] == [2, 3]
    with pytest.raises(NotOffered):
        await controller.set_power("nmi")


async def test_a_lost_reply_leaves_the_outcome_open_and_the_command_is_sent_once(
    controller: IpmiBmc, bmc: FakeIpmiBmc
) -> None:
    assert await controller.power() == "off"
    bmc.tell(loses=[0x02])
    quick = IpmiClient(lambda _: Credentials(USER, PASSWORD), settings=IpmiSettings(timeout=1.0, login=60.0))
    try:
        with pytest.raises(OutcomeUnknown, match="look at the node"):
            await IpmiBmc(quick, IpmiStore(quick), bmc.address).set_power("on")
    finally:
        await quick.close()
    bmc.tell(loses=[])
    assert await controller.power() == "on"
    assert bmc.state["controls"] == [1]


async def test_what_comes_too_late_is_not_begun(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    with pytest.raises(Unavailable):
        await controller.set_power("on", begin_before=time.monotonic() - 1)
    assert bmc.state["controls"] == []


async def test_a_bmc_that_restarted_is_logged_in_to_again(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    assert await controller.power() == "off"
    bmc.tell(forget=True)
    assert await controller.power() == "off"


async def test_only_suite_0_is_refused(bmc: FakeIpmiBmc) -> None:
    bmc.tell(suites=[0])
    assert "only 0" in await refused(bmc)
    bmc.tell(suites=[])
    assert "no cipher suite that authenticates" in await refused(bmc)


async def test_a_bmc_that_talks_us_down_to_no_authentication_is_refused(bmc: FakeIpmiBmc) -> None:
    bmc.tell(lies=True)
    assert "another cipher suite" in await refused(bmc)
    assert bmc.state["sessions"] == 0


async def test_a_wrong_password_is_tried_twice_and_never_shown(bmc: FakeIpmiBmc) -> None:
    client = IpmiClient(lambda _: Credentials(USER, "wr0ng-canary"), settings=PATIENT)
    try:
        for _ in range(2):
            with pytest.raises(DeviceError, match="the password is wrong") as wrong:
                await client.ask(bmc.address, 0x06, 0x01)
            assert "canary" not in repr(wrong.value) + str(wrong.value)
        with pytest.raises(DeviceError, match="not tried"):
            await client.ask(bmc.address, 0x06, 0x01)
        client.forget(bmc.address)
        with pytest.raises(DeviceError, match="the password is wrong"):
            await client.ask(bmc.address, 0x06, 0x01)
    finally:
        await client.close()


async def test_an_unknown_user_is_named_as_such(bmc: FakeIpmiBmc, client: IpmiClient) -> None:
    stranger = IpmiClient(lambda _: Credentials("nobody", PASSWORD), settings=PATIENT)
    try:
        with pytest.raises(DeviceError, match="does not know the user"):
            await stranger.ask(bmc.address, 0x06, 0x01)
    finally:
        await stranger.close()


async def test_a_dead_bmc_holds_nobody_up(controller: IpmiBmc, client: IpmiClient) -> None:
    dead = FakeIpmiBmc(silent=True)
    try:
        waits = asyncio.create_task(IpmiBmc(client, IpmiStore(client), dead.address).power())
        for _ in range(20):
            await controller.power()
        assert not waits.done()
        waits.cancel()
        await asyncio.wait([waits])
        quick = IpmiClient(lambda _: Credentials(USER, PASSWORD), settings=QUICK)
        with pytest.raises(DeviceError, match="no answer to a login in 1 s"):
            await quick.ask(dead.address, 0x06, 0x01)
        await quick.close()
    finally:
        dead.close()


async def test_a_fleet_of_dead_bmcs_holds_nobody_up_either(bmc: FakeIpmiBmc) -> None:
    settings = IpmiSettings(at_once=4, silent_at_once=2, patience=0.01, login=2.0)
    client = IpmiClient(lambda _: Credentials(USER, PASSWORD), settings=settings)
    dead = [f"ipmi://127.0.0.{host}:9" for host in range(1, 61)]
    try:
        for _ in range(2):  # the second time they are known to be silent
            waits = [asyncio.create_task(client.ask(address, 0x06, 0x01)) for address in dead]
            await asyncio.sleep(0)
            await client.ask(bmc.address, 0x06, 0x01)
            assert not any(wait.done() for wait in waits)
            assert all(isinstance(wrong, DeviceError) for wrong in await asyncio.gather(*waits, return_exceptions=True))
        assert (client._pace._slots._value, client._silent._slots._value) == (4, 2)
    finally:
        await client.close()


async def test_no_session_is_left_open(bmc: FakeIpmiBmc) -> None:
    client = IpmiClient(lambda _: Credentials(USER, PASSWORD), settings=PATIENT)
    controller = IpmiBmc(client, IpmiStore(client), bmc.address)
    await asyncio.gather(*(controller.power() for _ in range(50)))
    assert bmc.state["sessions"] == 1
    await client.close()
    assert bmc.state["sessions"] == 0


async def test_an_idle_session_is_given_back(bmc: FakeIpmiBmc) -> None:
    client = IpmiClient(lambda _: Credentials(USER, PASSWORD), settings=IpmiSettings(idle=0.05))
    try:
        await client.ask(bmc.address, 0x06, 0x01)
        await asyncio.to_thread(bmc.until, sessions=0)
        with pytest.raises(NotOffered):  # and after a refusal, too
            await client.ask(bmc.address, 0x30, 0x01)
        await asyncio.to_thread(bmc.until, sessions=0)
    finally:
        await client.close()


async def test_boot_overrides_are_set_and_read_back(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    for wanted in (
        Boot(target="pxe", uefi=True),
        Boot(target="disk", once=False, uefi=False),
        Boot(target="media", uefi=False),
        Boot(target="setup", uefi=True),
    ):
        await controller.set_boot(wanted)
        assert await controller.boot() == wanted
    assert "Force Boot into BIOS Setup" in ipmitool(bmc, "chassis", "bootparam", "get", "5")
    await controller.set_boot(Boot(target="none"))
    assert (await controller.boot()).target == "none"
    with pytest.raises(NotOffered, match="http"):
        await controller.set_boot(Boot(target="http", uri="http://x/y"))


async def test_the_light_the_sensors_and_the_power_limit(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    await controller.identify(True)
    assert bmc.state["light"]
    await controller.identify(False)
    assert not bmc.state["light"]
    readings = {reading.name: reading for reading in await controller.readings()}
    assert (readings["CPU1 Temp"].value, readings["CPU1 Temp"].high) == (47.0, 95.0)
    assert (readings["FAN1"].value, readings["FAN1"].unit) == (8300.0, "RPM")
    assert readings["DCMI power"].value == 345.0
    listed = ipmitool(bmc, "sensor")
    assert "47.000" in listed and "8300.000" in listed
    await controller.set_power_limit("dcmi", 300)
    assert [limit.watts for limit in await controller.power_limits()] == [300.0]
    assert "300 Watts" in ipmitool(bmc, "dcmi", "power", "get_limit")
    await controller.set_power_limit("", None)
    assert [limit.watts for limit in await controller.power_limits()] == [None]
    with pytest.raises(BadRequest):
        await controller.set_power_limit("dcmi", 1e9)
    with pytest.raises(NotFound):
        await controller.set_power_limit("cpu7", 100)


async def test_sensors_and_frus_of_a_neighbour_in_the_chassis_are_not_read_as_the_nodes(
    client: IpmiClient, bmc: FakeIpmiBmc
) -> None:
    bmc.tell(neighbours=True)
    store = IpmiStore(client)
    controller = IpmiBmc(client, store, bmc.address)
    assert [reading.name for reading in await controller.readings()] == ["CPU1 Temp", "FAN1", "12V", "DCMI power"]
    assert [part.name for part in (await inventory(controller, store)).components if part.kind == "memory"] == [
        "DIMM A1"
    ]


def test_a_bmc_that_goes_by_another_address_keeps_its_sensors() -> None:
    itself = [FruLocator(1, "board", 7, 0x72), FruLocator(2, "DIMM", 32, 0x72)]
    assert own(itself) == tuple(itself)
    assert own([FruLocator(1, "board", 7, 0), FruLocator(2, "DIMM", 32, 0x72)]) == (FruLocator(1, "board", 7, 0),)


async def test_records_come_in_pieces_where_they_must(client: IpmiClient, bmc: FakeIpmiBmc) -> None:
    bmc.tell(pieces=True)
    store = IpmiStore(client)
    assert [getattr(found, "name", "") for found in await store.sensors(bmc.address)] == [
        "CPU1 Temp", "FAN1", "12V", "DIMM A1",
    ]  # fmt: skip


async def test_the_event_log_is_read_on_from_where_one_was(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    now = int(time.time()) - 60

    def record(number: int, stamp: int, kind: int, event: int, data: bytes) -> str:
        head = struct.pack("<HBIHB", number, 2, stamp, 0x20, 4)
        return (head + bytes((kind, 1, event)) + data).hex()

    hot = record(1, now, 0x01, 0x01, b"\x09\x60\x5f")  # upper critical, going high
    ecc = record(2, now + 1, 0x0C, 0x6F, b"\x01\x00\x00")  # uncorrectable memory error
    early = record(3, 100, 0x01, 0x81, b"\x09\x00\x00")
    bmc.tell(log=[hot, ecc])
    first = list(await controller.log())
    assert [entry.severity for entry in first] == ["critical", "critical"]
    assert first[0].sensor == "CPU1 Temp" and first[0].time == now
    assert "ncorrectable" in first[1].message
    bmc.tell(log=[hot, ecc, early])
    more = list(await controller.log(after=first[-1].id))
    assert len(more) == 1 and more[0].time is None and more[0].message.endswith(": over")
    assert len(await controller.log(limit=2)) == 2
    await controller.clear_log()
    assert await controller.log(after=first[-1].id) == []


async def test_the_password_is_changed_for_the_right_user(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    await controller.set_password(USER, "sixteen-or-fewer")
    assert bmc.state["passwords"] == {"2": "sixteen-or-fewer"}
    await controller.set_password("other", "between-17-and-20ch")
    assert bmc.state["passwords"]["3"] == "between-17-and-20ch"
    with pytest.raises(BadRequest) as wrong:
        await controller.set_password(USER, "x" * 21)
    assert "xxx" not in str(wrong.value)
    with pytest.raises(NotFound):
        await controller.set_password("stranger", "x")


async def test_the_inventory_names_the_machine_and_its_parts(controller: IpmiBmc, client: IpmiClient) -> None:
    found = await inventory(controller, IpmiStore(client))
    assert (found.identity.vendor, found.identity.serial, found.machines[0].uuid) == (
        "Acme", "SN0042", "12345678-1234-5678-1234-567812345678",
    )  # fmt: skip
    assert [(part.kind, part.serial) for part in found.components] == [
        ("manager", ""), ("system", "SN0042"), ("memory", "MEM77"),
    ]  # fmt: skip
    assert found.trouble == ()


async def test_what_ipmi_does_not_have_is_not_offered(controller: IpmiBmc) -> None:
    for ask in (controller.bios, controller.media, controller.settings, controller.update_firmware):
        with pytest.raises(NotOffered, match="Redfish"):
            await ask()
    assert [item.version for item in await controller.firmware()] == ["1.00"]


async def test_the_console_prints_and_is_given_back(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    heard = b""
    async with aclosing(controller.console()) as console:  # type: ignore[type-var]
        async with asyncio.timeout(60):
            assert await anext(console) == b""
            assert bmc.state["sol"]
            saying = asyncio.create_task(asyncio.to_thread(bmc.tell, say="Linux version 6.1\r\n" * 20))
            while len(heard) < 20 * 19:
                heard += await anext(console)
            await saying
        assert await controller.power() == "off"
    assert heard == b"Linux version 6.1\r\n" * 20
    assert not bmc.state["sol"]


async def test_what_is_typed_at_a_console_reaches_the_node_in_order(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    text = b"root\r" + b"".join(b"echo %d\r" % number for number in range(40))
    async with aclosing(controller.console(keys)) as console, asyncio.timeout(60):  # type: ignore[type-var]
        assert await anext(console) == b""
        for start in range(0, len(text), 100):
            keys.put_nowait(text[start : start + 100])
        while True:
            await asyncio.to_thread(bmc.tell)
            if len(bmc.state["typed"]) >= len(text):
                break
            await asyncio.sleep(0.02)
    assert bmc.state["typed"] == text.decode()


async def test_a_console_that_somebody_else_has_is_left_to_them(controller: IpmiBmc, bmc: FakeIpmiBmc) -> None:
    async with aclosing(controller.console()) as first:  # type: ignore[type-var]
        assert await anext(first) == b""
        with pytest.raises(DeviceError, match="somebody else"):
            await anext(controller.console())
    bmc.tell(console=False)
    with pytest.raises(DeviceError, match="switched off"):
        await anext(controller.console())


@pytest.mark.parametrize("address", ["http://x", "ipmi://", "ipmi://u:p@h", "ipmi://h:99999"])
async def test_an_address_that_is_none_says_so(client: IpmiClient, address: str) -> None:
    with pytest.raises(DeviceError, match="not an ipmi address"):
        await client.ask(address, 0x06, 0x01)


SENSOR_RECORDS = [[0x0A, 0x20], [0x0A, 0x22], [0x0A, 0x23]]
DRAWN = [[0x2C, 0x02]]


async def test_one_without_sensor_records_tells_what_it_draws_all_the_same(
    controller: IpmiBmc, bmc: FakeIpmiBmc
) -> None:
    bmc.tell(lacks=SENSOR_RECORDS)
    assert [(reading.name, reading.value) for reading in await controller.readings()] == [("DCMI power", 345.0)]
    bmc.tell(lacks=SENSOR_RECORDS + DRAWN)
    with pytest.raises(NotOffered, match="does not know the command"):
        await controller.readings()


async def test_one_that_knows_no_sensors_is_not_silent_and_its_power_is_known(
    client: IpmiClient, bmc: FakeIpmiBmc
) -> None:
    bmc.tell(lacks=[*SENSOR_RECORDS, *DRAWN, [0x0A, 0x43], [0x0A, 0x48]])
    store = IpmiStore(client)
    speaks = dialects(lambda _: Credentials(USER, PASSWORD))["ipmi"]
    dialect = speaks._replace(
        open=lambda address: IpmiBmc(client, store, address), forget=client.forget, close=client.close
    )
    redfish = RedfishClient(Credentials(USER, PASSWORD))
    controllers = Bmcs(redfish, {"ipmi": dialect})
    driver, source = BmcDriver(controllers), NodeSource(controllers)
    there = Nodes(uids=np.array([1]), names=["n1"], bmcs=[bmc.address])
    batch = Batch(names=["n1"], uids=np.array([1]), bmcs=[bmc.address], epochs=np.ones(1, np.int64), generation=1)
    for _ in range(3):
        assert await source.look(there, 30.0) == []
        assert controllers.silence(bmc.address) is None
        assert (await driver.observe(["power"], batch))["power"].values() == ["off"]
    assert (await driver.act(POWER_ON, batch)).codes.tolist() == [Outcome.DONE]
    assert bmc.state["power"] == "on"
    await driver.close()
    await source.close()
    await redfish.close()


async def test_a_log_is_read_from_the_beginning_after_an_entry_that_is_none_of_its(controller: IpmiBmc) -> None:
    assert await controller.log(after="nonsense") == await controller.log()
