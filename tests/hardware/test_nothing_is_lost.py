"""What a BMC shows is kept and named: compared with what an independent walk of the recorded services counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_crawl_mockups import ROOT, collection, crawled, kinds, link, own, resource
from test_inventory_store import Site, found, part, site

from strata.hardware.bmc.protocol import EMPTY, STATE, Reading
from strata.hardware.bmc.readings import Marked, distinct
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.inventory.changes import changes, with_unread
from strata.hardware.inventory.records import Component, Parts
from strata.store.audit import Ledger
from support.mockup_server import PASSWORD, USER, Mockup, shared_mockups

__all__ = ["site"]

CHASSIS = f"{ROOT}/Chassis/C"
SYSTEM = f"{ROOT}/Systems/S"
FAN, SUPPLY = ("fan", "Fan", "Thermal", "Fans"), ("power-supply", "PowerSupply", "Power", "PowerSupplies")


# -- the independent walk: files and links alone, nothing of the crawler


def linked(directory: Path) -> dict[str, dict[str, Any]]:
    """Every resource that a link from the service root leads to, by path."""
    files = [json.loads(file.read_text()) for file in directory.rglob("index.json")]
    known = {str(body.get("@odata.id", "")).rstrip("/"): body for body in files if isinstance(body, dict)}
    seen: dict[str, dict[str, Any]] = {}
    waiting = [ROOT]
    while waiting:
        path = waiting.pop()
        if path in known and path not in seen:
            seen[path] = known[path]
            waiting += links(known[path])
    return seen


def links(value: Any) -> Iterator[str]:
    """All links in a resource."""
    if isinstance(value, dict):
        if isinstance(target := value.get("@odata.id"), str):
            yield target.rstrip("/")
        for inside in value.values():
            yield from links(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from links(inside)


def there(body: dict[str, Any]) -> bool:
    return bool(body.get("Status", {}).get("State") != "Absent")


def counted(directory: Path, newer: str, older: str, name: str) -> int:
    """Fans or supplies of every chassis: those that are resources, or where it has none of these, those in the
    older resource."""
    total, resources = 0, linked(directory)

    def typed(body: dict[str, Any], kind: str) -> bool:
        return str(body.get("@odata.type", "")).startswith(f"#{kind}.")

    for chassis in (path for path, body in resources.items() if typed(body, "Chassis")):
        inside = [body for path, body in resources.items() if path.startswith(f"{chassis}/")]
        modern = sum(typed(body, newer) and there(body) for body in inside)
        classic = sum(there(item) for body in inside if typed(body, older) for item in body.get(name, ()))
        total += modern or classic
    return total


def write(directory: Path, *bodies: dict[str, Any]) -> Path:
    for body in (*own(), *bodies):
        place = directory / body["@odata.id"].removeprefix(ROOT).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "index.json").write_text(json.dumps(body))
    return directory


def chassis(**more: Any) -> dict[str, Any]:
    return resource(CHASSIS, "Chassis", SerialNumber="C-1", Links={"ComputerSystems": [link(SYSTEM)]}, **more)


def supply(number: int, health: str = "OK", state: str = "Enabled", **more: Any) -> dict[str, Any]:
    """As several makers write it: all supplies have one name."""
    return {
        "@odata.id": f"{CHASSIS}/Power#/PowerSupplies/{number}",
        "MemberId": str(number),
        "Name": "Power Supply",
        "Status": {"State": state, "Health": health},
        "SerialNumber": f"PS-{number}",
        "PowerCapacityWatts": 800,
        "PowerInputWatts": 100 + number,
        **more,
    }


def classic(*supplies: dict[str, Any], fans: int = 2) -> list[dict[str, Any]]:
    """A chassis of the older kind."""
    cooled = [{"MemberId": str(i), "Name": "Fan", "Reading": 4000 + i, "Status": {"Health": "OK"}} for i in range(fans)]
    return [
        chassis(Power=link(f"{CHASSIS}/Power"), Thermal=link(f"{CHASSIS}/Thermal")),
        resource(f"{CHASSIS}/Power", "Power", PowerSupplies=list(supplies)),
        resource(f"{CHASSIS}/Thermal", "Thermal", Fans=cooled),
    ]


@pytest.fixture
def classic_mockup(tmp_path: Path) -> Path:
    return write(tmp_path, *classic(*(supply(i) for i in range(4))))


# -- inventory


@pytest.mark.parametrize("what", [FAN, SUPPLY], ids=lambda what: what[0])
async def test_fans_and_supplies_that_older_resources_list_are_parts(classic_mockup: Path, what: Any) -> None:
    kind, newer, older, name = what
    found, _ = await crawled(classic_mockup)
    assert kinds(found)[kind] == counted(classic_mockup, newer, older, name) > 0
    assert {part.parent for part in found.components if part.kind == kind} == {CHASSIS}


@pytest.mark.slow
@pytest.mark.parametrize("what", [FAN, SUPPLY], ids=lambda what: what[0])
async def test_every_fan_and_supply_of_every_mockup_is_in_the_inventory(what: Any, classic_mockup: Path) -> None:
    kind, newer, older, name = what
    for directory in (classic_mockup, *shared_mockups()):
        found, _ = await crawled(directory)
        assert kinds(found)[kind] == counted(directory, newer, older, name), directory.name


@pytest.mark.slow
async def test_every_port_of_every_mockup_is_in_the_inventory(classic_mockup: Path) -> None:
    for directory in (classic_mockup, *shared_mockups()):
        found, _ = await crawled(directory)
        shown = [body for body in linked(directory).values() if str(body.get("@odata.type")).startswith("#Port.")]
        assert len(found.ports) == sum(map(there, shown)), directory.name


async def test_the_serial_and_capacity_of_a_listed_supply_are_kept(classic_mockup: Path) -> None:
    found, _ = await crawled(classic_mockup)
    supplies = [part for part in found.components if part.kind == "power-supply"]
    assert [part.serial for part in supplies] == ["PS-0", "PS-1", "PS-2", "PS-3"]
    assert {part.facts["capacity_watts"] for part in supplies} == {800}


async def test_a_failed_supply_is_seen_in_the_inventory_and_an_empty_bay_is_no_part(tmp_path: Path) -> None:
    found, _ = await crawled(
        write(tmp_path, *classic(supply(0), supply(1, "Critical"), supply(2, "Warning", "Absent")))
    )
    supplies = [part for part in found.components if part.kind == "power-supply"]
    assert [(part.serial, part.health) for part in supplies] == [("PS-0", "ok"), ("PS-1", "critical")]


async def test_the_older_resource_is_read_where_the_newer_one_tells_of_no_supplies(tmp_path: Path) -> None:
    bodies = classic(supply(0), supply(1))
    bodies[0] = chassis(
        Power=link(f"{CHASSIS}/Power"),
        PowerSubsystem=link(f"{CHASSIS}/PowerSubsystem"),
        Thermal=link(f"{CHASSIS}/Thermal"),
        ThermalSubsystem=link(f"{CHASSIS}/ThermalSubsystem"),
    )
    newer = [
        resource(f"{CHASSIS}/PowerSubsystem", "PowerSubsystem"),
        resource(f"{CHASSIS}/ThermalSubsystem", "ThermalSubsystem", Fans=link(f"{CHASSIS}/ThermalSubsystem/Fans")),
        collection(f"{CHASSIS}/ThermalSubsystem/Fans", "Fan", f"{CHASSIS}/ThermalSubsystem/Fans/A"),
        resource(f"{CHASSIS}/ThermalSubsystem/Fans/A", "Fan", Name="A"),
    ]
    found, mockup = await crawled(write(tmp_path, *bodies, *newer))
    assert kinds(found)["power-supply"] == 2
    assert [part.name for part in found.components if part.kind == "fan"] == ["A"], "each part once"
    assert f"GET {CHASSIS}/Thermal" not in mockup.asked


async def test_a_newer_resource_that_cannot_be_read_does_not_make_its_parts_other_ones(tmp_path: Path) -> None:
    bodies = classic(supply(0))
    bodies[0] = chassis(Power=link(f"{CHASSIS}/Power"), PowerSubsystem=link(f"{CHASSIS}/PowerSubsystem"))
    directory = write(tmp_path, *bodies, resource(f"{CHASSIS}/PowerSubsystem", "PowerSubsystem"))
    (directory / "Chassis" / "C" / "PowerSubsystem" / "index.json").write_text("<html>")
    found, _ = await crawled(directory)
    assert "power-supply" not in kinds(found), "they come with the resource that cannot be read now"
    assert any(f"{CHASSIS}/PowerSubsystem" in trouble for trouble in found.trouble)


def test_parts_of_an_older_resource_that_cannot_be_read_are_not_gone() -> None:
    before = Component(id=f"{CHASSIS}/Power#/PowerSupplies/0", kind="power-supply")
    now = found(1, trouble=(f"{CHASSIS}/Power: nonsense",))
    assert before in with_unread(now, Parts(components=(before,))).components


def strange(tmp_path: Path) -> Path:
    """A service with things that are seldom seen."""
    blocks, pdu = f"{ROOT}/CompositionService/ResourceBlocks", f"{ROOT}/PowerEquipment/RackPDUs/1"
    manager = f"{ROOT}/Managers/M"
    adapter = f"{CHASSIS}/NetworkAdapters/N"
    [root] = [body for body in own() if body["@odata.id"] == ROOT]
    return write(
        tmp_path,
        {
            **root,
            "CompositionService": link(f"{ROOT}/CompositionService"),
            "PowerEquipment": link(f"{ROOT}/PowerEquipment"),
            "Managers": link(f"{ROOT}/Managers"),
        },
        resource(f"{ROOT}/CompositionService", "CompositionService", ResourceBlocks=link(blocks)),
        collection(blocks, "ResourceBlock", f"{blocks}/A", f"{blocks}/B"),
        resource(f"{blocks}/A", "ResourceBlock", Name="Compute A", ComputerSystems=[link(f"{blocks}/A/Systems/1")]),
        resource(f"{blocks}/A/Systems/1", "ComputerSystem", Name="not composed yet"),
        resource(f"{blocks}/B", "ResourceBlock", Name="Drives B"),
        resource(f"{ROOT}/PowerEquipment", "PowerEquipment", RackPDUs=link(f"{ROOT}/PowerEquipment/RackPDUs")),
        collection(f"{ROOT}/PowerEquipment/RackPDUs", "PowerDistribution", pdu),
        resource(pdu, "PowerDistribution", OutletGroups=link(f"{pdu}/OutletGroups")),
        collection(f"{pdu}/OutletGroups", "OutletGroup", f"{pdu}/OutletGroups/Rack5"),
        resource(f"{pdu}/OutletGroups/Rack5", "OutletGroup", Name="Rack 5", PowerState="On"),
        collection(f"{ROOT}/Managers", "Manager", manager),
        resource(manager, "Manager", DedicatedNetworkPorts=link(f"{manager}/DedicatedNetworkPorts")),
        collection(f"{manager}/DedicatedNetworkPorts", "Port", f"{manager}/DedicatedNetworkPorts/1"),
        resource(f"{manager}/DedicatedNetworkPorts/1", "Port", PortId="mgmt", LinkStatus="LinkUp"),
        resource(adapter, "NetworkAdapter", NetworkPorts=link(f"{adapter}/NetworkPorts")),
        collection(f"{adapter}/NetworkPorts", "NetworkPort", f"{adapter}/NetworkPorts/1"),
        resource(
            f"{adapter}/NetworkPorts/1",
            "NetworkPort",
            PhysicalPortNumber="1",
            LinkStatus="Up",
            CurrentLinkSpeedMbps=25000,
        ),
    )


async def test_blocks_of_a_composition_and_groups_of_outlets_are_kept_and_named(tmp_path: Path) -> None:
    found, _ = await crawled(strange(tmp_path))
    named = Counter(part.shape.partition(".")[0] for part in found.components if part.kind == "other")
    assert named == {"ResourceBlock": 2, "OutletGroup": 1, "CoolantLoop": 1}
    [group] = [part for part in found.components if part.shape.startswith("OutletGroup")]
    assert (group.name, group.facts["power"]) == ("Rack 5", "On")


async def test_what_could_be_composed_is_no_machine(tmp_path: Path) -> None:
    found, _ = await crawled(strange(tmp_path))
    assert [machine.id for machine in found.machines] == [SYSTEM]
    assert kinds(found)["system"] == 2


async def test_network_ports_of_managers_and_of_older_adapters_are_ports(tmp_path: Path) -> None:
    found, _ = await crawled(strange(tmp_path))
    shown = {port.name: port.component() for port in found.ports}
    assert {name: one.facts for name, one in shown.items()} == {
        "mgmt": {"up": True},
        "1": {"up": True, "speed_gbps": 25},
    }
    assert shown["mgmt"].parent == f"{ROOT}/Managers/M"


async def test_troubles_beyond_those_that_are_listed_are_counted(tmp_path: Path) -> None:
    drives = [f"{CHASSIS}/Drives/{i}" for i in range(70)]
    found, _ = await crawled(write(tmp_path, chassis(Drives=[link(path) for path in drives[1:]])))
    assert found.trouble[-1] == f"and {len(drives) - 1 - 64} more resources could not be read"
    gone = part("DIMM1", "M1")
    assert gone in with_unread(found, Parts(components=(gone,))).components


# -- how parts are


async def test_a_part_that_fails_and_is_well_again_is_an_alert_that_ends(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1", health="ok")))
    await site.record(found(1, part("DIMM1", "M1", health="critical"), time=200.0))
    await site.record(found(1, part("DIMM1", "M1", health="ok"), time=300.0))
    told = [(event.key, event.severity) for event in site.events if event.key.startswith("health/")]
    assert told == [(f"health/{ROOT}/Systems/1/DIMM1", "critical"), (f"health/{ROOT}/Systems/1/DIMM1", "ok")]
    assert ("health", "ok", "critical") in await site.history()


async def test_what_is_unwell_when_it_is_first_seen_is_told(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1", health="warning")))
    assert [event.severity for event in site.events if event.key.startswith("health/")] == ["warning"]


def supply_of(number: int, health: str) -> Component:
    return Component(id=f"{CHASSIS}/Power#/PowerSupplies/{number}", kind="power-supply", health=health)  # type: ignore[arg-type]


async def test_a_failed_supply_of_a_bmc_without_a_node_is_told_and_of_a_node_only_by_who_polls_it(
    site: Site,
) -> None:
    site.inventory._node_at = lambda address: ""
    await site.record(found(1, supply_of(0, "critical")))
    assert [event.severity for event in site.events if event.key.startswith("health/")] == ["critical"]
    site.inventory._node_at = lambda address: "n1"
    site.events.clear()
    await site.record(found(2, supply_of(0, "critical")))
    assert not [event for event in site.events if event.key.startswith("health/")]


@pytest.mark.parametrize("how", ["removed", "moved"])
def test_the_trouble_of_a_part_that_is_gone_is_over(how: str) -> None:
    bad = part("DIMM1", "M1", health="critical")
    now = found(1, *([] if how == "removed" else [part("DIMM2", "M1", health="critical")]))
    told = [c for c in changes((now.components[0], bad), now) if c.what == "health"]
    assert ("ok", bad.id) in [(change.new, change.component) for change in told]
    assert len(told) == (1 if how == "removed" else 2), "where it is now, it is as bad"


def test_what_only_sums_up_its_parts_is_not_told_of() -> None:
    now = found(1)
    rolled = msgspec.structs.replace(now.components[0], health="critical")
    assert changes(now.components, msgspec.structs.replace(now, components=(rolled,))) == []


async def test_a_mac_that_two_claimed_is_no_trouble_once_one_of_them_is_gone(site: Site) -> None:
    shared = ("00:0c:29:9a:98:ed",)
    for number in (1, 2):
        await site.record(found(number, macs=shared))
    told = site.events[-1]
    assert (told.severity, "duplicate-mac" in told.key) == ("warning", True)
    site.events.clear()
    await site.record(found(2, macs=(), time=200.0))
    over = [(event.key, event.node, event.severity) for event in site.events if "duplicate" in event.key]
    assert (told.key, told.node, "ok") in over


async def test_what_was_unwell_behind_a_bmc_that_is_forgotten_is_over(site: Site) -> None:
    await site.record(found(1, part("DIMM1", "M1", health="critical")))
    site.events.clear()
    await site.inventory.forget("https://bmc1", "alice", Ledger(site.store))
    assert [(event.severity, event.key) for event in site.events] == [("ok", f"health/{ROOT}/Systems/1/DIMM1")]


# -- sensors


async def readings(directory: Path) -> dict[str, Reading]:
    async with Mockup(directory, auth=True) as mockup, RedfishClient(Credentials(USER, PASSWORD)) as client:
        found = await RedfishBmc(client, mockup.address).readings()
    assert len({(one.kind, one.name) for one in found}) == len(found), "no two of one name"
    return {one.name: one for one in found}


async def test_four_supplies_of_one_name_are_four_readings_and_the_failed_one_is_named(tmp_path: Path) -> None:
    directory = write(tmp_path, *classic(supply(0), supply(1), supply(2, "Critical"), supply(3)))
    shown = await readings(directory)
    assert {name: one.value for name, one in shown.items() if one.kind == "power"} == {
        f"Power Supply ({i})": 100 + i for i in range(4)
    }
    assert [name for name, one in shown.items() if one.health == "critical"] == ["Power Supply (2)"]
    assert {name for name, one in shown.items() if one.kind == "fan"} == {"Fan (0)", "Fan (1)"}


async def test_the_names_stay_when_a_bay_is_emptied_and_an_empty_bay_is_no_trouble(tmp_path: Path) -> None:
    directory = write(tmp_path, *classic(supply(0), supply(1, "Warning", "Absent"), supply(2)))
    shown = await readings(directory)
    assert shown["Power Supply (2)"].value == 102
    assert (shown["Power Supply (1)"].health, shown["Power Supply (1)"].doubt) == (None, EMPTY)


@pytest.mark.parametrize("newer", [True, False], ids=["subsystems", "classic"])
async def test_a_failed_supply_is_seen_where_sensors_are_told_of_elsewhere(tmp_path: Path, newer: bool) -> None:
    place = f"{CHASSIS}/PowerSubsystem/PowerSupplies"
    bodies = [
        resource(f"{CHASSIS}/PowerSubsystem", "PowerSubsystem", PowerSupplies=link(place)),
        collection(place, "PowerSupply", f"{place}/0", f"{place}/1"),
        *(
            resource(f"{place}/{i}", "PowerSupply", Name="PSU", Status={"State": "Enabled", "Health": health})
            for i, health in enumerate(("OK", "Critical"))
        ),
    ]
    older = resource(
        f"{CHASSIS}/Power", "Power", PowerSupplies=[supply(0, Name="PSU"), supply(1, "Critical", Name="PSU")]
    )
    sensor = resource(f"{CHASSIS}/Sensors/T", "Sensor", Name="Inlet", Reading=21, ReadingType="Temperature")
    links = {"PowerSubsystem": link(f"{CHASSIS}/PowerSubsystem")} if newer else {"Power": link(f"{CHASSIS}/Power")}
    shown = await readings(
        write(
            tmp_path,
            chassis(Sensors=link(f"{CHASSIS}/Sensors"), **links),
            collection(f"{CHASSIS}/Sensors", "Sensor", f"{CHASSIS}/Sensors/T"),
            sensor,
            *(bodies if newer else [older]),
        )
    )
    assert shown["Inlet"].value == 21
    assert (shown["PSU (1)"].health, shown["PSU (1)"].value, shown["PSU (1)"].doubt) == ("critical", None, STATE)
    assert shown["PSU (0)"].health == "ok"


@pytest.mark.slow
async def test_every_supply_and_fan_of_every_mockup_has_a_reading(classic_mockup: Path) -> None:
    for directory in (classic_mockup, *shared_mockups()):
        async with Mockup(directory, auth=True) as mockup, RedfishClient(Credentials(USER, PASSWORD)) as client:
            for path, body in linked(directory).items():
                if not str(body.get("@odata.type")).startswith("#Chassis."):
                    continue
                told = list(await RedfishBmc(client, mockup.address + path).readings())
                assert len({(one.kind, one.name) for one in told}) == len(told), directory.name
                classics = body.get("Power", {}).get("@odata.id") if "PowerSubsystem" not in body else None
                for one in linked(directory).get(classics or "", {}).get("PowerSupplies", ()):
                    assert [r for r in told if r.kind == "power" and r.name.startswith(one["Name"])], directory.name


def test_names_are_told_apart_by_the_first_mark_in_which_all_differ() -> None:
    def one(name: str, *marks: str) -> Marked:
        return Marked(Reading(name=name, kind="fan", unit="RPM", value=1.0), marks)

    assert [r.name for r in distinct([one("A", "x", "1"), one("B", "x", "2")])] == ["A", "B"]
    assert [r.name for r in distinct([one("A", "x", "1"), one("A", "x", "2")])] == ["A (1)", "A (2)"]
    assert [r.name for r in distinct([one("A", "x", "1"), one("A", "y", "1")])] == ["A (x)", "A (y)"]
    assert [r.name for r in distinct([one("A", "x", ""), one("A", "x", "")])] == ["A (1)", "A (2)"]
