"""Discovery of BMCs that somebody else wrote: sushy-tools' emulator and pyghmi's BMC; and of many at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from strata.hardware.bmc.ipmi.bmc import IpmiBmc
from strata.hardware.bmc.ipmi.client import IpmiClient
from strata.hardware.bmc.ipmi.inventory import inventory
from strata.hardware.bmc.ipmi.store import IpmiStore
from strata.hardware.bmc.protocol import Identity
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.discovery.crawl import crawl
from strata.hardware.discovery.sweep import Discovery, DiscoverySettings, Look, tidied
from strata.hardware.inventory.records import Component, Found, Machine
from support.fake_ipmi_bmc import PASSWORD, USER, FakeIpmiBmc
from support.sushy_emulator import sushy_emulator


async def looked(discovery: Discovery, *addresses: str) -> dict[str, Look]:
    return {look.address: look async for look in discovery.look(addresses)}


@pytest.mark.slow
async def test_sushy_tools_is_discovered(tmp_path: Path) -> None:
    async with sushy_emulator(tmp_path) as address, RedfishClient(Credentials("admin", "password")) as client:
        seen = await looked(Discovery({"http": lambda url: crawl(client, url)}), address)
    found = seen[address].found
    assert found is not None, seen[address].why
    kinds = Counter(part.kind for part in found.components)
    assert kinds["system"] == len(found.machines) >= 1
    assert kinds["chassis"] >= 1
    assert kinds["manager"] >= 1
    assert all(machine.uuid for machine in found.machines)
    assert {machine.address.partition("/redfish")[0] for machine in found.machines} == {address}


@pytest.mark.slow
async def test_pyghmis_bmc_is_discovered() -> None:
    bmc = FakeIpmiBmc()
    client = IpmiClient(lambda address: Credentials(USER, PASSWORD))
    store = IpmiStore(client)
    try:
        crawlers = {"ipmi": lambda url: inventory(IpmiBmc(client, store, url), store)}
        seen = await looked(Discovery(crawlers), bmc.address)
        found = seen[bmc.address].found
        assert found is not None, seen[bmc.address].why
        assert found.identity.protocol == "ipmi"
        assert [machine.address for machine in found.machines] == [bmc.address]
        assert {"system", "manager"} <= {part.kind for part in found.components}
    finally:
        await client.close()
        bmc.close()


def test_what_other_protocols_tell_is_cleaned() -> None:
    found = Found(
        address="ipmi://x",
        identity=Identity(protocol="ipmi", vendor="a\x1bb", serial="To be filled by O.E.M."),
        time=1.0,
        machines=(Machine(id="fru/0", address="ipmi://x", serial="0123456789", uuid="0" * 32),),
        components=(Component(id="fru/0", kind="system", name="n" * 1000, serial="None"),),
    )
    clean = tidied(found)
    assert (clean.identity.vendor, clean.identity.serial) == ("a b", "")
    assert (clean.machines[0].serial, clean.machines[0].uuid) == ("", "")
    assert (len(clean.components[0].name), clean.components[0].serial) == (128, "")


async def test_the_slow_give_their_place_up() -> None:
    release = asyncio.Event()

    async def crawler(url: str) -> Found:
        if "slow" in url:
            await release.wait()
        return Found(address=url, identity=Identity(), time=1.0)

    discovery = Discovery({"https": crawler}, settings=DiscoverySettings(at_once=2, patience=0.01))
    addresses = [*(f"https://slow{i}" for i in range(10)), *(f"https://quick{i}" for i in range(10))]
    order = []
    async for look in discovery.look(addresses):
        order.append(look.address)
        if len(order) == 10:
            assert all("quick" in address for address in order)
            release.set()
    assert len(order) == 20


async def test_one_that_takes_for_ever_is_given_up() -> None:
    async def crawler(url: str) -> Found:
        await asyncio.Event().wait()
        raise AssertionError

    discovery = Discovery({"https": crawler}, settings=DiscoverySettings(longest=0.01))
    seen = await looked(discovery, "https://a")
    assert seen["https://a"].why == "not read in 0 s"


async def test_who_looks_no_longer_leaves_no_work_behind() -> None:
    begun = asyncio.Event()

    async def crawler(url: str) -> Found:
        if url.endswith("0"):
            return Found(address=url, identity=Identity(), time=1.0)
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    looks = Discovery({"https": crawler}).look([f"https://{i}" for i in range(5)])
    await anext(looks)
    await begun.wait()
    async with asyncio.timeout(60):
        await looks.aclose()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
