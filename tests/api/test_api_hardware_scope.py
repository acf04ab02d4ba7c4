"""The hardware layer to somebody with a scope, over the real service: what is not one's own is not there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_service import CROWDED, RealService, furnish_hardware, real_service
from route_table import GROUP, ROUTES

from strata.fleet.access.principal import FLEET_WIDE
from strata.hardware.bmc.protocol import Identity
from strata.hardware.inventory.records import Component, Found, Machine
from strata.hardware.inventory.service import InventoryService

pytestmark = pytest.mark.slow

OWN = ["n00001", "n00002", "n00003", "n00004"]
HARDWARE = re.compile(r"^/v1/(hardware|bmc|alerts|consoles|fabric|nodes/\{name\}/(bmc|console|hardware))")
READS = [path for method, path, right in ROUTES if method == "GET" and HARDWARE.match(path) and right not in FLEET_WIDE]
NEEDED: dict[str, dict[str, str]] = {
    "/v1/bmc/sensors": {"select": "*"},
    "/v1/bmc/firmware": {"select": "*"},
    "/v1/consoles/search": {"text": "panic"},
    "/v1/alerts": {"all": "true"},
    "/v1/hardware/events/follow": {"since": "0"},
    "/v1/nodes/{name}/console/follow": {"since": "0"},
}


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealService]:
    async with real_service(tmp_path) as service:
        async with service.client() as client:
            made = await client.put(f"/v1/groups/{GROUP}", json={"members": "n[00001-00004]"})
            assert made.status_code == 200, made.text
        await furnish_hardware(service)
        yield service


@pytest.fixture
async def scoped(real: RealService) -> AsyncIterator[httpx.AsyncClient]:
    async with real.client("front", await real.token("operator", [GROUP])) as client:
        yield client


async def get(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, (path, answer.text)
    return answer.json()


def foreign(text: str) -> set[str]:
    """Names of nodes (also in addresses) that are not one's own."""
    return set(re.findall(r"n000\d\d", text)) - set(OWN)


async def test_no_read_tells_of_nodes_outside(real: RealService, scoped: httpx.AsyncClient) -> None:
    assert len(READS) >= 20
    own = (await get(scoped, "/v1/alerts"))["items"][0]["id"]
    for path in READS:
        if "{operation}" in path or path == "/v1/hardware/bmc":
            continue
        where = path.format(name="n00001", dump=real.dump, ident=own)
        answer = await scoped.get(where, params=NEEDED.get(path))
        assert answer.status_code == 200, (path, answer.text)
        assert foreign(answer.text) == set(), path


async def test_what_is_outside_is_answered_just_as_what_is_nowhere(
    real: RealService, scoped: httpx.AsyncClient
) -> None:
    async with real.client() as admin:
        others = [one["id"] for one in (await get(admin, "/v1/alerts"))["items"] if one["node"] == "n00010"]
    for path in READS:
        if "{ident}" in path:
            hidden, missing = [await scoped.get(path.format(ident=ident)) for ident in (others[0], "ab" * 10)]
            assert (hidden.status_code, missing.status_code) == (404, 404), hidden.text
            assert hidden.json()["detail"] == missing.json()["detail"]
            continue
        if "{name}" in path:
            pairs = [(path.format(name=name, dump=real.dump), {}) for name in ("n00010", "n00099")]
        elif path == "/v1/hardware/bmc":
            pairs = [
                (path, {"address": real.bmcs.url("n00010").replace("n00010", name)}) for name in ("n00010", "n00099")
            ]
        elif "{job}" in path:
            pairs = [(path.format(job=job), {}) for job in (real.discovery, real.discovery[:-4] + "zzzz")]
        elif "select" in NEEDED.get(path, {}):
            pairs = [(path, {"select": name}) for name in ("n00010", "n00099")]
        else:
            continue
        outside, nowhere = [await scoped.get(where, params=query) for where, query in pairs]
        assert (outside.status_code, nowhere.status_code) == (404, 404), (path, outside.text)
        for word in ("title", "detail", "where", "hint"):
            told = (
                nowhere.json()[word].replace("n00099", "n00010").replace(real.discovery[:-4] + "zzzz", real.discovery)
            )
            assert outside.json()[word] == told, (path, word)


