"""What the store holds of images: what was made of each manifest, and what each name's tags stand for.

Records are shared by all controllers of a store; the files that they name are each controller's own.
"""

from __future__ import annotations

import msgspec

from strata.core.errors import NotFound
from strata.provisioning.images.release import ImageConfig, Release

NAMES = "image/name/"
MADE = "image/made/"
GONE = "image-gone/"
MOST_PAST = 50
"""Former meanings of a name's tags that are remembered."""


class LayerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One layer."""

    digest: str
    size: int
    made_by: str = ""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """An image as it is kept: never changes, whatever tags come and go."""

    image: str
    """Digest of the manifest."""
    config_digest: str
    config: ImageConfig
    architecture: str
    layers: tuple[LayerRecord, ...]
    squashfs: str
    size: int
    chunks: str
    files: int
    unpacked: int
    packages: int
    left_out: int
    """Device nodes that layers held and the image does not."""
    created: float
    source: str = ""
    """Where it came from, in words."""
    listing: str = ""
    """Digest of the list of its files; empty: made when that was not kept."""

    @property
    def digests(self) -> tuple[str, ...]:
        """Every file that it needs."""
        return (self.image, self.config_digest, *(layer.digest for layer in self.layers), self.squashfs, self.chunks)


class Tagged(msgspec.Struct, frozen=True, kw_only=True):
    """What a tag stands for, since when and by whom."""

    release: Release
    since: float
    author: str


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """What a tag stood for, until it was moved or deleted."""

    release: Release
    until: float
    author: str
    deleted: bool


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """Files that garbage collection removed: every controller removes them, unless something needs them again."""

    time: float
    files: tuple[str, ...]
    """Their digests, in hexadecimal digits."""


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """One name: its tags, and what they stood for before. ``serial`` is the highest that was ever given."""

    name: str
    serial: int = 0
    tags: dict[str, Tagged] = {}
    past: tuple[Past, ...] = ()

    def moved(self, release: Release, author: str, now: float) -> Name:
        """With a tag that stands for ``release``, which has been given its serial."""
        before = self.tags.get(release.tag)
        past = self.past
        if before is not None:
            past = (Past(release=before.release, until=now, author=author, deleted=False), *past)
        return msgspec.structs.replace(
            self,
            serial=max(self.serial, release.serial),
            tags={**self.tags, release.tag: Tagged(release=release, since=now, author=author)},
            past=past[:MOST_PAST],
        )

    def without(self, tag: str, author: str, now: float) -> Name:
        """With the tag gone, for a while to be had back."""
        gone = Past(release=self.tagged(tag).release, until=now, author=author, deleted=True)
        tags = {key: value for key, value in self.tags.items() if key != tag}
        return msgspec.structs.replace(self, tags=tags, past=(gone, *self.past)[:MOST_PAST])

    def tagged(self, tag: str) -> Tagged:
        """What a tag stands for; ``NotFound``."""
        found = self.tags.get(tag)
        if found is None:
            raise no_such(f"{self.name}:{tag}")
        return found

    def deleted(self, tag: str) -> Past:
        """What the tag stood for when it was last deleted; ``NotFound``."""
        for past in self.past:
            if past.deleted and past.release.tag == tag:
                return past
        raise NotFound("nothing of that name was deleted lately", where=f"{self.name}:{tag}")

    def with_serial(self, serial: int) -> Release:
        """A release of now or before, by its serial; ``NotFound``."""
        for release in (*(t.release for t in self.tags.values()), *(p.release for p in self.past)):
            if release.serial == serial:
                return release
        raise NotFound("no release with that serial is remembered", where=f"{self.name}@{serial}")


def no_such(reference: str) -> NotFound:
    """The error for a name that stands for nothing."""
    return NotFound("no such image", where=reference[:120], hint="list them with: strata image list")


encode = msgspec.msgpack.Encoder().encode
decode_name = msgspec.msgpack.Decoder(Name).decode
decode_made = msgspec.msgpack.Decoder(Made).decode
decode_gone = msgspec.msgpack.Decoder(Gone).decode
