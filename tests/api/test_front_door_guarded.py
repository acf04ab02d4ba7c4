"""What strangers at the front door cannot do, with the real nginx: be root, pass for nginx, fill the disk, take all
connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nginx_site import Site, children, made_site, opened_site, until
from route_table import PROTECTED, concrete

from strata.api import web_account as account_module
from strata.api.nginx import Nginx
from strata.api.raw_body import Bodies
from strata.api.services import Limits, Watchers
from strata.api.web_account import ACCOUNT, web_account
from strata.core.errors import BadRequest, Unavailable
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.nodes.records import NodeSpec

pytestmark = [pytest.mark.server, pytest.mark.slow]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

FORGED = {
    "X-Strata-Client-Verify": "SUCCESS",
    "X-Strata-Client-Serial": "AB",
    "X-Strata-Client-DN": "OU=role:admin,CN=mallory,O=Strata",
}

CONNECT = """
import json, os, pwd, socket, sys
uid = int(sys.argv[2])
os.setgroups([]); os.setgid(pwd.getpwuid(uid).pw_gid); os.setuid(uid)
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(60)
try:
    sock.connect(sys.argv[1])
    head = "".join(f"{name}: {value}\\r\\n" for name, value in json.loads(sys.argv[3]).items())
    sock.sendall(f"GET /v1/auth/whoami HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n{head}\\r\\n".encode())
    answer = b""
    while piece := sock.recv(65536):
        answer += piece
    print(answer.split(b" ")[1].decode() if answer else "nothing")
except OSError as error:
    print(type(error).__name__)
"""


async def says(socket: Path, uid: int, headers: dict[str, str]) -> str:
    """The status that a process of that account is answered at the socket, or how it fails."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CONNECT, str(socket), str(uid), json.dumps(headers)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def public() -> Iterator[Path]:
    """A state directory that everybody may walk into."""
    with tempfile.TemporaryDirectory(prefix="strata-door-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o755])
async def test_workers_have_an_account_of_their_own_however_the_state_directory_is_closed(
    tmp_path: Path, mode: int
) -> None:
    tmp_path.chmod(mode)
    async with opened_site(tmp_path) as site:
        async with site.client(site.ca.issue("a", "viewer", [], 60)) as client:
            assert (await client.get("/v1/auth/whoami")).json()["name"] == "a"
        assert site.nginx.pid is not None
        workers = children(site.nginx.pid)
        assert workers
        own = pwd.getpwnam(ACCOUNT)
        for worker in workers:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{worker}/status").read_text().splitlines())
            assert set(status["Uid"].split()) == {str(own.pw_uid)}
            assert set(status["Gid"].split()) | set(status["Groups"].split()) == {str(own.pw_gid)}
            assert int(status["CapEff"], 16) == 0
        assert tmp_path.stat().st_mode & 0o777 == mode
        assert (tmp_path / "web").stat().st_mode & 0o777 == 0o710
        assert (tmp_path / "nginx").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "nginx" / "nginx.conf").stat().st_mode & 0o777 == 0o600


@as_root
@pytest.mark.parametrize("name", ["www-data", "nobody"])
async def test_another_account_does_not_get_to_the_socket_behind_nginx(public: Path, name: str) -> None:
    async with opened_site(public) as site:
        socket, uid = site.door.upstream, pwd.getpwnam(name).pw_uid
        assert await says(socket, uid, FORGED) == "PermissionError"
        socket.parent.chmod(0o755)
        socket.chmod(0o666)
        whole = {**FORGED, "X-Strata-Front-Secret": site.door.secret}
        assert await says(socket, uid, whole) in ("nothing", "ConnectionResetError", "BrokenPipeError")


@as_root
async def test_whoever_speaks_at_the_socket_without_the_secret_is_nobody(public: Path) -> None:
    async with opened_site(public) as site:
        for uid in (0, pwd.getpwnam(ACCOUNT).pw_uid):
            for wrong in ({}, {"X-Strata-Front-Secret": ""}, {"X-Strata-Front-Secret": site.door.secret[:-1]}):
                assert await says(site.door.upstream, uid, FORGED | wrong) == "403"
            assert await says(site.door.upstream, uid, FORGED | {"X-Strata-Front-Secret": site.door.secret}) == "200"


