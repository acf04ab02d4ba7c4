"""Several controllers in one process, over one store: what each fetches from the others goes through a wire that can
be cut, can stall, can lie and can die midway."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec

from strata.core.errors import Unavailable
from strata.provisioning.images.records import LayerRecord, Made
from strata.provisioning.images.release import CHUNK, ImageConfig, Release
from strata.provisioning.images.repository import Images
from strata.provisioning.minos.artefacts import Artefact, Artefacts, Input, Manifest, Part
from strata.provisioning.minos.soundness import Soundness
from strata.provisioning.replication.files import ReadRequest
from strata.provisioning.replication.replication import Replication
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Delete, Put
from support.alarms import Alarms


class Wire:
    """What happens to reads at one controller."""

    def __init__(self) -> None:
        self.away = False
        self.stalls = False
        self.lies = False
        self.held: asyncio.Event | None = None
        """Reads wait for it."""
        self.dies_after: int | None = None
        """Reads that still go well."""
        self.asked: list[tuple[str, int]] = []

    async def carry(self, name: str, offset: int, data: bytes) -> bytes:
        self.asked.append((name, offset))
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.away = True
        if self.away:
            raise Unavailable("no connection")
        if self.held is not None:
            await self.held.wait()
        if self.stalls:
            await asyncio.Event().wait()
        return bytes([data[0] ^ 1]) + data[1:] if self.lies and data else data


class FakeController:
    """One of them. ``start``, ``stop`` (and again): the files stay."""

    def __init__(self, site: FakeControllers, name: str, directory: Path) -> None:
        self.site, self.name, self.directory = site, name, directory
        self.wire = Wire()
        self.silence = 10.0
        self.alarms = Alarms()
        if not (directory / "signing").exists():
            shutil.copytree(site.signing, directory / "signing")
        self.artefacts = Artefacts(directory / "minos")
        self.images: Images
        self.replication: Replication

    async def start(self) -> None:
        signer = Signer.open(self.directory / "signing")
        ledger = Ledger(self.site.store)
        self.images = Images(self.directory / "images", self.site.store, ledger, signer, self.alarms.append)
        await self.images.start()
        self.replication = Replication(
            self.site.store,
            ledger,
            self.images,
            self.artefacts.root,
            Soundness(self.artefacts.root, signer.public_pem, self.alarms.append),
            signer,
            self.alarms.append,
            me=self.name,
            announce=self._announce,
            others=lambda: [one.name for one in self.site.running if one is not self],
            read=self._read,
            silence=self.silence,
        )
        self.site.running.append(self)
        await self.replication.start()

    async def stop(self) -> None:
        """Go as one does whose lease ends."""
        self.site.running.remove(self)
        await self.replication.stop()
        await self.images.stop()
        await self.site.settled()
        await self.site.store.txn([Delete(f"holding/{self.name}")])

    async def take(self, reference: str, *, size: int = 3 * CHUNK + 17, seed: int = 1) -> Release:
        """An image, without the work of making one."""
        made = an_image(self.images, size, seed)
        return await self.images.catalogue.put("alice", made, reference)

    def build(self, content: str, arch: str = "x86_64") -> Artefact:
        """A minimal OS, as ``strata minos build`` leaves it."""
        kernel, initrd = f"kernel {content}".encode(), f"initrd {content}".encode() * 1000
        manifest = Manifest(
            arch=arch,
            kernel="6.1",
            inputs=(Input(name="busybox", version="1", sha256="00"),),
            agent="00",
            files="00",
            modules=(),
            unpacked=1,
            vmlinuz=Part(size=len(kernel), sha256=hashlib.sha256(kernel).hexdigest()),
            initrd=Part(size=len(initrd), sha256=hashlib.sha256(initrd).hexdigest()),
        )
        return self.artefacts.add(manifest, kernel, initrd, Signer.open(self.directory / "signing"))

    def has(self, release: Release) -> bool:
        """Whether every file is here, and is what it should be."""
        made = self.images.catalogue.made.get(release.image)
        if made is None:
            return False
        shelf = self.images.shelf
        paths = {shelf.squashfs(made.squashfs): made.squashfs, shelf.chunks(made.chunks): made.chunks}
        paths |= {shelf.blob(digest): digest for digest in (made.image, made.config_digest, made.layers[0].digest)}
        paths[shelf.listing(made.image)] = made.listing
        return all(path.exists() and sha(path.read_bytes()) == digest for path, digest in paths.items())

    def files(self) -> list[str]:
        """Every file of images here, whole or not."""
        folders = ("blobs/sha256", "squashfs", "chunks", "listings", "incoming", "work")
        return sorted(path.name for folder in folders for path in (self.images.shelf.root / folder).iterdir())

    def _announce(self, key: str, value: bytes) -> None:
        self.site.tasks.append(asyncio.ensure_future(self.site.store.txn([Put(key, value)])))

    async def _read(self, controller: str, name: str, offset: int, length: int) -> bytes:
        other = next((one for one in self.site.running if one.name == controller), None)
        if other is None:
            raise Unavailable(f"controller {controller} is away")
        asked = ReadRequest(name=name, offset=offset, length=length)
        data = await other.replication.library.answer(self.name, msgspec.json.encode(asked))
        return await other.wire.carry(name, offset, data)


class FakeControllers:
    """The site."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.signing = directory / "signing"
        Signer.open(self.signing)
        self.store = MemoryStore()
        self.running: list[FakeController] = []
        self.tasks: list[asyncio.Future[int]] = []

    async def controller(self, name: str) -> FakeController:
        """One more, started."""
        made = FakeController(self, name, self.directory / name)
        await made.start()
        return made

    async def settled(self) -> None:
        await asyncio.gather(*self.tasks)
        self.tasks.clear()

    async def stop(self) -> None:
        for one in list(self.running):
            await one.stop()
        await self.store.close()


def an_image(images: Images, size: int, seed: int) -> Made:
    """Its files in place, and its record."""
    shelf, random_ = images.shelf, random.Random(seed)
    squashfs, layer, listing = random_.randbytes(size), random_.randbytes(9000), random_.randbytes(100)
    chunks = b"".join(hashlib.sha256(squashfs[at : at + CHUNK]).digest() for at in range(0, size, CHUNK))
    manifest, config = b"manifest" + random_.randbytes(8), b"config" + random_.randbytes(8)
    shelf.squashfs(sha(squashfs)).write_bytes(squashfs)
    shelf.chunks(sha(chunks)).write_bytes(chunks)
    for blob in (manifest, config, layer):
        shelf.add_bytes(blob)
    shelf.listing(sha(manifest)).write_bytes(listing)
    return Made(
        image=sha(manifest),
        config_digest=sha(config),
        config=ImageConfig(),
        architecture="amd64",
        layers=(LayerRecord(digest=sha(layer), size=len(layer)),),
        squashfs=sha(squashfs),
        size=size,
        chunks=sha(chunks),
        files=1,
        unpacked=1,
        packages=0,
        left_out=0,
        created=1.0,
        listing=sha(listing),
    )


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
