"""Discovery reads every recorded service that there is: a small one of our own, and the DMTF's where they are here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.discovery.crawl import crawl
from strata.hardware.inventory.records import Found
from support.mockup_server import PASSWORD, USER, Mockup, shared_mockups

ROOT = "/redfish/v1"


def resource(path: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"@odata.id": path, "@odata.type": f"#{kind}.v1_0_0.{kind}", "Id": path.rpartition("/")[2], **more}


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def collection(path: str, kind: str, *members: str) -> dict[str, Any]:
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Members": [link(m) for m in members],
    }


def own() -> list[dict[str, Any]]:
    """A blade with a GPU, a drive that is nowhere below its storage, an LLDP neighbour, and a part unknown to us."""
    system, chassis = f"{ROOT}/Systems/S", f"{ROOT}/Chassis/C"
    nic = f"{chassis}/NetworkAdapters/N"
    lldp = {"ChassisId": "leaf-3", "PortId": "swp7", "SystemName": "leaf-3.site"}
    return [
        resource(
            ROOT,
            "ServiceRoot",
            UUID="11111111-2222-3333-4444-555555555555",
            Systems=link(f"{ROOT}/Systems"),
            Chassis=link(f"{ROOT}/Chassis"),
            SessionService=link(f"{ROOT}/SessionService"),
        ),
        collection(f"{ROOT}/Systems", "ComputerSystem", system),
        resource(
            system,
            "ComputerSystem",
            Name="blade",
            SerialNumber="S-1",
            Manufacturer="Contoso",
            Processors=link(f"{system}/Processors"),
            Storage=link(f"{system}/Storage"),
            Links={"Chassis": [link(chassis)]},
        ),
        collection(f"{system}/Processors", "Processor", f"{system}/Processors/0", f"{system}/Processors/1"),
        resource(f"{system}/Processors/0", "Processor", ProcessorType="CPU", InstructionSet="ARM-A64", TotalCores=72),
        resource(f"{system}/Processors/1", "Processor", ProcessorType="GPU", SerialNumber="G-1"),
        collection(f"{system}/Storage", "Storage", f"{system}/Storage/0"),
        resource(f"{system}/Storage/0", "Storage", Drives=[link(f"{chassis}/Drives/0")]),
        collection(f"{ROOT}/Chassis", "Chassis", chassis),
        resource(
            chassis,
            "Chassis",
            SerialNumber="C-1",
            NetworkAdapters=link(f"{chassis}/NetworkAdapters"),
            CoolantLoops=link(f"{chassis}/CoolantLoops"),
            Sensors=link(f"{chassis}/Sensors"),
        ),
        resource(f"{chassis}/Drives/0", "Drive", SerialNumber="D-1", CapacityBytes=10**12),
        collection(f"{chassis}/NetworkAdapters", "NetworkAdapter", nic),
        resource(
            nic,
            "NetworkAdapter",
            Ports=link(f"{nic}/Ports"),
            NetworkDeviceFunctions=link(f"{nic}/NetworkDeviceFunctions"),
        ),
        collection(f"{nic}/Ports", "Port", f"{nic}/Ports/1"),
        resource(
            f"{nic}/Ports/1",
            "Port",
            PortId="1",
            LinkStatus="LinkUp",
            CurrentSpeedGbps=200,
            Ethernet={"LLDPReceive": lldp},
        ),
        collection(f"{nic}/NetworkDeviceFunctions", "NetworkDeviceFunction", f"{nic}/NetworkDeviceFunctions/1"),
        resource(
            f"{nic}/NetworkDeviceFunctions/1",
            "NetworkDeviceFunction",
            Ethernet={"PermanentMACAddress": "00-0C-29-9A-98-ED"},
        ),
        collection(f"{chassis}/CoolantLoops", "CoolantLoop", f"{chassis}/CoolantLoops/A"),
        resource(f"{chassis}/CoolantLoops/A", "CoolantLoop", Name="Loop A"),
    ]


@pytest.fixture
def own_mockup(tmp_path: Path) -> Path:
    for body in own():
        place = tmp_path / body["@odata.id"].removeprefix(ROOT).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "index.json").write_text(json.dumps(body))
    return tmp_path


async def crawled(directory: Path) -> tuple[Found, Mockup]:
    async with Mockup(directory, auth=True) as mockup, RedfishClient(Credentials(USER, PASSWORD)) as client:
        return await crawl(client, mockup.address), mockup


def kinds(found: Found) -> Counter[str]:
    return Counter(part.kind for part in found.components)


async def test_everything_that_a_service_tells_is_found(own_mockup: Path) -> None:
    found, _ = await crawled(own_mockup)
    assert kinds(found) == {"system": 1, "processor": 1, "accelerator": 1, "storage": 1, "drive": 1, "chassis": 1,
                            "nic": 1, "other": 1}  # fmt: skip
    parts = {part.kind: part for part in found.components}
    assert parts["drive"].parent == f"{ROOT}/Systems/S/Storage/0"
    assert parts["accelerator"].serial == "G-1"
    assert parts["system"].parent == f"{ROOT}/Chassis/C"
    [machine] = found.machines
    assert (machine.serial, machine.architecture, machine.macs) == ("S-1", "aarch64", ("00:0c:29:9a:98:ed",))
    assert found.trouble == ()


async def test_an_unknown_part_is_kept_by_the_name_that_the_service_has_for_it(own_mockup: Path) -> None:
    found, _ = await crawled(own_mockup)
    [other] = [part for part in found.components if part.kind == "other"]
    assert (other.name, other.shape) == ("Loop A", "CoolantLoop.v1_0_0.CoolantLoop")
    assert other.parent == f"{ROOT}/Chassis/C"


async def test_what_a_port_hears_is_kept(own_mockup: Path) -> None:
    found, _ = await crawled(own_mockup)
    [port] = found.ports
    assert port.neighbour is not None
    assert (port.neighbour.system, port.neighbour.port, port.up, port.speed_gbps) == (
        "leaf-3.site",
        "swp7",
        True,
        200.0,
    )


async def test_sensors_logs_and_sessions_are_not_asked_for(own_mockup: Path) -> None:
    _, mockup = await crawled(own_mockup)
    asked = [what for what in mockup.asked if what.startswith("GET")]
    assert not [what for what in asked if "Sensors" in what or "SessionService" in what]
    assert len(asked) == len(set(asked)) == len(own())


async def test_a_part_that_cannot_be_read_is_trouble_and_the_rest_is_there(own_mockup: Path) -> None:
    (own_mockup / "Systems" / "S" / "Storage" / "0" / "index.json").write_text("<html>")
    found, _ = await crawled(own_mockup)
    assert "storage" not in kinds(found)
    assert kinds(found)["processor"] == 1
    [trouble] = found.trouble
    assert trouble.startswith(f"{ROOT}/Systems/S/Storage/0: ")


SHARED = {
    "public-power-shelf": {"chassis": 1, "pdu": 1, "outlet": 2, "manager": 1, "nic": 1, "other": 8},
    "public-rackmount1": {
        "system": 1, "chassis": 1, "manager": 1, "processor": 1, "accelerator": 1, "memory": 3, "drive": 2,
        "storage": 1, "nic": 6, "power-supply": 1, "fan": 4, "battery": 1, "other": 8,
    },
    "public-sasfabric": {"chassis": 2, "manager": 2, "nic": 2, "switch": 2, "fan": 4, "power-supply": 2},
    "public-smartnic": {
        "system": 2, "chassis": 2, "manager": 1, "processor": 2, "memory": 5, "drive": 3, "storage": 3, "nic": 2,
        "power-supply": 1, "fan": 5, "other": 1,
    },
    "public-telemetry": {
        "system": 1, "chassis": 4, "manager": 1, "processor": 2, "memory": 2, "nic": 1, "power-supply": 8, "fan": 8,
        "other": 1,
    },
    "public-tower": {
        "system": 1, "chassis": 1, "manager": 1, "processor": 8, "accelerator": 2, "memory": 8, "drive": 10,
        "storage": 9, "nic": 4, "pcie-device": 9, "power-supply": 2, "fan": 4, "other": 5,
    },
}  # fmt: skip
"""What is in each of the DMTF's mockups."""


@pytest.mark.slow
@pytest.mark.parametrize("directory", shared_mockups(), ids=lambda path: path.name)
async def test_every_mockup_of_the_dmtf_is_read_whole(directory: Path) -> None:
    found, mockup = await crawled(directory)
    assert found.trouble == ()
    assert kinds(found) == SHARED[directory.name]
    assert all(part.shape for part in found.components if part.kind == "other")
    assert len(mockup.asked) == len(set(mockup.asked)), "something was asked twice"


@pytest.mark.slow
async def test_the_fabric_of_the_dmtf_has_its_ports_or_our_own_mockup_has(own_mockup: Path) -> None:
    shared = {path.name: path for path in shared_mockups()}
    found, _ = await crawled(shared.get("public-sasfabric", own_mockup))
    if "public-sasfabric" in shared:
        assert (found.fabric, len(found.ports)) == ("SAS", 16)
        switches = {part.id for part in found.components if part.kind == "switch"}
        assert {port.owner for port in found.ports} == switches
    else:
        assert len(found.ports) == 1
