"""Which files the images of the catalogue need, and which of them are here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from strata.provisioning.images.records import Made, Name
from strata.provisioning.images.release import CHUNK, Release, check_digest
from strata.provisioning.images.shelf import KINDS, Shelf
from strata.provisioning.replication.copying import Wanted

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
