"""Every read of a BMC over recorded services that others made: what is not there is said, nothing crashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strata.core.errors import NotOffered, StrataError
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from support.mockup_server import Mockup, shared_mockups

READS = ("identity", "power", "boot", "media", "readings", "log", "power_limits", "bios", "firmware", "settings")
OWN = {
    "": {
        "@odata.id": "/redfish/v1/",
        "RedfishVersion": "1.0.0",
        "Systems": {"@odata.id": "/redfish/v1/Systems"},
        "Vendor": 7,
    },
    "Systems": {"Members": [{"@odata.id": "/redfish/v1/Systems/A"}]},
    "Systems/A": {
        "@odata.id": "/redfish/v1/Systems/A",
        "SerialNumber": None,
        "Manufacturer": ["a", "list"],
        "PowerState": "Off",
        "Boot": "soon",
        "Links": {
            "Chassis": [{"@odata.id": "/redfish/v1/Chassis/A"}, 5],
            "ManagedBy": [{"@odata.id": "/redfish/v1/M"}],
        },
        "LogServices": {"@odata.id": "/redfish/v1/nowhere"},
        "Bios": {"@odata.id": "http://elsewhere.invalid/redfish/v1/Bios"},
    },
    "Chassis/A": {
        "Name": "A",
        "Thermal": {"@odata.id": "/redfish/v1/Chassis/A/Thermal"},
        "Power": {"@odata.id": "/redfish/v1/Chassis/A/Power"},
        "Sensors": {"@odata.id": "/redfish/v1/Chassis/A/Sensors"},
    },
    "Chassis/A/Thermal": {
        "Temperatures": [{"Name": "CPU", "ReadingCelsius": "41"}, {"Name": "Inlet", "ReadingCelsius": 9e99}, None],
        "Fans": {"not": "a list"},
    },
    "Chassis/A/Power": {"PowerControl": [{"PowerConsumedWatts": "a lot", "PowerLimit": {"LimitInWatts": "400"}}]},
}


@pytest.fixture(params=["own", *[path.name for path in shared_mockups()]])
def directory(request, tmp_path) -> Path:
    """A small mockup of ours that is wrong in many ways, and the DMTF's where they are."""
    if request.param != "own":
        return next(path for path in shared_mockups() if path.name == request.param)
    for path, body in OWN.items():
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
        (tmp_path / path / "index.json").write_text(json.dumps(body))
    return tmp_path


async def addresses(client: RedfishClient, address: str) -> list[str]:
    """The BMC's own address, and one for each system, chassis and outlet that it has."""
    found = [address]
    for collection in ("Systems", "Chassis", "PowerEquipment/RackPDUs/1/Outlets", "PowerEquipment/PowerShelves"):
        try:
            body = await client.tree(address, f"/redfish/v1/{collection}")
        except NotOffered:
            continue
        found += [address + member["@odata.id"] for member in body["Members"][:3]]
    return found


@pytest.mark.slow
async def test_every_read_of_every_resource_gives_an_answer_or_says_why_not(directory):
    answered = set()
    async with Mockup(directory) as mockup, RedfishClient(Credentials("root", "mockup")) as client:
        for address in await addresses(client, mockup.address):
            controller = RedfishBmc(client, address)
            for name in READS:
                try:
                    await getattr(controller, name)()
                    answered.add(name)
                except StrataError as wrong:
                    assert str(wrong)
            with pytest.raises(StrataError):
                async for _ in controller.console():
                    break
    assert "power" in answered and "identity" in answered


async def test_a_mockup_of_a_rack_server_is_understood(tmp_path):
    """The DMTF's where it is here; else ours, of which less is to be had."""
    shared = [path for path in shared_mockups() if path.name == "public-rackmount1"]
    if not shared:
        for path, body in OWN.items():
            (tmp_path / path).mkdir(parents=True, exist_ok=True)
            (tmp_path / path / "index.json").write_text(json.dumps(body))
    async with Mockup((shared or [tmp_path])[0]) as mockup, RedfishClient(Credentials("root", "mockup")) as client:
        controller = RedfishBmc(client, mockup.address)
        assert await controller.power() == ("on" if shared else "off")
        readings = {reading.name: reading for reading in await controller.readings()}
        if not shared:
            assert readings["CPU"].value == 41 and readings["Inlet"].value is None
            assert readings["Inlet"].doubt.startswith("absurd")
            assert [limit.watts for limit in await controller.power_limits()] == [400]
            return
        identity = await controller.identity()
        assert identity.vendor == "Contoso" and identity.serial == "437XR1138R2"
        assert any(r.kind == "temperature" and r.value is not None for r in readings.values())
        assert any(r.kind == "power" and r.value is not None for r in readings.values())
        assert (await controller.bios()).current
        assert [entry.id for entry in await controller.log()]
        assert {firmware.name for firmware in await controller.firmware()}
        assert await controller.power_limits()
