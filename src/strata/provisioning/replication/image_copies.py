"""Keeps this controller's image files level with the catalogue: fetches what it lacks, removes what is gone.

Looks at the catalogue and at the disk, never at what happened before; so it goes on after a restart, and what was
removed from the catalogue is not brought back.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from strata.core.errors import StrataError, Unavailable
from strata.fleet.recurring import Recurring
from strata.provisioning.images import records
from strata.provisioning.images.records import Made, Name
from strata.provisioning.images.release import CHUNK, Release, check_digest
from strata.provisioning.images.repository import Images
from strata.provisioning.images.shelf import KINDS, Shelf, clear, place
from strata.provisioning.replication.copying import Copier, PuttingOff, Wanted
from strata.provisioning.replication.holdings import Holdings
from strata.store.followed import Followed
from strata.store.protocol import Store

log = logging.getLogger(__name__)

LOOK_EVERY = 30.0
"""Seconds between two looks when nobody says that anything changed."""


_LISTING_MOST = 4 << 30


class ImageFiles(msgspec.Struct, frozen=True, kw_only=True):
    """An image and its files, those first that nodes ask for."""

    image: str
    files: tuple[Wanted, ...]


def needed(names: Mapping[str, Name], images: Mapping[str, Made]) -> list[ImageFiles]:
    """What every controller ought to have: first what tags stand for, the newest first."""
    current: dict[str, float] = {}
    found: dict[str, dict[str, Wanted]] = {}
    for name in names.values():
        for tagged in name.tags.values():
            image = tagged.release.image
            current[image] = max(current.get(image, 0.0), tagged.since)
            _add(found, image, _served(tagged.release))
        for past in name.past:
            _add(found, past.release.image, _served(past.release))
    for made in images.values():
        _add(found, made.image, _served(made))
        _add(found, made.image, _kept(made))

    def rank(image: str) -> tuple[float, float, str]:
        made = images.get(image)
        return -current.get(image, 0.0), -(made.created if made else 0.0), image

    return [ImageFiles(image=image, files=tuple(found[image].values())) for image in sorted(found, key=rank)]


def missing(shelf: Shelf, images: Sequence[ImageFiles]) -> Mapping[str, list[Wanted]]:
    """Image → its files that are not here; images that are whole are not in it. Looks at the disk."""
    here = {kind: shelf.names(kind) for kind in KINDS}
    found: dict[str, list[Wanted]] = {}
    for image in images:
        for file in image.files:
            kind, _, name = file.name.partition("/")
            if name not in here[kind]:
                found.setdefault(image.image, []).append(file)
    return found


def _served(source: Release | Made) -> list[Wanted]:
    """What nodes fetch: the list of chunks first, which the other is checked by."""
    squashfs, chunks = check_digest(source.squashfs), check_digest(source.chunks)
    count = -(-source.size // CHUNK)
    return [
        Wanted(name=f"chunks/{chunks}", digest=chunks, size=count * 32),
        Wanted(name=f"squashfs/{squashfs}", digest=squashfs, size=source.size, chunks=f"chunks/{chunks}"),
    ]


def _kept(made: Made) -> list[Wanted]:
    """What images are built upon, compared by and exported as."""
    image, config = check_digest(made.image), check_digest(made.config_digest)
    files = [Wanted(name=f"blobs/{image}", digest=image), Wanted(name=f"blobs/{config}", digest=config)]
    for layer in made.layers:
        digest = check_digest(layer.digest)
        files.append(Wanted(name=f"blobs/{digest}", digest=digest, size=layer.size))
    if made.listing:
        files.append(Wanted(name=f"listings/{image}", digest=check_digest(made.listing), most=_LISTING_MOST))
    return files


def _add(found: dict[str, dict[str, Wanted]], image: str, files: Iterable[Wanted]) -> None:
    into = found.setdefault(image, {})
    for file in files:
        into.setdefault(file.name, file)


class ImageCopies:
    """``start``, ``stop``."""

    def __init__(self, store: Store, images: Images, holdings: Holdings, copier: Copier) -> None:
        self._images = images
        self._shelf = images.shelf
        self._holdings = holdings
        self._copier = copier
        self._gone: dict[str, frozenset[str]] = {}
        self._followed = Followed(store, records.GONE, self._take_gone, self._gone.clear)
        self._put_off = PuttingOff(time.monotonic)
        self._pause = LOOK_EVERY
        trouble = "images are not level with the other controllers"
        self._rounds = Recurring("copies of images", self._round, lambda: self._pause, trouble=trouble)

    async def start(self) -> None:
        """Begin; the catalogue is there already."""
        self._images.catalogue.changed.append(self._rounds.soon)
        self._holdings.changed.append(self._rounds.soon)
        await self._followed.start()
        await self._rounds.start()

    async def stop(self) -> None:
        """Leave what is under way for the next start."""
        await self._rounds.stop()
        await self._followed.stop()

    async def _round(self) -> None:
        """Fetch one image, if one can be fetched, and see to the rest."""
        self._pause = LOOK_EVERY
        await self._remove_gone()
        catalogue = self._images.catalogue
        images = await asyncio.to_thread(needed, dict(catalogue.names), dict(catalogue.made))
        lacking = await asyncio.to_thread(missing, self._shelf, images)
        self._holdings.has_images(image.image for image in images if image.image not in lacking)
        await asyncio.to_thread(self._drop_parts, {file.name for files in lacking.values() for file in files})
        for image in images:
            sources = self._holdings.with_image(image.image) if image.image in lacking else []
            attempt = (image.image, *sources)  # another source is another chance
            if not sources or self._put_off.seconds(attempt) > 0:
                continue
            try:
                await self._fetch(image, lacking[image.image], sources)
                self._put_off.done(attempt)
            except (StrataError, OSError) as error:
                self._put_off.failed(attempt)
                log.warning("an image was not fetched", extra={"image": image.image[:19], "reason": str(error)})
            self._pause = 0.0
            return
        self._pause = min(LOOK_EVERY, self._put_off.soonest)

    async def _fetch(self, image: ImageFiles, files: Sequence[Wanted], sources: Sequence[str]) -> None:
        began = time.monotonic()
        log.info("fetching an image", extra={"image": image.image[:19], "files": len(files), "sources": list(sources)})
        for file in files:
            path = self._path(file.name)
            if path.exists():  # another image brought it
                continue
            part = self._shelf.root / "incoming" / file.name.replace("/", "-")
            chunks = await asyncio.to_thread(self._chunks, file.chunks) if file.chunks else b""
            await self._copier.copy(file, part, sources, chunks=chunks)
            if not self._is_needed(image.image):
                raise Unavailable("it was removed in the meantime", where=image.image[:19])
            await asyncio.to_thread(place, part, path)
        self._images.write_index()
        log.info("image fetched", extra={"image": image.image[:19], "seconds": round(time.monotonic() - began, 2)})

    def _chunks(self, name: str) -> bytes:
        """The list that a squashfs is checked by as it comes. A damaged one would make liars of all who give it."""
        path = self._path(name)
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != path.name:
            path.unlink()
            raise Unavailable("the list of its chunks was damaged: it is fetched anew", where=name)
        return data

    def _is_needed(self, image: str) -> bool:
        catalogue = self._images.catalogue
        return image in catalogue.made or any(
            release.image == image
            for name in catalogue.names.values()
            for release in (*(t.release for t in name.tags.values()), *(p.release for p in name.past))
        )

    async def _remove_gone(self) -> None:
        """Remove files that garbage collection removed on another controller."""
        if not self._gone:
            return
        here = await asyncio.to_thread(lambda: {name for kind in KINDS for name in self._shelf.names(kind)})
        gone = here.intersection(set().union(*self._gone.values()))
        if not gone or self._images.making:
            return
        # From here to the renaming nothing else runs: no image can begin to be made of these files.
        gone -= {check_digest(digest) for digest in self._images.catalogue.digests()}
        if not gone:
            return
        aside = self._shelf.put_aside(self._shelf.path(kind, name) for kind in KINDS for name in gone)
        log.info("removing what garbage collection removed elsewhere", extra={"files": len(gone)})
        await asyncio.to_thread(clear, aside)

    def _drop_parts(self, wanted: set[str]) -> None:
        """Forget beginnings of files that are not wanted any more."""
        keep = {name.replace("/", "-") for name in wanted}
        for part in (self._shelf.root / "incoming").iterdir():
            if part.name not in keep:
                part.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        kind, _, digits = name.partition("/")
        return self._shelf.path(kind, digits)

    def _take_gone(self, key: str, value: bytes | None) -> None:
        self._gone.pop(key, None)
        if value is not None:
            try:
                self._gone[key] = frozenset(records.decode_gone(value).files)
            except msgspec.MsgspecError:
                log.error("what garbage collection removed cannot be read", extra={"key": key})
        self._rounds.soon()
