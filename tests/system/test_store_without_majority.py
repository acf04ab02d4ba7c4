"""A service whose etcd has lost its majority: it says so, and what it shows is marked as old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.settings import LeadershipSettings, ListenSettings, StoreSettings
from support.etcd_cluster import EtcdCluster

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.skipif(not EtcdCluster.available(), reason="etcd is not installed"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    made = EtcdCluster(tmp_path / "etcd")
    (tmp_path / "etcd").mkdir()
    made.start()
    yield made
    made.stop()


@pytest.fixture
async def client(tmp_path: Path, cluster: EtcdCluster) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(
        state_dir=tmp_path / "s",
        store=StoreSettings(url=cluster.url("t")),
        listen=ListenSettings(tls=False),
        layers=("hardware",),
        leadership=LeadershipSettings(shards=2),
    )
    settings.state_dir.mkdir(mode=0o700)
    async with running(settings):
        transport = httpx.AsyncHTTPTransport(uds=str(settings.admin_socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://strata", timeout=60) as client:
            yield client


async def until(client: httpx.AsyncClient, path: str, true: Callable[[httpx.Response], Any]) -> httpx.Response:
    async with asyncio.timeout(60):
        while not true(answer := await client.get(path)):  # noqa: ASYNC110 (another process has no event)
            await asyncio.sleep(0.1)
        return answer


async def test_etcd_without_a_majority_shows_in_status_readiness_and_the_api(
    cluster: EtcdCluster, client: httpx.AsyncClient
) -> None:
    made = await client.post("/v1/nodes", json={"nodes": [{"name": "n1"}]})
    assert made.is_success, made.text
    await until(client, "/v1/status", lambda answer: not answer.json()["unled"])
    well = (await client.get("/v1/status")).json()
    assert well["troubles"] == [] and well["as_of"] is None
    assert all(shard["leader"] for shard in well["shards"])

    for name in cluster.names[1:]:
        cluster.kill(name)
    ill = (await until(client, "/v1/status", lambda answer: answer.json()["troubles"])).json()
    assert "the store takes no writes" in ill["troubles"][0]
    assert (await client.get("/v1/ready")).status_code == 503
    told = (await until(client, "/v1/status", lambda answer: answer.json()["unled"] == 1)).json()
    assert all(shard["leader"] == "" for shard in told["shards"]), "nobody can know who leads"
    assert told["as_of"] is not None
    why = (await client.get("/v1/nodes/n1/why")).json()
    assert "no controller looks after it now" in why["lines"][0]
    assert (await client.get("/v1/nodes/n1")).json()["facts"]["power"].keys() >= {"age", "seen"}
    assert (await client.get("/v1/nodes/n1/history")).status_code == 200, "what is written can be read"
    refused = await client.post("/v1/freezes", json={"scope": "fleet", "reason": "x"})
    assert refused.status_code == 503, refused.text

    cluster.heal()
    await until(client, "/v1/ready", lambda answer: answer.status_code == 200)
    again = (await until(client, "/v1/status", lambda answer: not answer.json()["unled"])).json()
    assert again["troubles"] == []
