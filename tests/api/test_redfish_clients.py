"""Stock Redfish clients against the real service behind nginx: OpenStack's sushy, DMTF's library and command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redfish
import sushy
import sushy.auth
from redfish_site import CA_VARIABLES, RedfishSite, redfish_site, run

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.hardware.bmc.service import BmcService
from strata.hardware.inventory.service import InventoryService
from strata.virtual.redfish.hardware import CORES, CPUS, DIMM_MIB, DIMMS

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedfishSite]:
    for name in CA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    async with redfish_site(tmp_path, 4) as found:
        yield found


# -- sushy: what Ironic and Metal3 are built on


@pytest.fixture
async def connection(site: RedfishSite) -> AsyncIterator[Any]:
    """A session of sushy. It would log out whenever it is collected, and insist: so it is closed here."""
    auth = sushy.auth.SessionAuth(site.user, site.password)
    yield await asyncio.to_thread(sushy.Sushy, f"{site.url}/redfish/v1", auth=auth, verify=str(site.ca))
    await asyncio.to_thread(auth.close)


async def _system(connection: Any, node: str) -> Any:
    return await asyncio.to_thread(connection.get_system, f"/redfish/v1/Systems/{node}")


async def test_sushy_switches_a_node_on_and_off(site: RedfishSite, connection: Any) -> None:
    node = site.nodes[0]
    for reset, power in ((sushy.ResetType.ON, "on"), (sushy.ResetType.FORCE_OFF, "off")):
        system = await _system(connection, node)
        assert reset in system.get_allowed_reset_system_values()
        await asyncio.to_thread(system.reset_system, reset)
        await site.until_power(node, power)
        await asyncio.to_thread(system.refresh, force=True)
        assert system.power_state == sushy.PowerState(power.capitalize())


async def test_sushy_sets_the_boot_override_and_the_light(site: RedfishSite, connection: Any) -> None:
    system = await _system(connection, site.nodes[1])
    assert sushy.BootSource.PXE in system.get_allowed_system_boot_source_values()
    await asyncio.to_thread(
        system.set_system_boot_options,
        target=sushy.BootSource.UEFI_HTTP,
        enabled=sushy.BootSourceOverrideEnabled.ONCE,
        mode=sushy.BootSourceOverrideMode.UEFI,
        http_boot_uri="http://images/node.efi",
    )
    boot = site.machine.bmcs.bmc(site.nodes[1]).boot
    assert boot["BootSourceOverrideTarget"] == "UefiHttp"
    assert boot["BootSourceOverrideEnabled"] == "Once"
    assert (boot["BootSourceOverrideMode"], boot["HttpBootUri"]) == ("UEFI", "http://images/node.efi")
    await asyncio.to_thread(system.refresh, force=True)
    assert system.boot.target == sushy.BootSource.UEFI_HTTP


async def test_sushy_boots_from_a_virtual_drive(site: RedfishSite, connection: Any) -> None:
    def work() -> bool:
        system = connection.get_system(f"/redfish/v1/Systems/{site.nodes[2]}")
        drive = system.virtual_media.get_members()[0]
        drive.insert_media("http://images/install.iso")
        drive.refresh(force=True)
        return bool(drive.inserted)

    assert await asyncio.to_thread(work)
    drives = (await site.machine.of(BmcService).info(LOCAL_ADMIN, site.nodes[2])).media
    assert "http://images/install.iso" in [drive.image for drive in drives]


async def test_sushy_reads_the_inventory(site: RedfishSite, connection: Any) -> None:
    def read() -> dict[str, Any]:
        systems = connection.get_system_collection()
        system = connection.get_system(systems.members_identities[0])
        return {
            "systems": len(systems.members_identities),
            "cpus": system.processors.summary.count,
            "architecture": system.processors.summary.architecture,
            "memory": system.memory_summary.size_gib,
            "macs": list(system.ethernet_interfaces.summary),
            "drives": sorted(system.storage.drives_sizes_bytes),
            "serial": system.serial_number,
            "bios": system.bios.attributes,
            "chassis": [chassis.uuid or chassis.name for chassis in system.chassis],
            "managers": [manager.manager_type for manager in system.managers],
            "updates": connection.get_update_service().service_enabled,
        }

    found = await asyncio.to_thread(read)
    known = await site.machine.of(InventoryService).of_node(LOCAL_ADMIN, site.nodes[0])
    assert (found["systems"], found["memory"], found["serial"]) == (4, DIMMS * DIMM_MIB // 1024, known.serial)
    assert found["cpus"] == CPUS * CORES * 2  # sushy counts threads
    assert found["architecture"] == sushy.ProcessorArchitecture.X86
    drives = [part.facts["capacity_bytes"] for part in known.components if part.kind == "drive"]
    assert found["drives"] == sorted(drives) != []
    assert len(found["macs"]) == 2
    assert found["bios"]["NumaNodesPerSocket"] == 4
    assert found["managers"] == [sushy.ManagerType.SERVICE, sushy.ManagerType.BMC]


async def test_sushy_stages_firmware_settings(site: RedfishSite, connection: Any) -> None:
    system = await _system(connection, site.nodes[2])
    await asyncio.to_thread(lambda: system.bios.set_attribute("PowerProfile", "Balanced"))
    assert site.machine.bmcs.bmc(site.nodes[2]).staged == {"PowerProfile": "Balanced"}


# -- DMTF's library


async def test_dmtfs_library_logs_in_resets_a_node_and_logs_out(site: RedfishSite) -> None:
    node = site.nodes[0]

    def work() -> list[int]:
        client = redfish.redfish_client(site.url, site.user, site.password, cafile=str(site.ca))
        client.login(auth="session")
        try:
            path = f"/redfish/v1/Systems/{node}"
            first = client.get(path)
            reset = first.dict["Actions"]["#ComputerSystem.Reset"]["target"]
            statuses = [first.status, client.post(reset, body={"ResetType": "On"}).status]
            statuses.append(client.get("/redfish/v1/Systems", args={"$expand": ".($levels=1)"}).status)
            change = {"Boot": {"BootSourceOverrideTarget": "Pxe"}}
            statuses.append(client.patch(path, body=change, headers={"If-Match": 'W/"old"'}).status)
            # The node that was switched on changes meanwhile: a client that is told so reads it again.
            status = 412
            while status == 412:
                tag = client.get(path).getheader("ETag")
                status = client.patch(path, body=change, headers={"If-Match": tag}).status
            return [*statuses, status]
        finally:
            client.logout()

    assert await asyncio.to_thread(work) == [200, 204, 200, 412, 204]
    await site.until_power(node, "on")


# -- DMTF's command line


async def test_dmtfs_power_command_switches_a_node(site: RedfishSite) -> None:
    node = site.nodes[3]
    info = await run(site, "rf_power_reset.py", "--system", node, "--info")
    assert (info.code, "PowerCycle" in info.out) == (0, True), info.out
    done = await run(site, "rf_power_reset.py", "--system", node, "--type", "On")
    assert done.code == 0, done.out
    await site.until_power(node, "on")


@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        ("rf_sys_inventory.py", ("--details",), "Xeon Platinum"),
        ("rf_sensor_list.py", (), "Intake Temp"),
        ("rf_firmware_inventory.py", (), "2.1.0"),
        ("rf_logs.py", ("--system", "n00001", "--log", "SEL"), "power supply 1 failed"),
        ("rf_bios_settings.py", ("--system", "n00001"), "HyperThreading"),
        ("rf_boot_override.py", ("--system", "n00001", "--target", "Pxe"), "Pxe"),
        ("rf_power_equipment.py", ("list",), "pdu-x1000m0"),
        ("rf_manager_config.py", ("--manager", "strata", "getprotocol"), "HTTPS"),
    ],
)
async def test_dmtfs_commands_work(site: RedfishSite, program: str, arguments: tuple[str, ...], said: str) -> None:
    done = await run(site, program, *arguments)
    assert done.code == 0, done.out
    assert said in done.out, done.out


async def test_the_answers_are_json_that_a_shell_can_use(site: RedfishSite) -> None:
    raw = await run(site, "rf_raw_request.py", "--method", "GET", "--request", "/redfish/v1/Systems/n00001")
    assert raw.code == 0, raw.out
    assert '"PowerState"' in raw.out
    assert json.dumps("n00001") in raw.out
