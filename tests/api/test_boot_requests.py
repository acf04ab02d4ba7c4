"""Boot profiles, scripts and status: over REST with the real service, and with the ``strata boot`` command."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_service import BUILD, RealService, real_service

from strata.api.nginx import Nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.api.server import ApiServer
from strata.api.services import FrontSecret
from strata.cli import main
from strata.fleet.access.authority import Authority
from strata.fleet.settings import admin_socket
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.methods import BootWays
from strata.provisioning.boot.service import BootService
from strata.provisioning.settings import media_dir
from support.signed_builds import put_build

pytestmark = pytest.mark.slow


class Running:
    """The running service, and what was said to it."""

    def __init__(self, real: RealService, state: Path) -> None:
        self.real = real
        self.state = state

    async def run(self, *arguments: str) -> tuple[int, str, str]:
        """One command line, in a thread of its own."""

        def go() -> tuple[int, str, str]:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main.run(["--url", f"unix:{admin_socket(self.state)}", *arguments])
            return code, out.getvalue(), err.getvalue()

        return await asyncio.to_thread(go)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Running]:
    async with real_service(tmp_path) as real, contextlib.AsyncExitStack() as parts:
        async with real.client() as client:
            boot = {"mac": "52:54:00:00:01:01", "address": "127.1.1.1", "name": "boot"}
            nodes = [{"name": "b1", "interfaces": [boot]}, {"name": "b2"}]
            assert (await client.post("/v1/nodes", json={"nodes": nodes})).status_code < 300
        real.learn()
        state = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="st-")))
        server = ApiServer(real.services, admin_socket(state), state / "front.sock")
        await server.start()
        parts.push_async_callback(server.stop)
        yield Running(real, state)


async def test_profiles_are_made_changed_and_deleted_over_rest(site: Running) -> None:
    async with site.real.client() as client:
        found = (await client.get("/v1/boot/profiles")).json()["items"]
        assert [(one["name"], one["build"], one["revision"]) for one in found] == [("default", BUILD, 0)]
        made = await client.put("/v1/boot/profiles/debug", json={"parameters": "loglevel=7"})
        assert made.status_code == 200
        assert made.json()["command_line"] == "console=ttyS0,115200 panic=10 loglevel=7"
        stale = await client.put("/v1/boot/profiles/debug", json={}, headers={"If-Match": '"1"'})
        assert stale.status_code == 412
        again = await client.put("/v1/boot/profiles/debug", json={}, headers={"If-None-Match": "*"})
        assert again.status_code == 412
        secret = await client.put("/v1/boot/profiles/debug", json={"parameters": "password=hunter2"})
        assert secret.status_code == 400
        assert "hunter2" not in secret.text
        gone = await client.delete("/v1/boot/profiles/debug", headers={"If-Match": made.headers["etag"]})
        assert gone.status_code == 204
        assert (await client.get("/v1/boot/profiles/debug")).status_code == 404
        assert (await client.delete("/v1/boot/profiles/default")).status_code == 409
        actions = [entry["action"] for entry in (await client.get("/v1/audit")).json()["items"]]
        assert "boot-profile.put" in actions and "boot-profile.delete" in actions


async def test_a_profile_that_a_node_is_wanted_to_boot_is_in_its_script_and_stays(site: Running) -> None:
    async with site.real.client() as client:
        await client.put("/v1/boot/profiles/debug", json={"parameters": "loglevel=7"})
        wanted = await client.post("/v1/desires", json={"select": "b1", "set": {"minos": "debug"}})
        assert wanted.status_code == 200, wanted.text
        script = (await client.get("/v1/boot/nodes/b1/script")).json()
        assert script["generation"] == 1
        assert "loglevel=7" in script["script"] and "/boot/fragment/b1/1" in script["script"]
        refused = await client.delete("/v1/boot/profiles/debug")
        assert refused.status_code == 409
        assert "it is set on 1 node" in refused.json()["detail"]


async def test_a_node_gets_no_script_for_what_it_must_not_boot_and_is_told_why(site: Running) -> None:
    minos = site.real.of(Builds).root
    arm = put_build(minos, minos.parent / "signing", arch="aarch64")
    async with site.real.client() as client:
        script = await client.get("/v1/boot/nodes/b1/script")
        assert script.status_code == 200 and f"/{BUILD}/vmlinuz" in script.text
        made = (await client.put("/v1/boot/profiles/arm", json={"minos": arm})).json()
        assert (made["build"], made["builds"]) == (arm, {"aarch64": arm})
        usual = (await client.get("/v1/boot/profiles/default")).json()
        assert (usual["build"], usual["builds"]) == (BUILD, {"x86_64": BUILD, "aarch64": arm})
        await client.post("/v1/desires", json={"select": "b1", "set": {"minos": "arm"}})
        refused = await client.get("/v1/boot/nodes/b1/script")
        assert refused.status_code == 409
        assert "for aarch64, and cannot be booted on x86_64" in refused.json()["detail"]
        why = site.real.of(BootWays).cannot_boot("b1")
        assert why.startswith(f"it has nothing to boot: minOS {arm}: it is for aarch64")
        await client.post("/v1/desires", json={"select": "b1", "set": {"minos": "default"}})
        assert site.real.of(BootWays).cannot_boot("b1") == ""
        with (minos / BUILD / "initrd").open("ab") as file:
            file.write(b"more")
        refused = await client.get("/v1/boot/nodes/b1/script")
        assert refused.status_code == 409
        assert "initrd is not as its manifest says" in refused.json()["detail"]
        assert "initrd is not as its manifest says" in site.real.of(BootWays).cannot_boot("b1")


async def test_who_may_only_look_changes_nothing_and_nodes_see_nothing(site: Running) -> None:
    for role, read, change in (("viewer", 200, 403), ("operator", 200, 403), ("node", 403, 403)):
        token = await site.real.token(role)  # type: ignore[arg-type]
        async with site.real.client("front", token) as client:
            assert (await client.get("/v1/boot/nodes")).status_code == read
            assert (await client.put("/v1/boot/profiles/x", json={})).status_code == change
            assert (await client.post("/v1/boot/nodes/b1/revoke")).status_code == change


async def test_status_is_paged_by_name(site: Running) -> None:
    async with site.real.client() as client:
        names: list[str] = []
        cursor: dict[str, Any] = {}
        while True:
            page = (await client.get("/v1/boot/nodes", params={"limit": 7, **cursor})).json()
            names += [item["node"] for item in page["items"]]
            if not page["next"]:
                break
            cursor = {"cursor": page["next"]}
        assert names == sorted([*site.real.nodes, "b1", "b2"])


async def test_a_certificate_can_be_revoked(site: Running) -> None:
    async with site.real.client() as client:
        response: httpx.Response = await client.post("/v1/boot/nodes/b1/revoke")
        assert response.status_code == 200, response.text
        assert response.json()["serial"] == ""
        assert (await client.post("/v1/boot/nodes/nobody/revoke")).status_code == 404


async def test_the_command_does_all_of_it(site: Running) -> None:
    code, out, err = await site.run("boot", "profile", "set", "debug", "--parameters", "loglevel=7")
    assert code == 0, err
    assert "loglevel=7" in out
    code, out, _ = await site.run("boot", "profile", "set", "debug", "--description", "talkative", "--json")
    assert code == 0
    assert (json.loads(out)["parameters"], json.loads(out)["description"]) == ("loglevel=7", "talkative")
    code, out, _ = await site.run("boot", "profile", "set", "default", "--parameters", "quiet")
    assert code == 0
    code, out, _ = await site.run("boot", "profile", "list", "--json")
    assert [one["name"] for one in json.loads(out)] == ["debug", "default"]
    code, out, _ = await site.run("boot", "profile", "show", "debug")
    assert "quiet loglevel=7" in out
    code, out, _ = await site.run("boot", "script", "b1")
    assert out.startswith("#!ipxe\n")
    code, _, err = await site.run("boot", "script", "b2")
    assert code == 1 and "no address on a boot network" in err
    code, out, _ = await site.run("boot", "status", "b1")
    assert code == 0 and "b1" in out and "GENERATION" in out.upper()
    code, out, _ = await site.run("boot", "revoke", "b1")
    assert code == 0
    code, out, _ = await site.run("boot", "profile", "delete", "debug")
    assert code == 0 and "deleted" in out


@pytest.fixture
async def door(site: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A client that comes in through nginx."""
    authority = site.real.services.get(Authority)
    assert authority is not None
    authority.renew_server(["127.0.0.1"])
    nginx = Nginx(
        FrontDoor(
            directory=site.state / "nginx",
            host="127.0.0.1",
            port=free_port("127.0.0.1"),
            upstream=site.state / "front.sock",
            secret=site.real.services.get(FrontSecret).value,
            certificate=authority.server_paths[0],
            key=authority.server_paths[1],
            ca=authority.certificate_path,
            workers=1,
            connections=64,
            media=media_dir(site.real.service.settings.state_dir),
        )
    )
    await nginx.start()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    async with httpx.AsyncClient(base_url=f"https://127.0.0.1:{nginx.door.port}", verify=context) as client:
        yield client
    await nginx.stop()


