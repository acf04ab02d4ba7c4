"""Images of containers on this machine: fetched once, unpacked once, kept by digest, removed by age.

``roots/DIGEST`` is whole: it comes by being renamed, after its bytes are on the disk. Of several processes that want
one image at the same time, one unpacks it and the others wait; one that is killed leaves nothing that counts. A
container that runs holds a lock on ``used/DIGEST``, whose time says when the image was last wanted. ``names`` has what
each reference stood for when it was last brought.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from strata.core.errors import NotFound
from strata.core.host.removal import remove_tree
from strata.jobs.containers.unpacking import Order, Unpacked, write
from strata.provisioning.images import oci
from strata.provisioning.images.release import check_digest
from strata.provisioning.images.shelf import Shelf
from strata.provisioning.images.tree import MOST_BYTES

KEEP = 30 * 86400.0
"""Seconds that an image is kept after it was last wanted."""
_LEFT_BEHIND = 86400.0
_RECORD = "image.json"


class Image(Unpacked, frozen=True, kw_only=True):
    """An unpacked image."""

    digest: str
    reference: str
    root: str
    used: float = 0.0
    """When it was last wanted."""


def default_folder() -> Path:
    """Where a user's images are, unless the site or the user says otherwise."""
    told = os.environ.get("STRATA_CONTAINERS")
    home = os.environ.get("XDG_CACHE_HOME") or f"{Path.home()}/.cache"
    return Path(told) if told else Path(home) / "strata/containers"


