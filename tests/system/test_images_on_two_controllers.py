"""Two controllers, each with a disk of its own: images and minimal OSes are on both, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from system_support import Controller, World, eventually, strata

from strata.provisioning.minos.artefacts import Artefacts, Manifest, Part
from strata.provisioning.signing import Signer
from support.etcd_cluster import EtcdCluster

pytestmark = [pytest.mark.server, pytest.mark.slow]

MIB = 1 << 20


def kill_machine(controller: Controller) -> None:
    """As if the machine of a controller lost its power: its front door is gone too."""
    door = int((controller.state / "nginx/nginx.pid").read_text())
    controller.kill()
    with contextlib.suppress(ProcessLookupError):  # it ends with the service by itself, sometimes sooner
        os.kill(door, signal.SIGTERM)


def noise(path: Path, size: int) -> Path:
    """An archive of files that nothing makes smaller."""
    with tarfile.open(path, "w") as tar:
        folder = tarfile.TarInfo("etc")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        header = tarfile.TarInfo("etc/noise")
        header.size = size
        tar.addfile(header, io.BytesIO(random.Random(size).randbytes(size)))
    return path


def size(folder: Path) -> int:
    """Bytes of the files in it, which may come and go meanwhile."""
    found = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def built(controller: Controller, content: bytes) -> str:
    """A minimal OS, as ``strata minos build`` leaves it beside a running service."""
    part = Part(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    manifest = Manifest(
        arch="x86_64", kernel="6", inputs=(), agent="", files="", modules=(), unpacked=1, vmlinuz=part, initrd=part
    )
    signer = Signer.open(controller.state / "signing")
    return Artefacts(controller.state / "minos").add(manifest, content, content, signer).digest


def served(controller: Controller) -> dict[str, str]:
    """The files of images there, and the digests of what is in them."""
    folder = controller.state / "images"
    files = [path for kind in ("squashfs", "chunks", "blobs/sha256", "listings") for path in (folder / kind).iterdir()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def latest(controller: Controller) -> str:
    done = strata(controller.state, "minos", "show", "--json")
    return str(json.loads(done.out)["digest"]) if done.code == 0 else ""


@pytest.fixture
def both(world: World, etcd_cluster: EtcdCluster) -> Iterator[tuple[Controller, Controller]]:
    more = ("provisioning", "power", "--set", "hardware.consoles=false", "--set", "hardware.poll=false")
    url = etcd_cluster.url("images")
    first, second = (world.controller(name, None, store=url, tls=True, more=more) for name in ("alpha", "beta"))
    first.start()
    first.wait_ready()
    for folder in ("ca", "signing"):
        shutil.copytree(first.state / folder, second.state / folder)
    second.start()
    second.wait_ready()
    yield first, second
    print(first.tail(), second.tail(), sep="\n")  # for whoever looks at a failure


@pytest.mark.timeout(240)
def test_images_and_minimal_oses_are_on_both_although_one_is_killed_while_it_fetches(
    both: tuple[Controller, Controller], tmp_path: Path
) -> None:
    first, second = both
    build = built(first, b"one" * MIB)
    eventually("the other one boots it too", lambda: latest(second) == build, 30)
    assert strata(second.state, "minos", "verify").code == 0

    archive = noise(tmp_path / "large.tar", 48 * MIB)
    incoming = second.state / "images/incoming"
    with ThreadPoolExecutor() as beside:
        importing = beside.submit(strata, first.state, "image", "import", archive, "--name", "large", "--tag", "1")
        eventually("some of it was fetched", lambda: size(incoming) > 0, 60, every=0.005)
        kill_machine(second)
        left = size(incoming)
    assert importing.result().code == 0, importing.result()
    eventually("it is gone", lambda: first.client.get("/v1/images/large/1")["not_on"] == [], 30)
    assert "controllers" not in strata(first.state, "image", "list").out, "there is only one"

    second.start()
    second.wait_ready()
    eventually("it has both", lambda: second.client.get("/v1/images/large/1")["on"] == ["alpha", "beta"], 30)
    assert served(second) == served(first)
    assert not any(incoming.iterdir())
    assert left > 0
    for controller in both:
        assert "2 of 2" in strata(controller.state, "image", "list").out
        assert "2 of 2: alpha, beta" in strata(controller.state, "image", "show", "large:1").out
    assert strata(second.state, "image", "verify", "large:1").code == 0

    done = strata(second.state, "image", "delete", "large:1")
    assert done.code == 0, done
    assert strata(second.state, "image", "gc", "--keep", "0s").code == 0
    eventually("both have removed it", lambda: served(first) == served(second) == {}, 30)
    other = built(second, b"two" * MIB)
    eventually("the newer one is the latest on both", lambda: latest(first) == other, 30)
    assert strata(first.state, "minos", "remove", build).code == 0
    eventually("it is gone on both", lambda: not (second.state / "minos" / build).exists(), 30)
