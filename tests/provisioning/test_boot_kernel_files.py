"""Kernels and initrds on the boot network, with the real nginx."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from strata.api.nginx import Nginx, find_nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.core.errors import BadRequest
from strata.fleet.access.authority import Authority
from strata.provisioning.boot.open import BootFiles

pytestmark = [pytest.mark.server, pytest.mark.slow]

DIGEST = "0123456789ab"


@pytest.fixture
async def base(tmp_path: Path) -> AsyncIterator[str]:
    """A front door that serves a minimal OS, and things that nobody may fetch."""
    folder = tmp_path / "minos" / DIGEST
    folder.mkdir(parents=True)
    (folder / "vmlinuz").write_bytes(b"kernel")
    (folder / "initrd").write_bytes(bytes(range(256)) * 64)
    (folder / "manifest.json").write_text("{}")
    (tmp_path / "minos" / "latest").write_text(DIGEST)
    (tmp_path / "secret").write_text("canary")
    authority = Authority.open(tmp_path / "ca")
    authority.renew_server(["127.0.0.1"])
    port = free_port("127.0.0.1")
    door = FrontDoor(
        directory=tmp_path / "nginx",
        host="127.0.0.1",
        port=free_port("127.0.0.1"),
        upstream=tmp_path / "front.sock",
        secret="nobody",
        certificate=authority.server_paths[0],
        key=authority.server_paths[1],
        ca=authority.certificate_path,
        workers=1,
        connections=64,
        boot=BootFiles(hosts=("127.0.0.1",), port=port, root=tmp_path / "minos"),
    )
    nginx = Nginx(door)
    await nginx.start()
    yield f"http://127.0.0.1:{port}"
    await nginx.stop()


async def test_a_machine_gets_its_kernel_and_parts_of_its_initrd_and_nothing_else(base: str) -> None:
    async with httpx.AsyncClient(base_url=base) as client:
        assert (await client.get(f"/{DIGEST}/vmlinuz")).content == b"kernel"
        part = await client.get(f"/{DIGEST}/initrd", headers={"Range": "bytes=1-3"})
        assert (part.status_code, part.content) == (206, b"\x01\x02\x03")
        many = await client.get(f"/{DIGEST}/initrd", headers={"Range": "bytes=0-1,2-3,4-5"})
        assert "multipart" not in many.headers["content-type"]
        for path in (f"/{DIGEST}/manifest.json", "/latest", f"/{DIGEST}/", "/", f"/{DIGEST}/../latest"):
            assert (await client.get(path)).status_code == 404, path
        assert (await client.post(f"/{DIGEST}/vmlinuz")).status_code == 403


async def test_no_path_leaves_the_folder(base: str) -> None:
    host, port = base.removeprefix("http://").split(":")
    for path in (f"/{DIGEST}/../../secret", f"/{DIGEST}/%2e%2e/%2e%2e/secret", f"//{DIGEST}/../secret", "/..%2fsecret"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert answer.split()[1] in (b"404", b"400"), path
        assert b"canary" not in answer


def test_the_block_is_one_that_nginx_takes_for_several_networks(tmp_path: Path) -> None:
    block = BootFiles(hosts=("127.0.0.1", "::1"), port=free_port("127.0.0.1"), root=tmp_path).block(tmp_path)
    config = tmp_path / "nginx.conf"
    config.write_text(f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{block}\n}}\n")
    done = subprocess.run([find_nginx(), "-t", "-c", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("root", ["relative", '/a";evil', "/a$b"])
def test_a_path_that_nginx_would_read_as_something_else_is_refused(root: str) -> None:
    with pytest.raises(BadRequest):
        BootFiles(hosts=("127.0.0.1",), port=1, root=Path(root)).block(Path(root))