async def test_counts_are_of_ones_own(real: RealService, scoped: httpx.AsyncClient) -> None:
    async with real.client() as admin:
        assert (await get(admin, "/v1/alerts"))["open"] >= 20
        everything = await get(admin, "/v1/hardware/bmcs")
        assert everything["total"] > 20
    assert {alert["node"] for alert in (await get(scoped, "/v1/alerts"))["items"]} == set(OWN)
    assert (await get(scoped, "/v1/alerts", limit=1))["open"] == len((await get(scoped, "/v1/alerts"))["items"])
    page = await get(scoped, "/v1/hardware/bmcs", limit=3)
    assert (page["total"], len(page["items"])) == (4, 3)
    rest = await get(scoped, "/v1/hardware/bmcs", limit=3, cursor=page["next"])
    assert (len(rest["items"]), rest["next"]) == (1, None)
    assert {hit["node"] for hit in (await get(scoped, "/v1/consoles/search", text="panic"))["items"]} == set(OWN)
    assert [item["node"] for item in (await get(scoped, "/v1/consoles"))["items"]] == OWN
    assert {change["node"] for change in (await get(scoped, "/v1/hardware/history"))["items"]} <= set(OWN)


async def test_a_conflict_names_only_ones_own_side(real: RealService, scoped: httpx.AsyncClient) -> None:
    async with real.client() as admin:
        (whole,) = (await get(admin, "/v1/hardware/conflicts"))["items"]
    (own,) = (await get(scoped, "/v1/hardware/conflicts"))["items"]
    assert whole["what"] == own["what"] == "location-taken"
    assert set(whole["where"]) == {real.bmcs.url(name) for name in CROWDED}
    assert own["where"] == [real.bmcs.url("n00004")]


async def test_the_fabric_ends_where_the_scope_does(real: RealService, scoped: httpx.AsyncClient) -> None:
    async with real.client("front", await real.token("operator", ["nobody"])) as stranger:
        assert await get(stranger, "/v1/fabric") == {"switches": [], "links": [], "conflicts": []}
    async with real.client() as admin:
        assert {switch["nodes"] for switch in (await get(admin, "/v1/fabric"))["switches"]} == {"n[00001-00020]"}
    own = await get(scoped, "/v1/fabric")
    assert own["switches"]
    assert {switch["nodes"] for switch in own["switches"]} == {"n[00001-00004]"}
    known = tuple(f"{owner}:" for owner in (*OWN, *(switch["id"] for switch in own["switches"])))
    assert own["links"]
    assert all(end.startswith(known) for link in own["links"] for end in (link["a"], link["b"]))
    assert own["conflicts"] == []
    near = await get(scoped, "/v1/fabric/near")
    assert {item["nodes"] for item in near["items"]} == {"n[00001-00004]"}


async def test_nothing_outside_is_touched(real: RealService, scoped: httpx.AsyncClient) -> None:
    async with real.client() as admin:
        alerts = (await get(admin, "/v1/alerts"))["items"]
    before = await real.still()
    (outside,) = [alert["id"] for alert in alerts if alert["node"] == "n00010" and alert["key"].startswith("sensor/")]
    requests = real.bmcs.requests
    for what, body in (
        ("power", {"action": "cycle", "force": True}),
        ("boot", {"target": "pxe"}),
        ("identify", {}),
        ("limits", {"watts": 500}),
        ("media", {"image": "http://images.example/x.iso"}),
    ):
        for select in ("*", "n00001,n00010", "!n00001"):
            answer = await scoped.post(f"/v1/bmc/{what}", json={**body, "select": select})
            assert answer.status_code == 403, (what, select, answer.text)
    red = {"select": "*", "reason": "fire", "confirm": "power off 20 nodes"}
    assert (await scoped.post("/v1/emergency-off", json=red)).status_code == 403
    unknown, hidden = [
        (await scoped.post("/v1/alerts/acknowledge", json={"ids": [ident]})) for ident in ("absent", outside)
    ]
    assert (unknown.status_code, hidden.status_code) == (404, 404)
    assert unknown.json()["detail"] == hidden.json()["detail"]
    assert real.bmcs.requests == requests
    assert await real.store.revision() == before