@pytest.mark.server
async def test_a_medium_is_sent_by_a_name_that_nobody_can_guess(site: Running, door: httpx.AsyncClient) -> None:
    boot = site.real.of(BootService)
    assert boot is not None
    name = (await boot.begin_from_medium("b1")).rpartition("/")[2]
    file = boot.medium(name)
    assert file is not None
    whole = (media_dir(site.real.service.settings.state_dir) / file).read_bytes()
    head = await door.head(f"/v1/boot/media/{name}")
    assert (head.status_code, int(head.headers["content-length"])) == (200, len(whole))
    assert head.headers["content-type"] == "application/x-iso9660"
    part = await door.get(f"/v1/boot/media/{name}", headers={"Range": "bytes=32768-34815"})
    assert (part.status_code, part.content) == (206, whole[32768:34816])
    for path in (f"/v1/boot/media/{'A' * 43}.iso", f"/boot-media-file/{file}", "/v1/boot/media/..%2fca.iso"):
        assert (await door.get(path)).status_code in (400, 401, 404), path
    assert name not in (site.state / "nginx" / "nginx.log").read_text()
    later = (await boot.begin_from_medium("b1")).rpartition("/")[2]
    assert (await door.get(f"/v1/boot/media/{name}")).status_code == 404, "it is the medium of a boot before"
    assert (await door.get(f"/v1/boot/media/{later}")).status_code == 200