async def test_the_secret_of_a_client_is_not_passed_on(tmp_path: Path) -> None:
    async with opened_site(tmp_path) as site, site.client() as client:
        for name in ("X-Strata-Front-Secret", "x-strata-front-secret", "X_Strata_Front_Secret"):
            answer = await client.get("/v1/auth/whoami", headers={**FORGED, name: "0" * 64})
            assert answer.status_code == 401, "nginx said its own, and that no certificate was shown"


async def test_the_secret_is_another_one_at_each_start_and_shows_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with made_site(tmp_path / "a") as one, made_site(tmp_path / "b") as other:
        assert one.door.secret != other.door.secret
        assert one.door.secret not in repr(one.door) + repr(one.service.services)


@as_root
def test_root_is_no_account_for_workers_and_one_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRequest, match="must not be root"):
        web_account("root")
    monkeypatch.setattr(account_module, "_FOLDERS", "/nonexistent")
    with pytest.raises(Unavailable, match=r"useradd --system .* strata-nobody"):
        web_account("strata-nobody")


@as_root
def test_many_processes_that_start_at_once_make_one_account(tmp_path: Path) -> None:
    """Against a useradd that is as rude as the real one: whoever comes second finds it locked, or done."""
    passwd, lock = tmp_path / "passwd", tmp_path / "lock"
    useradd = tmp_path / "useradd"
    useradd.write_text(
        f"""#!/bin/sh
PATH=/usr/bin:/bin
for name; do :; done
mkdir {lock} 2>/dev/null || {{ echo "cannot lock /etc/passwd" >&2; exit 1; }}
if grep -q "^$name:" {passwd}; then rmdir {lock}; exit 9; fi
sleep 0.2
echo "$name:x:4242:4242::/nonexistent:/usr/sbin/nologin" >> {passwd}
rmdir {lock}
"""
    )
    useradd.chmod(0o755)
    passwd.touch()
    script = """
import pwd, sys
from pathlib import Path
from strata.api import web_account as module
def find(name):
    for line in Path(sys.argv[1]).read_text().splitlines():
        parts = line.split(":")
        if parts[0] == name:
            return pwd.struct_passwd((*parts[:2], int(parts[2]), int(parts[3]), *parts[4:]))
module._find = find
module._FOLDERS = sys.argv[2]
print(module.web_account("strata-many").pw_uid)
"""
    running = [
        subprocess.Popen([sys.executable, "-c", script, passwd, tmp_path], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [process.communicate()[0].strip() for process in running] == ["4242"] * 4
    assert len(passwd.read_text().splitlines()) == 1


# bodies


def written(site: Site) -> int:
    """Bytes of what nginx has on the disk, its log and configuration aside."""
    return sum(path.stat().st_size for path in (site.door.directory / "tmp").rglob("*") if path.is_file())


def put_aside(site: Site) -> list[str]:
    """Files below the state directory that workers have open."""
    assert site.nginx.pid is not None
    names = []
    for worker in children(site.nginx.pid):
        for link in Path(f"/proc/{worker}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                name = str(link.readlink())
                if name.startswith(str(site.directory)) and "/tmp/" in name.removeprefix(str(site.directory)):
                    names.append(name)
    return names


class Sender:
    """One connection over TLS, byte by byte."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def __aenter__(self) -> Sender:
        context = ssl.create_default_context(cadata=self._site.ca.pem.decode())
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._site.door.port, ssl=context)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()

    async def begin(self, path: str, length: int, method: str = "POST", **headers: str) -> None:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
        self.writer.write(f"{head}{more}\r\n".encode())
        await self.writer.drain()

    async def status(self) -> int:
        async with asyncio.timeout(60):
            return int((await self.reader.readuntil(b"\r\n")).split()[1])


PIECE = b" " * 2**20


async def test_a_body_of_a_stranger_is_refused_before_it_has_come_and_leaves_nothing_on_the_disk(
    tmp_path: Path,
) -> None:
    async with opened_site(tmp_path) as site:
        for path in ("/v1/apply", "/v1/image-uploads/" + "0" * 32 + "?offset=0", "/capmc/set_power_cap", "/peer/v1/x"):
            async with Sender(site) as sender:
                await sender.begin(path, 60 * 2**20, "PUT" if "uploads" in path else "POST")
                with contextlib.suppress(OSError):
                    for _ in range(8):
                        sender.writer.write(PIECE)
                        await sender.writer.drain()
                assert put_aside(site) == []
                assert written(site) == 0
                assert await sender.status() == 401, path


async def test_a_body_that_stops_coming_is_given_up_and_was_never_on_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of somebody who may send it: the service has begun to read."""
    caplog.set_level("INFO")
    async with opened_site(tmp_path, body_pause=0.5) as site, Sender(site) as sender:
        token = await site.service.token("admin")
        await sender.begin("/v1/apply", 60 * 2**20, Authorization=f"Bearer {token}")
        for _ in range(8):
            sender.writer.write(PIECE)
            await sender.writer.drain()
        assert put_aside(site) == []
        assert written(site) == 0
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await sender.status()
        await until(lambda: "unexpectedly" in caplog.text or "POST /v1/apply" in caplog.text)
        assert "unexpectedly" not in caplog.text


@pytest.mark.parametrize("path", ["/v1/apply", "/agent/v1/hello", "/redfish/v1/Systems", "/capmc/set_power_cap"])
async def test_a_body_that_drips_ends_all_the_same(tmp_path: Path, path: str) -> None:
    limits = Limits(body_time=0.5, body_rate=2**20)
    async with opened_site(tmp_path, layers=True, limits=limits, body_pause=60) as site, Sender(site) as sender:
        token = await site.service.token("admin")
        await sender.begin(path, 60_000, Authorization=f"Bearer {token}")
        ended = asyncio.ensure_future(sender.status())
        async with asyncio.timeout(60):
            while not ended.done():
                with contextlib.suppress(OSError):
                    sender.writer.write(b" ")
                    await sender.writer.drain()
                await asyncio.wait([ended], timeout=0.1)
        assert await ended in (408, 405 if "redfish" in path else 408)


async def test_large_bodies_have_a_bound_together_and_small_ones_come_through_all_the_same(tmp_path: Path) -> None:
    async with opened_site(tmp_path, limits=Limits(bodies=4 * 2**20)) as site:
        bodies, token = site.service.services.get(Bodies), await site.service.token("admin")
        async with Sender(site) as first, Sender(site) as second:
            for sender in (first, second):
                await sender.begin("/v1/apply", 60 * 2**20, Authorization=f"Bearer {token}")
            for _ in range(3):
                first.writer.write(PIECE)
                await first.writer.drain()
            await until(lambda: bodies.held == 3 * 2**20)
            with contextlib.suppress(OSError):
                for _ in range(3):
                    second.writer.write(PIECE)
                    await second.writer.drain()
            assert await second.status() == 503
            async with site.client(Authorization=f"Bearer {token}") as client:
                hold = {"select": "absent", "reason": "x" * 200}
                assert (await client.post("/v1/holds", json=hold)).status_code < 500
        await until(lambda: bodies.held == 0)


async def test_bodies_that_belong_there_come_through_whole_and_large(tmp_path: Path) -> None:
    async with opened_site(tmp_path, layers=True) as site:
        token = await site.service.token("admin")
        async with site.client(Authorization=f"Bearer {token}") as client:
            ident = (await client.post("/v1/image-uploads")).json()["id"]
            piece = os.urandom(16 * 2**20)
            sent = await client.put(
                f"/v1/image-uploads/{ident}?offset=0",
                content=piece,
                headers={"Content-Type": "application/octet-stream"},
                timeout=60,
            )
            assert (sent.status_code, sent.json()["size"]) == (200, len(piece)), sent.text
            padded = b'{"select": "absent", "reason": "x"' + b" " * (40 * 2**20) + b"}"
            large = await client.post(
                "/v1/holds", content=padded, headers={"Content-Type": "application/json"}, timeout=60
            )
            assert large.status_code < 500 and large.status_code != 413, large.text
            elsewhere = await client.post("/elsewhere", content=b" " * (2**20 + 1))
            assert (elsewhere.status_code, elsewhere.headers["content-type"]) == (413, "application/problem+json")
        async with Sender(site) as sender:
            await sender.begin("/v1/holds", site.door.body + 1, Authorization=f"Bearer {token}")
            assert await sender.status() == 413
        assert written(site) == 0


async def test_a_large_answer_that_is_taken_slowly_is_not_put_on_the_disk(tmp_path: Path) -> None:
    async with opened_site(tmp_path) as site, Sender(site) as sender:
        many = [NodeSpec(name=f"n{number:05}", labels={"a": "x" * 60}) for number in range(10_000)]
        await site.service.service.create_nodes(LOCAL_ADMIN, many)
        token = await site.service.token("viewer")
        await sender.begin("/v1/nodes?limit=10000", 0, "GET", Authorization=f"Bearer {token}", Connection="close")
        size = 0
        async with asyncio.timeout(60):
            while piece := await sender.reader.read(256 * 1024):
                size += len(piece)
                assert put_aside(site) == []
        assert size > 4 * 2**20


async def test_a_push_with_a_token_that_was_given_to_nobody_is_not_read(tmp_path: Path) -> None:
    async with opened_site(tmp_path, layers=True) as site, Sender(site) as sender:
        await sender.begin(f"/v1/hardware/events/in/{'0' * 48}.1", 50_000)
        assert await sender.status() == 403


async def test_nobodys_body_is_read_on_any_route_before_the_right_is_looked_at(tmp_path: Path) -> None:
    async with made_site(tmp_path, layers=True) as site:
        token = await site.service.token("node")

        async def never() -> dict[str, object]:
            raise AssertionError("the body was read")

        for door, authorization, expected in (("front", b"", 401), ("admin", f"Bearer {token}".encode(), 403)):
            app = site.service.app(door)  # type: ignore[arg-type]
            others = [("POST", "/capmc/set_power_cap", None), ("POST", "/redfish/v1/Systems/n000", None)]
            for method, path, right in [*PROTECTED, *others]:
                if right is not None and right.kind == "self":
                    continue
                statuses: list[int] = []

                async def sent(message: dict[str, object], statuses: list[int] = statuses) -> None:
                    if message["type"] == "http.response.start":
                        statuses.append(int(str(message["status"])))

                headers = [
                    (b"x-strata-front-secret", site.door.secret.encode()),
                    (b"content-type", b"application/json"),
                    (b"content-length", b"1000000"),
                ]
                if authorization:
                    headers.append((b"authorization", authorization))
                where = concrete(path)
                scope = {
                    "type": "http",
                    "method": method,
                    "path": where,
                    "raw_path": where.encode(),
                    "query_string": b"",
                    "headers": headers,
                    "client": None,
                    "server": ("x", 80),
                    "scheme": "http",
                    "http_version": "1.1",
                    "asgi": {"version": "3.0"},
                }
                await app(scope, never, sent)
                assert statuses[0] in (expected, 405), (door, method, path, statuses)


# connections


async def test_strangers_of_one_address_leave_room_and_nodes_are_not_counted(tmp_path: Path) -> None:
    async with opened_site(tmp_path, per_address=2) as site:
        token = await site.service.token("viewer")
        async with contextlib.AsyncExitStack() as held:
            for _ in range(2):
                client = await held.enter_async_context(site.client(Authorization=f"Bearer {token}"))
                answer = await held.enter_async_context(client.stream("GET", "/v1/watch"))
                assert answer.status_code == 200
            async with site.client() as stranger:
                for path in ("/v1/health", "/redfish/v1/"):
                    refused = await stranger.get(path)
                    assert refused.status_code == 429, refused.text
                    assert refused.json()["status" if path == "/v1/health" else "error"]
            async with site.client(site.ca.issue("n0001", "node", [], 60)) as node:
                assert (await node.get("/v1/health")).status_code == 200
        await until(lambda: site.service.services.get(Watchers).count == 0)

        async def lets_in() -> bool:
            async with site.client() as stranger:
                return (await stranger.get("/v1/health")).status_code == 200

        async with asyncio.timeout(60):
            while not await lets_in():  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_what_nginx_was_handed_is_let_go_when_it_ends(tmp_path: Path) -> None:
    async with made_site(tmp_path) as site:
        before = len(list(Path("/proc/self/fd").iterdir()))
        nginx = Nginx(site.door)
        await nginx.start()
        await nginx.stop()
        assert len(list(Path("/proc/self/fd").iterdir())) <= before