async def test_the_red_button_freezes_ones_own_group_and_no_other_of_the_same_members(
    real: RealService, scoped: httpx.AsyncClient
) -> None:
    async with real.client() as admin:
        made = await admin.put("/v1/groups/a-twin", json={"members": "n[00001-00004]"})
        assert made.status_code == 200
    red = {"select": f"@{GROUP}", "reason": "fire", "confirm": "power off 4 nodes"}
    answer = await scoped.post("/v1/emergency-off", json=red)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["outcome"]["done"], answer.json()["frozen"]) == ("n[00001-00004]", [f"group:{GROUP}"])


SHARED = "https://shared.example"


async def record(real: RealService, *found: Found) -> None:
    await real.of(InventoryService)._inventory.record(found)


async def test_of_a_shared_controller_only_ones_own_part_is_counted(
    real: RealService, scoped: httpx.AsyncClient
) -> None:
    machines = [
        Machine(id=f"/redfish/v1/Systems/{name}", address=f"{SHARED}/redfish/v1/Systems/{name}") for name in ("A", "B")
    ]
    async with real.client() as admin:
        for machine, node in zip(machines, ("n00001", "n00010"), strict=True):
            spec = {"name": node, "bmc": machine.address}
            assert (await admin.put(f"/v1/nodes/{node}", json=spec)).status_code == 200
    parts = [
        Component(id=f"{m.id}/Memory/{i}", kind="memory", name=f"{m.id}-{i}", parent=m.id)
        for m in machines
        for i in (1, 2)
    ]
    await record(
        real,
        Found(
            address=SHARED,
            identity=Identity(serial="S"),
            time=2e9,
            machines=tuple(machines),
            components=(*(Component(id=m.id, kind="system", name=m.id) for m in machines), *parts),
            trouble=("/redfish/v1/Systems/B cannot be read",),
        ),
    )  # fmt: skip
    async with real.client() as admin:
        whole = (await get(admin, "/v1/hardware/bmc", address=SHARED))["summary"]
    own = await get(scoped, "/v1/hardware/bmc", address=SHARED)
    assert (whole["machines"], whole["components"], len(whole["trouble"])) == (2, {"system": 2, "memory": 4}, 1)
    assert (own["summary"]["machines"], own["summary"]["components"], own["summary"]["trouble"]) == (1, {}, [])
    assert own["summary"]["nodes"] == ["n00001"]
    assert {part["node"] for part in own["components"]} == {"n00001"}


async def test_a_part_that_came_from_outside_came_from_somewhere(real: RealService, scoped: httpx.AsyncClient) -> None:
    for number, node in enumerate(("n00010", "n00001")):
        at = real.bmcs.url(node)
        inventory = real.of(InventoryService)._inventory
        known = inventory.get(at)
        assert known is not None
        drive = Component(id="/redfish/v1/Systems/1/Drives/new", kind="drive", name="new", serial="WANDERER")
        await record(
            real,
            Found(
                address=known.address,
                identity=known.identity,
                time=2e9 + number,
                machines=known.machines,
                components=(*(await inventory.parts(at)).components, drive),
            ),
        )
    async with real.client() as admin:
        (whole,) = await moves(admin, "WANDERER")
    (own,) = await moves(scoped, "WANDERER")
    assert (whole["node"], whole["old"]) == ("n00001", real.bmcs.url("n00010"))
    assert (own["node"], own["old"], own["detail"]) == ("n00001", "", "serial WANDERER")


async def moves(client: httpx.AsyncClient, serial: str) -> list[dict[str, Any]]:
    """The moves of the part with that serial number, as the history tells them."""
    items = (await get(client, "/v1/hardware/history"))["items"]
    return [item for item in items if item["what"] == "moved" and serial in item["detail"]]
