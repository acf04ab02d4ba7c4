"""The inventory over REST, with the real service behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from real_service import RealService, real_service

from strata.control.inventory_nodes import NodesByBmc
from strata.control.machine import InventoryFacade, Machine
from strata.control.service_inventory import InventoryService
from strata.hardware.bmc import Identity
from strata.hardware.discovery import Discovery
from strata.hardware.inventory import Component, Found
from strata.hardware.inventory import Machine as System
from strata.hardware.inventory_store import Inventory

pytestmark = pytest.mark.slow

SYSTEM = "/redfish/v1/Systems/1"


async def told(address: str) -> Found:
    serial = address.rpartition("bmc")[2]
    return Found(
        address=address,
        identity=Identity(vendor="Contoso", serial=serial),
        time=2e9,
        machines=(System(id=SYSTEM, address=address, serial=serial),),
        components=tuple(Component(id=f"{SYSTEM}/{i}", kind="memory", name=f"DIMM{i}") for i in range(3)),
    )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RealService]:
    async with real_service(tmp_path) as real:
        nodes = NodesByBmc(real.service.registry)
        inventory = Inventory(real.store, node_at=nodes.at)
        await inventory.start()
        served: InventoryFacade = InventoryService(real.service, inventory, Discovery({"https": told}), nodes)
        none = cast("Any", None)
        real.services.machine = Machine(
            bmcs=none, inventory=served, alerts=none, fabric=none, consoles=none, credentials=none, emergency=none
        )
        yield real
        await inventory.stop()


async def test_discovery_is_a_job_and_what_it_finds_is_there(site: RealService) -> None:
    async with site.client() as client:
        wanted = {"addresses": ["https://bmc7", "https://bmc8"], "adopt": True, "name": "h{serial}"}
        begun = await client.post("/v1/hardware/discover", json=wanted)
        assert begun.status_code == 202, begun.text
        job = begun.json()["id"]
        await site.service.jobs_.wait(job)
        report = (await client.get(f"/v1/hardware/discover/{job}")).json()
        assert (report["found"], report["adopted"], report["job"]) == (2, 2, job)
        first = (await client.get("/v1/hardware/controllers?limit=1")).json()
        assert (first["items"][0]["address"], first["total"]) == ("https://bmc7", 2)
        second = (await client.get(f"/v1/hardware/controllers?limit=1&cursor={first['next']}")).json()
        assert (second["items"][0]["address"], second["next"]) == ("https://bmc8", None)
        one = (await client.get("/v1/hardware/controller?address=https%3A%2F%2Fbmc7")).json()
        assert [part["name"] for part in one["components"]] == ["DIMM0", "DIMM1", "DIMM2"]
        assert (await client.get("/v1/nodes/h7/hardware")).json()["serial"] == "7"
        parts = (await client.get("/v1/hardware/components?select=h8&kind=memory")).json()
        assert {part["node"] for part in parts["items"]} == {"h8"}
        history = (await client.get("/v1/hardware/history")).json()["items"]
        assert [change["what"] for change in history] == ["added", "added"]
        assert (await client.get("/v1/hardware/conflicts")).json() == {"items": []}
        assert (await client.delete("/v1/hardware/controller?address=https%3A%2F%2Fbmc7")).status_code == 204
        assert (await client.get("/v1/nodes/h7/hardware")).status_code == 404


async def test_bad_requests_say_what_is_wrong(site: RealService) -> None:
    async with site.client() as client:
        for wanted in ({}, {"ranges": ["10.0.0.0/8"]}, {"csv": "address,password\nx,y\n"}, {"nonsense": 1}):
            answer = await client.post("/v1/hardware/discover", json=wanted)
            assert answer.status_code == 400, (wanted, answer.text)
        assert (await client.get("/v1/hardware/controller?address=https%3A%2F%2Fnobody")).status_code == 404
        assert (await client.get("/v1/hardware/controller")).status_code == 400
        assert (await client.get("/v1/hardware/components?kind=soup")).status_code == 400
        assert (await client.get("/v1/hardware/discover/nojob")).status_code == 404


async def test_only_who_may_discovers_and_forgets(site: RealService) -> None:
    for role in ("viewer", "operator"):
        async with site.client("front", await site.token(role)) as client:
            assert (await client.get("/v1/hardware/controllers")).status_code == 200
            assert (await client.post("/v1/hardware/discover", json={"known": True})).status_code == 403
            assert (await client.delete("/v1/hardware/controller?address=x")).status_code == 403
