"""The two local sockets: who may open them, and how they end."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from api_support import Service

from strata.api import server
from strata.api.server import ApiServer, bind_private, peer_uid
from strata.api.services import FrontSecret, Watchers
from strata.core.errors import Unavailable


@pytest.fixture
async def running(service: Service, tmp_path: Path) -> AsyncIterator[ApiServer]:
    api = ApiServer(service.services, tmp_path / "admin.sock", tmp_path / "front.sock")
    await api.start()
    yield api
    await api.stop()


def over(path: Path) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path)), base_url="http://strata")


async def test_each_door_knows_its_callers(service: Service, running: ApiServer, tmp_path: Path) -> None:
    async with over(tmp_path / "admin.sock") as admin, over(tmp_path / "front.sock") as front:
        front.headers["X-Strata-Front-Secret"] = service.services.get(FrontSecret).value
        assert (await admin.get("/v1/auth/whoami")).json()["role"] == "admin"
        assert (await front.get("/v1/auth/whoami")).status_code == 401
        assert (await front.get("/v1/health")).status_code == 200


async def test_only_the_owner_can_open_the_sockets(running: ApiServer, tmp_path: Path) -> None:
    for name in ("admin.sock", "front.sock"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


async def test_a_peer_that_is_somebody_else_is_turned_away(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "peer_uid", lambda sock: 4242)
    api = ApiServer(service.services, tmp_path / "admin.sock")
    await api.start()
    async with over(tmp_path / "admin.sock") as client:
        with pytest.raises(httpx.TransportError):
            await client.get("/v1/health")
    await api.stop()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_another_user_is_turned_away_even_if_the_file_lets_them_in(running: ApiServer, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    (tmp_path / "admin.sock").chmod(0o666)
    script = (
        "import os,socket,sys\nos.setuid(65534)\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
        "try:\n    s.sendall(b'GET /v1/auth/whoami HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n    print(s.recv(100))\n"
        "except OSError as e:\n    print(b'')\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script, str(tmp_path / "admin.sock")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "b''", done.stderr


def test_the_kernel_says_who_is_at_the_other_end() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert peer_uid(left) == os.geteuid()


async def test_a_socket_left_by_a_dead_service_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    bind_private(path).close()
    with bind_private(path), pytest.raises(Unavailable, match="another service"):
        bind_private(path)
    path.unlink()
    path.write_text("precious")
    with pytest.raises(Unavailable, match="in the way"):
        bind_private(path)
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="107"):
        bind_private(tmp_path / ("x" * 120))


async def test_stopping_ends_watchers_and_removes_the_sockets(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GRACE", 600)  # so that it is not what ends them
    api = ApiServer(service.services, tmp_path / "admin.sock")
    await api.start()
    async with over(tmp_path / "admin.sock") as client, client.stream("GET", "/v1/watch") as answer:
        chunks = answer.aiter_text()
        assert "retry" in await anext(chunks)
        async with asyncio.timeout(120):
            await api.stop()
        assert [chunk async for chunk in chunks] in ([], [""])
    assert list(tmp_path.iterdir()) == []
    assert service.services.get(Watchers).count == 0
