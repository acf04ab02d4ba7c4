"""The inventory over REST, with the real service and simulated controllers behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from real_service import RealService, real_service

pytestmark = pytest.mark.slow


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RealService]:
    async with real_service(tmp_path) as real:
        yield real


async def test_discovery_is_a_job_and_what_it_finds_is_there(site: RealService) -> None:
    first_at, second_at = site.spare
    async with site.client() as client:
        wanted = {"addresses": site.spare, "adopt": True, "name": "h{number}"}
        begun = await client.post("/v1/hardware/discover", json=wanted)
        assert begun.status_code == 202, begun.text
        job = begun.json()["id"]
        await site.service.operations.wait(job)
        report = (await client.get(f"/v1/hardware/discover/{job}")).json()
        assert (report["found"], report["adopted"], report["job"]) == (2, 2, job)
        first = (await client.get("/v1/hardware/bmcs?limit=1")).json()
        assert (first["items"][0]["address"], first["total"]) == (first_at, 2)
        second = (await client.get(f"/v1/hardware/bmcs?limit=1&cursor={first['next']}")).json()
        assert (second["items"][0]["address"], second["next"]) == (second_at, None)
        (name,), (other,) = (page["items"][0]["nodes"] for page in (first, second))
        assert {name, other} == {"h1", "h2"}
        one = (await client.get("/v1/hardware/bmc", params={"address": first_at})).json()
        kinds = {part["kind"] for part in one["components"]}
        assert {"system", "processor", "memory", "nic"} <= kinds
        shown = (await client.get(f"/v1/nodes/{name}/hardware")).json()
        assert (shown["bmc"], bool(shown["serial"])) == (first_at, True)
        parts = (await client.get(f"/v1/hardware/components?select={other}&kind=memory")).json()
        assert {part["node"] for part in parts["items"]} == {other}
        history = (await client.get("/v1/hardware/history")).json()["items"]
        assert [change["what"] for change in history] == ["added", "added"]
        assert (await client.get("/v1/hardware/conflicts")).json() == {"items": []}
        assert (await client.delete("/v1/hardware/bmc", params={"address": first_at})).status_code == 204
        assert (await client.get(f"/v1/nodes/{name}/hardware")).status_code == 404


async def test_bad_requests_say_what_is_wrong(site: RealService) -> None:
    async with site.client() as client:
        for wanted in ({}, {"ranges": ["10.0.0.0/8"]}, {"csv": "address,password\nx,y\n"}, {"nonsense": 1}):
            answer = await client.post("/v1/hardware/discover", json=wanted)
            assert answer.status_code == 400, (wanted, answer.text)
        assert (await client.get("/v1/hardware/bmc?address=https%3A%2F%2Fnobody")).status_code == 404
        assert (await client.get("/v1/hardware/bmc")).status_code == 400
        assert (await client.get("/v1/hardware/components?kind=soup")).status_code == 400
        assert (await client.get("/v1/hardware/discover/nojob")).status_code == 404


async def test_only_who_may_discovers_and_forgets(site: RealService) -> None:
    for role in ("viewer", "operator"):
        async with site.client("front", await site.token(role)) as client:  # type: ignore[arg-type]
            assert (await client.get("/v1/hardware/bmcs")).status_code == 200
            assert (await client.post("/v1/hardware/discover", json={"known": True})).status_code == 403
            assert (await client.delete("/v1/hardware/bmc?address=x")).status_code == 403
