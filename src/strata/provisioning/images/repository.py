"""The repository of images on one controller: its files, the catalogue that all controllers share, and what is done.

Implements ``release.Releases``. A controller knows every release in the store and serves those whose files it has;
``strata.provisioning.replication`` brings the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from strata.core.errors import Conflict, Corrupt, NotFound, StrataError
from strata.fleet.alarm import Alarm, AlarmSink
from strata.provisioning.images import archive, oci, registry
from strata.provisioning.images.build.build import build
from strata.provisioning.images.build.last_words import one_line
from strata.provisioning.images.build.steps import workplace
from strata.provisioning.images.catalogue import Catalogue
from strata.provisioning.images.compare import Difference
from strata.provisioning.images.layers import check_file
from strata.provisioning.images.records import GcView, Made
from strata.provisioning.images.release import ImageConfig, Release, is_signed_by
from strata.provisioning.images.shelf import Shelf, clear
from strata.provisioning.images.squash import write_chunks
from strata.provisioning.images.squashing import Order, Pressed
from strata.provisioning.images.tree import MOST_BYTES
from strata.provisioning.images.unpacking import difference, press, sound_context, told_in
from strata.provisioning.images.uploads import Uploads
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.protocol import Store

KEEP = 7 * 86400.0
"""Seconds that what a tag stood for can be had back."""
_AT_ONCE = 2
"""Processes that read what others wrote; each may have gibibytes of memory."""
_SETTLED = 3600.0
"""Seconds that a file which belongs to nothing is left alone: it may belong to work under way."""


def check_files(shelf: Shelf, release: Release, made: Made | None) -> tuple[list[str], list[str]]:
    """What is missing, and what is damaged."""
    missing, damaged = [], []
    parts = [(shelf.squashfs(release.squashfs), release.squashfs, "squashfs")]
    if made is not None:
        parts.append((shelf.blob(made.image), made.image, "manifest"))
        parts.append((shelf.blob(made.config_digest), made.config_digest, "configuration"))
        parts += [(shelf.blob(layer.digest), layer.digest, "layer") for layer in made.layers]
    for path, digest, what in parts:
        try:
            check_file(path, digest)
        except FileNotFoundError:
            missing.append(f"the {what} {digest[:19]}… is not on this controller")
        except Corrupt:
            damaged.append(f"the {what} {digest[:19]}… is damaged")
    try:
        with shelf.workplace() as work:
            write_chunks(shelf.squashfs(release.squashfs), work / "chunks")
            check_file(work / "chunks", release.chunks)
        check_file(shelf.chunks(release.chunks), release.chunks)
    except FileNotFoundError:
        missing.append("the list of chunks is not on this controller")
    except Corrupt:
        damaged.append("the list of chunks is damaged")
    return missing, damaged


class Images:
    """All of it. ``start``, ``stop``."""

    def __init__(
        self,
        directory: Path,
        store: Store,
        ledger: Ledger,
        signer: Signer,
        alarm: AlarmSink,
        *,
        readers: int | None = None,
        logins: Path | None = None,
        prefix: Sequence[str] = (),
        most: int = MOST_BYTES,
    ) -> None:
        """``readers``: the group of nginx's workers. ``logins``: a file of logins to registries. ``prefix``: stands
        before commands that build images and need a network. ``most``: bytes that an image may unpack to."""
        self.shelf = Shelf(directory)
        self.catalogue = Catalogue(store, ledger, signer, alarm)
        self.stop = self.catalogue.stop
        self.release = self.catalogue.release
        """What ``name:tag`` stands for now; ``NotFound`` if nothing."""
        self.moved = self.catalogue.moved
        """Told of each tag (``name:tag``) that comes to stand for something else, or is gone."""
        self.uploads = Uploads(self.shelf)
        self._room = asyncio.Semaphore(_AT_ONCE)
        self.making = 0
        """Images that are being made here now: files of theirs belong to nothing yet."""
        self._alarm = alarm
        self._readers = readers
        self._logins = logins
        self._prefix = prefix
        self._most = most

    async def start(self) -> None:
        """Make the directories, remove what a crash left, load the catalogue."""
        await asyncio.to_thread(self.shelf.open, readers=self._readers)
        await asyncio.to_thread(self.shelf.sweep_work)
        await self.catalogue.start()
        self.write_index()
        self.moved.append(lambda _: self.write_index())
        self.moved.append(self._alarm_over)  # whatever it stands for now, it is not what was damaged

    def is_here(self, release: Release) -> bool:
        """Whether this controller has the files that nodes fetch."""
        return self.shelf.squashfs(release.squashfs).exists() and self.shelf.chunks(release.chunks).exists()

    # -- making

    async def take_archive(
        self,
        author: str,
        upload: str,
        reference: str,
        log: Path,
        *,
        ref: str = "",
        run: ImageConfig | None = None,
        unsigned: bool = False,
    ) -> Release:
        """Import an uploaded archive. ``unsigned``: as ours and new, whatever signed release it carries."""
        order = Order(
            root=str(self.shelf.root),
            archive=str(self.uploads.path(upload)),
            ref=ref,
            run=run or ImageConfig(),
            source="imported from an archive",
            most=self._most,
        )
        with self._makes():
            if not unsigned and (told := await told_in(Path(order.archive))):
                self.catalogue.check_told(told, reference)  # before all the work
            pressed = await self._press(order, log, Path(order.archive).stat().st_size)
            assert pressed.made is not None
            told = None if unsigned else pressed.release
            return await self.catalogue.put(author, pressed.made, reference, told=told)

    async def take_remote(self, author: str, remote: str, reference: str, log: Path) -> Release:
        """Import from a registry."""

        def say(text: str) -> None:
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")

        with self._makes():
            manifest = await registry.pull(self.shelf, remote, say, most=self._most, logins=self._logins)
            source = f"imported from {remote}"
            order = Order(root=str(self.shelf.root), manifest=manifest, source=source, most=self._most)
            layers = oci.parse_manifest(await asyncio.to_thread(self.shelf.read, manifest)).layers
            pressed = await self._press(order, log, sum(layer.size for layer in layers))
            assert pressed.made is not None
            return await self.catalogue.put(author, pressed.made, reference)

    async def build(self, author: str, upload: str, reference: str, log: Path) -> Release:
        """Build from an uploaded recipe or Containerfile, with the files beside it."""
        with self._makes():
            async with workplace(self.shelf.root) as work:
                context = await sound_context(self.uploads.path(upload), work, log)
                pressed = await build(self.shelf, context, self._parent, log, self._prefix)
            assert pressed.made is not None
            return await self.catalogue.put(author, pressed.made, reference)

    # -- looking

    async def verify(self, reference: str) -> list[str]:
        """What is wrong with an image: its signature, and every byte of its files. Empty: sound."""
        release = await self.release(reference)
        problems = []
        if not is_signed_by(release, self.catalogue.signer.public_pem):
            problems.append("the release is not signed by this site's key (strata image sign signs it again)")
        made = self.catalogue.made.get(release.image)
        missing, damaged = await asyncio.to_thread(check_files, self.shelf, release, made)
        if damaged:
            self._alarm_damaged(reference, f"on this controller {' and '.join(damaged)}")
        elif not missing:
            self._alarm_over(reference)
        return [*problems, *missing, *damaged]

    def arrived_damaged(self, node: str, images: Mapping[str, str]) -> None:
        """A node says that these images (squashfs digests) came to it otherwise than signed, and how."""
        for squashfs, why in images.items():
            if reference := self.catalogue.stands_for(squashfs):
                self._alarm_damaged(reference, f"{node} refused it: {one_line(why, 200)}")

    async def diff(self, before: str, after: str) -> Difference:
        """From one image to another."""
        listings = [self.shelf.listing(self.catalogue.find(source).image) for source in (before, after)]
        for listing, source in zip(listings, (before, after), strict=True):
            if not listing.exists():
                raise NotFound("its files are not on this controller", where=source[:120])
        async with self._room:
            return await difference(*listings)

    async def export(self, reference: str) -> AsyncIterator[bytes]:
        """An image as a tar of an OCI layout, with its signed release, piece by piece."""
        release = await self.release(reference)
        manifest = oci.parse_manifest(await asyncio.to_thread(self.shelf.read, release.image))
        for blob in (manifest.config, *manifest.layers):
            if not self.shelf.blob(blob.digest).exists():
                raise NotFound("not all of it is on this controller", where=reference)
        return self._exported(release)

    # -- keeping

    async def gc(self, author: str, *, dry_run: bool, keep: float = KEEP, held: Collection[str] = ()) -> GcView:
        """Remove images that nothing stands for, and has not for a while; and files that belong to none. ``held``:
        what nodes have mounted (squashfs digests), which stays."""
        if not dry_run:
            self._refuse_while_making()
        before = time.time() - keep
        stays = [made.image for made in self.catalogue.unnamed(before) if made.squashfs in held]
        gone = self.catalogue.forgotten(before, held) if dry_run else await self.catalogue.forget(author, before, held)
        images = {made.image for made in gone}
        used = self.catalogue.digests(without=images, before=before).union(held)
        files = await asyncio.to_thread(self.shelf.unused, used, older=min(_SETTLED, keep))
        if files and not dry_run:
            await self.catalogue.removed(author, {path.name.partition(".")[0] for path, _ in files})
            self._refuse_while_making()
            # Nothing else runs until they are out of reach: no image can begin to be made of these files.
            aside = self.shelf.put_aside(path for path, _ in files)
            await asyncio.to_thread(clear, aside)
        return GcView(
            images=tuple(sorted(images)),
            files=len(files),
            bytes=sum(size for _, size in files),
            held=tuple(sorted(stays)),
        )

    def write_index(self) -> None:
        """Say in the OCI layout what tags stand for, as far as its blobs are here."""
        entries = []
        for name in self.catalogue.names.values():
            for tagged in name.tags.values():
                blob = self.shelf.blob(tagged.release.image)
                if blob.exists():
                    entries.append((tagged.release.reference, tagged.release.image, blob.stat().st_size))
        self.shelf.write_index(oci.new_index(sorted(entries)))

    # -- inside

    async def _press(self, order: Order, log: Path, size: int) -> Pressed:
        async with self._room:
            return await press(order, log, size=size)

    def _refuse_while_making(self) -> None:
        if self.making:
            raise Conflict(
                "an image is being made on this controller, and its files belong to nothing yet",
                where="image gc",
                hint="try again when it is done: strata operation list",
            )

    @contextlib.contextmanager
    def _makes(self) -> Iterator[None]:
        self.making += 1
        try:
            yield
        finally:
            self.making -= 1

    def _parent(self, reference: str) -> tuple[Made, Release]:
        made, release = self.catalogue.find(reference), self.catalogue.tagged(reference).release
        if not self.shelf.squashfs(made.squashfs).exists() or not self.shelf.listing(made.image).exists():
            raise NotFound(
                "its files are not on this controller",
                where=reference,
                hint=f"build where they are, or wait: strata image show {reference} tells",
            )
        return made, release

    def _alarm_damaged(self, reference: str, why: str) -> None:
        mend = f"strata image verify {reference} tells more; importing or building it again mends it"
        self._alarm(
            Alarm(kind="image-damaged", message=f"the image {reference} is damaged: {why} ({mend})", about=reference)
        )

    def _alarm_over(self, reference: str) -> None:
        self._alarm(Alarm(kind="image-damaged", message=f"{reference} is sound", about=reference, severity="ok"))

    async def _exported(self, release: Release) -> AsyncIterator[bytes]:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as source:

            def write() -> None:
                with os.fdopen(writing, "wb") as into:
                    archive.write(self.shelf, release.image, release, into)

            task = asyncio.create_task(asyncio.to_thread(write))
            read: asyncio.Future[bytes] | None = None
            try:
                while True:
                    read = asyncio.ensure_future(asyncio.to_thread(source.read, 1 << 20))
                    if not (piece := await asyncio.shield(read)):
                        break
                    yield piece
            finally:
                if read is not None:
                    await asyncio.wait([read])
                source.close()  # who writes then ends
                await asyncio.wait([task])
                error = task.exception()
            if error is not None:
                raise StrataError(f"the export broke off: {error}", where=release.reference)