class Cache:
    """The folder. Several processes, of several machines that share a disk, use it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._shelf = Shelf(self._folder / "shelf")

    @property
    def work(self) -> Path:
        """For what is not finished."""
        return self._folder / "work"

    def open(self) -> None:
        """Make what is missing."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in ("roots", "used", "names", "work"):
            (self._folder / name).mkdir(exist_ok=True)
        self._shelf.open()

    # -- finding

    def find(self, digest: str) -> Image | None:
        """The image with this manifest, if it is here."""
        place = self._root(digest)
        try:
            told = msgspec.json.decode((place / _RECORD).read_bytes(), type=Image)
            used = self._mark(digest).stat().st_mtime
        except FileNotFoundError:
            return None
        return msgspec.structs.replace(told, root=str(place / "root"), used=used)

    def named(self, reference: str) -> Image | None:
        """The image that a reference stood for when it was last brought here, if it is here."""
        _, at, digest = reference.rpartition("@")
        if at or digest.startswith("sha256:"):
            return self.find(digest)
        try:
            return self.find(self._name(reference).read_text(encoding="ascii"))
        except FileNotFoundError:
            return None

    def name(self, reference: str, image: Image) -> None:
        """Note what a reference stands for."""
        known = self.named(reference)
        if known is not None and known.digest == image.digest:
            return
        fresh = self.work / f"{secrets.token_hex(8)}.name"
        fresh.write_text(image.digest, encoding="ascii")
        fresh.replace(self._name(reference))

    def keep(self, who: str, digests: Iterable[str]) -> None:
        """Have ``gc`` leave these, however long nobody has wanted them; and not those that ``who`` named before."""
        (self._folder / "kept").mkdir(exist_ok=True)
        fresh = self.work / f"{secrets.token_hex(8)}.kept"
        fresh.write_text("\n".join(sorted(digests)), encoding="ascii")
        fresh.replace(self._folder / "kept" / hashlib.sha256(who.encode()).hexdigest())

    def want(self, image: Image) -> str:
        """Note that it is wanted now; the file on which whoever runs in it holds a lock (as ``hold`` does)."""
        mark = self._mark(image.digest)
        with contextlib.suppress(PermissionError):  # the site's folder: whoever keeps it sees to the ages
            os.utime(mark)
        return str(mark)

    def all(self) -> list[Image]:
        """All of them, the one that was wanted last first."""
        found = [self.find(f"sha256:{path.name}") for path in self._folder.joinpath("roots").glob("*")]
        return sorted((image for image in found if image), key=lambda image: -image.used)

    def hold(self, image: Image) -> int:
        """Note that it is wanted now, and hold it: a descriptor that keeps it here for as long as it is open, in this
        process or in one that it becomes. ``NotFound``: it was removed just now."""
        try:
            held = os.open(self._mark(image.digest), os.O_RDONLY)
        except FileNotFoundError:
            raise _removed(image) from None
        fcntl.flock(held, fcntl.LOCK_SH)
        self.want(image)
        if self.find(image.digest) is None:
            os.close(held)
            raise _removed(image)
        return held

    # -- bringing

    async def from_layout(self, folder: Path, ref: str = "") -> Image:
        """The image of an OCI layout, which is on a disk."""
        try:
            index = oci.parse_index((folder / "index.json").read_bytes())
        except FileNotFoundError:
            raise NotFound("is no OCI layout: it has no index.json", where=str(folder)) from None
        chosen = oci.choose(index, ref=ref)
        if image := self.find(chosen.digest):
            return image
        await asyncio.to_thread(self._take_layout, folder, chosen)
        return await self._unpacked(chosen.digest, f"oci:{folder}{f':{ref}' if ref else ''}")

    async def from_archive(self, file: Path, digest: str, reference: str) -> Image:
        """The image of an archive (a tar of an OCI layout) that has this digest."""
        return self.find(digest) or await self._unpacked(digest, reference, archive=file)

    async def from_registry(self, remote: str, *, logins: Path | None = None) -> Image:
        """The image of a registry. Asked each time what a tag stands for; what is here is not fetched again."""
        from strata.provisioning.images import registry  # most starts need none, and it takes long to import

        digest = await registry.pull(self._shelf, remote, lambda _: None, most=MOST_BYTES, logins=logins)
        return self.find(digest) or await self._unpacked(digest, f"docker://{remote}")

    async def _unpacked(self, digest: str, reference: str, archive: Path | None = None) -> Image:
        async with self._alone(digest):
            if image := self.find(digest):  # somebody else was faster
                return image
            with self._workplace() as work:
                whole, layers = work / "whole", work / "layers"
                whole.mkdir(mode=0o755)
                layers.mkdir()
                order = Order(
                    shelf=str(self._shelf.root),
                    manifest=digest,
                    archive=str(archive or ""),
                    work=str(layers),
                    into=str(whole / "root"),
                    most=MOST_BYTES,
                )
                done = await write(order, archive.stat().st_size if archive else self._size(digest))
                image = Image(**msgspec.structs.asdict(done), digest=digest, reference=reference, root="")
                (whole / _RECORD).write_bytes(msgspec.json.encode(image))
                self._mark(digest).touch()
                whole.rename(self._root(digest))
        found = self.find(digest)
        assert found is not None
        return found

    def _size(self, digest: str) -> int:
        return sum(layer.size for layer in oci.parse_manifest(self._shelf.read(digest)).layers)

    def _take_layout(self, folder: Path, chosen: oci.Descriptor) -> None:
        def take(blob: oci.Descriptor) -> None:
            if not self._shelf.blob(blob.digest).exists():
                with (folder / "blobs/sha256" / check_digest(blob.digest)).open("rb") as source:
                    self._shelf.add_stream(source, expect=blob.digest, most=MOST_BYTES)

        take(chosen)
        manifest = oci.parse_manifest(self._shelf.read(chosen.digest))
        for blob in (manifest.config, *manifest.layers):
            take(blob)

    @contextlib.asynccontextmanager
    async def _alone(self, digest: str) -> AsyncIterator[None]:
        """Nobody else unpacks this image meanwhile."""
        with (self.work / f"{check_digest(digest)}.lock").open("ab") as file:
            await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
            yield

    # -- keeping

    def gc(self, *, keep: float = KEEP, dry_run: bool = False) -> list[Image]:
        """Remove images that nobody has wanted for so many seconds, no container runs and no policy names; and what was
        left behind. Those that go, or would."""
        before = time.time() - keep
        gone = []
        kept = {digest for file in self._folder.glob("kept/*") for digest in file.read_text("ascii").split()}
        for image in self.all():
            if image.digest in kept:
                continue
            mark = self._mark(image.digest)
            with mark.open("rb") as file:
                # Held until it is out of reach: a container that starts meanwhile waits, and finds that it is gone.
                if image.used > before or not _locked(file, fcntl.LOCK_EX):
                    continue
                gone.append(image)
                if not dry_run:
                    aside = self.work / f"gone-{secrets.token_hex(8)}"
                    self._root(image.digest).rename(aside)
                    mark.unlink()
                    remove_tree(aside)
        if not dry_run:
            self._sweep(before)
        return gone

    def _sweep(self, before: float) -> None:
        for path, _ in self._shelf.unused((), older=max(0.0, time.time() - before)):
            path.unlink(missing_ok=True)
        for path in self.work.iterdir():
            if path.is_dir() and path.stat().st_mtime < time.time() - _LEFT_BEHIND:
                remove_tree(path)

    # -- inside

    @contextlib.contextmanager
    def _workplace(self) -> Iterator[Path]:
        place = self.work / secrets.token_hex(8)
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            remove_tree(place)

    def _root(self, digest: str) -> Path:
        return self._folder / "roots" / check_digest(digest)

    def _name(self, reference: str) -> Path:
        return self._folder / "names" / hashlib.sha256(reference.encode()).hexdigest()

    def _mark(self, digest: str) -> Path:
        return self._folder / "used" / check_digest(digest)


def _locked(file: IO[bytes], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _removed(image: Image) -> NotFound:
    return NotFound("was removed just now", where=image.reference, hint="try again: it is fetched anew")
