"""Images at the front door, with the real nginx: to nodes only, by exact names, in ranges."""

from __future__ import annotations

import hashlib
import random
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from strata.api.nginx import Nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.api.web_account import web_account
from strata.core.host.private_file import write_private
from strata.fleet.access.authority import Authority, Issued
from strata.fleet.access.principal import RIGHTS
from strata.provisioning.images.shelf import Shelf

pytestmark = [pytest.mark.server, pytest.mark.slow]

DATA = random.Random(1).randbytes(3 << 20)  # the same in every process: its digest names tests
NAME = hashlib.sha256(DATA).hexdigest()
FILE = f"/images/squashfs/{NAME}.squashfs"


class Served:
    """nginx over a repository with one file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = Authority.open(directory / "ca")
        self.ca.renew_server(["localhost", "127.0.0.1"])
        self.shelf = Shelf(directory / "images")
        account = web_account()
        self.shelf.open(readers=account.pw_gid if account else None)
        self.shelf.squashfs(f"sha256:{NAME}").write_bytes(DATA)
        self.shelf.chunks(f"sha256:{NAME}").write_bytes(b"list")
        self.shelf.blob(f"sha256:{NAME}").write_bytes(b"a layer")
        certificate, key = self.ca.server_paths
        self.door = FrontDoor(
            directory=directory / "nginx",
            host="127.0.0.1",
            port=free_port("127.0.0.1"),
            upstream=directory / "front.sock",
            secret="nobody",
            certificate=certificate,
            key=key,
            ca=self.ca.certificate_path,
            images=self.shelf.root,
            workers=1,
            connections=512,
        )
        self.nginx = Nginx(self.door)

    def client(self, issued: Issued | None) -> httpx.AsyncClient:
        context = ssl.create_default_context(cadata=self.ca.pem.decode())
        if issued is not None:
            chain = self.directory / f"{issued.serial}.pem"
            write_private(chain, issued.certificate + issued.key)
            context.load_cert_chain(chain)
        return httpx.AsyncClient(verify=context, base_url=f"https://127.0.0.1:{self.door.port}", trust_env=False)

    def node(self) -> httpx.AsyncClient:
        return self.client(self.ca.issue("n0001", "node", [], 600))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    await made.nginx.start()
    yield made
    await made.nginx.stop()


async def test_a_node_gets_a_whole_image_and_any_part_of_it(served: Served) -> None:
    async with served.node() as client:
        whole = await client.get(FILE)
        part = await client.get(FILE, headers={"Range": "bytes=1048576-2097151"})
        chunks = await client.get(f"/images/chunks/{NAME}")
    assert (whole.status_code, whole.content) == (200, DATA)
    assert "immutable" in whole.headers["cache-control"]
    assert (part.status_code, part.content) == (206, DATA[1 << 20 : 2 << 20])
    assert chunks.content == b"list"


async def test_whoever_is_no_node_gets_nothing(served: Served, tmp_path: Path) -> None:
    stranger = Authority.open(tmp_path / "other").issue("n0001", "node", [], 600)
    people = [
        (None, 403),
        (served.ca.issue("root", "admin", [], 600), 403),
        (served.ca.issue("role.node", "viewer", [], 600), 403),
        (served.ca.issue("n0001", "node", [], -60), 401),
        (stranger, 401),
    ]
    for issued, status in people:
        async with served.client(issued) as client:
            for path in (FILE, f"/images/chunks/{NAME}"):
                answer = await client.get(path)
                assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
                assert DATA[:64] not in answer.content


@pytest.mark.parametrize(
    "path",
    [
        f"/images/blobs/sha256/{NAME}",
        f"/images/squashfs/../blobs/sha256/{NAME}",
        f"/images/squashfs/%2e%2e/blobs/sha256/{NAME}",
        "/images/squashfs/../../ca/ca.key",
        "/images/squashfs/..%2f..%2fca%2fca.key",
        "/images/",
        "/images/squashfs/",
        f"/images/squashfs/{NAME.upper()}.squashfs",
        f"/images/squashfs/{NAME}.squashfs%00",
        f"/images/squashfs/{'0' * 64}.squashfs",
    ],
)
async def test_no_other_path_leads_to_a_file(served: Served, path: str) -> None:
    async with served.node() as client:
        answer = await client.send(
            client.build_request("GET", httpx.URL(str(client.base_url)).copy_with(raw_path=path.encode()))
        )
    # 503: it is no longer below /images, and nobody is behind the door here. 500: what nginx says of a NUL in a path.
    assert answer.status_code in (400, 404, 500, 503)
    assert b"a layer" not in answer.content
    assert DATA[:64] not in answer.content


def test_a_node_cannot_ask_which_files_there_are() -> None:
    # Certificates of earlier boots still fetch files until they end: only those whose names they were told then.
    assert {str(right) for right in RIGHTS["node"]} == {"read self"}


async def test_many_ranges_at_once_do_not_multiply_the_answer(served: Served) -> None:
    many = ",".join(f"{start}-" for start in range(200))
    async with served.node() as client:
        answer = await client.get(FILE, headers={"Range": f"bytes={many}"})
        beyond = await client.get(FILE, headers={"Range": "bytes=99999999-"})
    assert len(answer.content) <= len(DATA)
    assert beyond.status_code == 416


async def test_images_are_read_only(served: Served) -> None:
    async with served.node() as client:
        for method in ("PUT", "POST", "DELETE"):
            assert (await client.request(method, FILE, content=b"x")).status_code == 405
    assert served.shelf.squashfs(f"sha256:{NAME}").read_bytes() == DATA
