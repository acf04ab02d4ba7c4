"""What the provisioning layer of a real service has to show: an image, a set of it, a profile, a node that booted and
whose agent has spoken, a machine that nobody knows, a command that ran.

All of it came about as on a site: what machines say goes through the boot server and the front door.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import msgspec
import numpy as np
from cryptography import x509
from real_service import BUILD, RealService

from strata.provisioning.boot.service import BootService
from strata.provisioning.images.repository import Images
from support.boot_site import boot_json, fetch, make_csr
from support.fake_agents import node_headers
from support.image_support import an_image, file, layer

IMAGE, TAGS = "tiny", ("1", "2")
SET, PROFILE = "nodes", "debug"
MAC = "52:54:00:00:77:01"
"""Of the machine that nobody knows."""
ARCHIVE = an_image(layer(file("etc/motd", b"hello\n"), file("bin/run", b"#!/bin/sh\n", mode=0o755)))


class Ids(msgspec.Struct, kw_only=True):
    """Names that the service made up."""

    upload: str = ""
    """A file that is there and was not imported yet."""
    log: str = ""
    run: str = ""
    """Of a command that ran."""


async def provide(real: RealService, ids: Ids) -> None:
    """Put everything there that is not (any more), but for the boot and the command: see ``live``."""
    async with real.client() as client:
        if (await client.get(f"/v1/images/{IMAGE}/{TAGS[0]}")).status_code == 404:
            body = {"name": IMAGE, "tag": TAGS[0], "upload": await _upload(client)}
            work = _good(await client.post("/v1/images", json=body))
            ids.log = work["log"]
            await real.service.operations.wait(work["operation"]["id"])
        for tag in TAGS:
            source = {"source": f"{IMAGE}:{TAGS[0]}"}
            if (await client.get(f"/v1/images/{IMAGE}/{tag}")).status_code == 404:
                _good(await client.put(f"/v1/images/{IMAGE}/{tag}", json=source))
        members = [{"name": "system", "release": f"{IMAGE}:{TAGS[0]}"}]
        _good(await client.put(f"/v1/personalities/{SET}", json={"members": members}))
        _good(await client.put(f"/v1/boot/profiles/{PROFILE}", json={"parameters": "loglevel=7", "minos": BUILD}))
        if not ids.upload or not real.of(Images).shelf.upload(ids.upload).exists():
            ids.upload = await _upload(client)
    async with real.client("front") as client:
        _good(await client.post("/agent/v1/hello", json={"macs": [MAC], "uuid": "", "serial": "S1", "inventory": {}}))


async def switch_on(real: RealService, name: str) -> None:
    """By hand, at the machine, and until that is seen: a node that is off gets nothing to boot."""
    nodes, controller = real.bmcs.nodes, real.service.controller
    nodes.put(np.array([nodes.names.index(name)]), now=time.monotonic(), power="on")
    controller.look_at(np.array([controller.registry.index_of(name)]))
    await seen(real, name, "on")


async def seen(real: RealService, name: str, power: str) -> None:
    """Until the node's power is known to be so."""
    index = real.service.registry.index_of(name)
    async with asyncio.timeout(60):
        while real.service.view.node(index).facts["power"].value != power:
            await real.service.controller.stepped()


async def live(real: RealService, ids: Ids) -> str:
    """Let the first node boot, its agent attach, and a command be tried on two nodes that have none. The serial of the
    first node's certificate."""
    name = real.nodes[0]
    interface = real.service.registry.node(name).interfaces[0]
    await switch_on(real, name)
    status, body = await fetch(real.of(BootService).server.port, f"/boot/fragment/{name}/1", interface.address)
    assert status == 200, body
    told = boot_json(body)
    csr, _ = make_csr(name)
    async with real.client("front") as client:
        redeemed = _good(await client.post("/agent/v1/redeem", json={"token": told["token"], "csr": csr.decode()}))
        certificate = x509.load_pem_x509_certificate(redeemed["certificate"].encode())
        serial = f"{certificate.serial_number:X}"
        headers = node_headers(name, serial)
        state = {
            "uptime": 5.0,
            "profile": told["profile"],
            "set": {"name": SET, "state": "error", "reason": "system ended"},
        }
        said = {"generation": 1, "boot_id": "b1", "seq": 1, "wait": 0, "state": state}
        _good(await client.post("/agent/v1/exchange", json=said, headers=headers))
        _good(await client.post("/agent/v1/inventory", json={"cpus": 4}, headers=headers))
        lines = {"lines": [[1.0, "kernel", "Linux version"]]}
        _good(await client.post("/agent/v1/log", json=lines, headers=headers))
    async with real.client() as client:
        body = {"select": ",".join(real.nodes[1:3]), "argv": ["uname", "-r"]}
        ids.run = _good(await client.post("/v1/exec", json=body))["id"]
        async with asyncio.timeout(60):
            while _good(await client.get(f"/v1/exec/{ids.run}?after=2&wait=5"))["state"] == "running":
                pass
    return serial


async def _upload(client: httpx.AsyncClient) -> str:
    ident: str = _good(await client.post("/v1/image-uploads"))["id"]
    _good(await client.put(f"/v1/image-uploads/{ident}?offset=0", content=ARCHIVE))
    return ident


def _good(answer: httpx.Response) -> Any:
    assert answer.is_success, (answer.request.url, answer.status_code, answer.text)
    return answer.json()
