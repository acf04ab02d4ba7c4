"""Layers, archives and repositories for tests of images."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from strata.provisioning.images.repository import Images
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from support.alarms import Alarms

Entry = tuple[str, dict[str, Any]]


def layer(*entries: Entry) -> bytes:
    """A tar of entries: ``("etc/motd", {"data": b"hi"})``, ``("a", {"type": tarfile.DIRTYPE})``."""
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, fields in entries:
            header = tarfile.TarInfo(name)
            data = fields.get("data", b"")
            header.size = len(data)
            for key, value in fields.items():
                if key != "data":
                    setattr(header, key, value)
            tar.addfile(header, io.BytesIO(data))
    return into.getvalue()


def file(name: str, data: bytes = b"", **fields: Any) -> Entry:
    return name, {"data": data, **fields}


def folder(name: str, **fields: Any) -> Entry:
    return name, {"type": tarfile.DIRTYPE, "mode": 0o755, **fields}


def symlink(name: str, target: str) -> Entry:
    return name, {"type": tarfile.SYMTYPE, "linkname": target}


def hardlink(name: str, target: str) -> Entry:
    return name, {"type": tarfile.LNKTYPE, "linkname": target}


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def tar_of(files: Iterable[tuple[str, bytes]]) -> bytes:
    return layer(*(file(name, data) for name, data in files))


def image_blobs(*layers: bytes, config: dict[str, Any] | None = None) -> tuple[dict[str, bytes], str]:
    """The blobs of an OCI image with gzipped layers, and its manifest's digest."""
    packed = [gzip.compress(data, 1, mtime=0) for data in layers]
    about = {
        "architecture": "amd64",
        "os": "linux",
        "config": config or {"Entrypoint": ["/bin/run"], "Env": ["A=1"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(data) for data in layers]},
    }
    config_blob = json.dumps(about).encode()
    kind = "application/vnd.oci.image"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": {"mediaType": f"{kind}.config.v1+json", "digest": digest(config_blob), "size": len(config_blob)},
            "layers": [
                {"mediaType": f"{kind}.layer.v1.tar+gzip", "digest": digest(data), "size": len(data)} for data in packed
            ],
        }
    ).encode()
    return {digest(data): data for data in (*packed, config_blob, manifest)}, digest(manifest)


def oci_archive(blobs: dict[str, bytes], manifest: str, **more: bytes) -> bytes:
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": manifest,
        "size": len(blobs[manifest]),
    }
    files = [
        ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        ("index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()),
        *((f"blobs/sha256/{key.removeprefix('sha256:')}", data) for key, data in blobs.items()),
        *((name.replace("_", "."), data) for name, data in more.items()),
    ]
    return tar_of(files)


def an_image(*layers: bytes) -> bytes:
    """A whole archive."""
    return oci_archive(*image_blobs(*layers))


def a_system(*more: Entry) -> bytes:
    """A layer with a system of one program, and ``more``."""
    programs = ("sh", "rm", "mkdir", "cat", "ls")
    return layer(
        folder("bin"),
        file("bin/busybox", Path("/bin/busybox").read_bytes(), mode=0o755),
        *(symlink(f"bin/{name}", "busybox") for name in programs),
        folder("etc"),
        file("etc/old", b"old"),
        *more,
    )


class Site:
    """A repository over a store in memory."""

    def __init__(self, directory: Path, store: MemoryStore | None = None, **options: Any) -> None:
        self.store = store or MemoryStore()
        self.ledger = Ledger(self.store)
        self.alarms = Alarms()
        self.directory = directory
        self.signer = Signer.open(directory / "signing")
        self.images = Images(directory / "images", self.store, self.ledger, self.signer, self.alarms.append, **options)
        self.log = directory / "log"

    async def take(self, archive: bytes, reference: str, **options: Any) -> Any:
        """Upload and import."""
        ident = await self.images.uploads.begin()
        await self.images.uploads.write(ident, 0, archive)
        try:
            return await self.images.take_archive("alice", ident, reference, self.log, **options)
        finally:
            await self.images.uploads.remove(ident)

    async def build(self, reference: str, recipe: str, *more: tuple[str, bytes], name: str = "recipe.yaml") -> Any:
        """Upload a recipe and what is beside it, and build."""
        ident = await self.images.uploads.begin()
        await self.images.uploads.write(ident, 0, tar_of([(name, recipe.encode()), *more]))
        return await self.images.build("alice", ident, reference, self.log)

    def contents(self, release: Any, path: str) -> bytes:
        """A file of an image."""
        command = ["unsquashfs", "-cat", str(self.images.shelf.squashfs(release.squashfs)), path]
        return subprocess.run(command, capture_output=True, check=True).stdout

    def listed(self, release: Any) -> str:
        """The files of an image, as unsquashfs lists them, with numbers for owners."""
        command = ["unsquashfs", "-lln", str(self.images.shelf.squashfs(release.squashfs))]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
