"""Whether the service says that it is ready, on a disk that is really full."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.settings import ListenSettings

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "d"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", place], capture_output=True, check=False
    )
    if os.geteuid() != 0 or mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
async def client(small_disk: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(state_dir=small_disk / "s", listen=ListenSettings(tls=False), layers=("hardware",))
    settings.state_dir.mkdir(mode=0o700)
    async with running(settings) as service:
        service.writable._every = service.disk._every = 0.1
        transport = httpx.AsyncHTTPTransport(uds=str(settings.admin_socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://strata") as client:
            yield client


async def test_a_service_on_a_full_disk_is_not_ready_and_is_again_when_there_is_room(
    small_disk: Path, client: httpx.AsyncClient
) -> None:
    async def until_ready_is(status: int) -> httpx.Response:
        async with asyncio.timeout(60):
            while (answer := await client.get("/v1/ready")).status_code != status:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            return answer

    await until_ready_is(200)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    told = (await until_ready_is(503)).json()
    assert "takes no writes" in told["detail"]
    assert (await client.get("/v1/nodes")).status_code == 200, "what is known can be read"
    async with asyncio.timeout(60):
        while len(troubles := (await client.get("/v1/status")).json()["troubles"]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert "takes no writes" in troubles[0] and "of 48 MiB are free" in troubles[1]
    assert (await client.post("/v1/freezes", json={"scope": "fleet", "reason": "x"})).status_code == 503
    filler.unlink()
    await until_ready_is(200)
    async with asyncio.timeout(60):
        while (await client.get("/v1/status")).json()["troubles"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await client.post("/v1/freezes", json={"scope": "fleet", "reason": "x"})).status_code == 201
