"""Images: what was made of each manifest, what each name's tags stand for, and what is asked and shown of them.

Records are shared by all controllers of a store; the files that they name are each controller's own.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.errors import NotFound
from strata.core.texts import PLAIN, In, Out
from strata.fleet.operations.records import Operation
from strata.provisioning.images.release import ImageConfig, Release

NAMES = "image/name/"
MADE = "image/made/"
GONE = "image-gone/"
MOST_PAST = 50
"""Former meanings of a name's tags that are remembered."""

IMAGE_NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$(?!\n)"
IMAGE_TAG = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$(?!\n)"
UPLOAD = r"^[0-9a-f]{32}$(?!\n)"

NameText = Annotated[str, Meta(pattern=IMAGE_NAME, max_length=63)]
TagText = Annotated[str, Meta(pattern=IMAGE_TAG, max_length=63)]
UploadText = Annotated[str, Meta(pattern=r"^([0-9a-f]{32})?$(?!\n)", max_length=32)]
SourceText = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9:@._-]{0,140}$(?!\n)",
        max_length=141,
        description="`name:tag`, `name@serial` (also a former one) or `sha256:...`",
    ),
]
RemoteText = Annotated[
    str, Meta(pattern=PLAIN, max_length=500, description="`HOST[:PORT]/NAME[:TAG][@sha256:...]` in a registry")
]
ArgumentText = Annotated[str, Meta(pattern=PLAIN, max_length=4000)]


class LayerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One layer."""

    digest: str
    size: int
    made_by: str = ""


class Squashed(msgspec.Struct, frozen=True, kw_only=True):
    """An image as a squashfs."""

    squashfs: str
    size: int
    chunks: str
    files: int
    unpacked: int
    """Bytes of all files."""
    packages: int
    left_out: int
    """Device nodes that layers held and the image does not."""


class Made(Squashed, frozen=True, kw_only=True):
    """An image as it is kept: never changes, whatever tags come and go."""

    image: str
    """Digest of the manifest."""
    config_digest: str
    config: ImageConfig
    architecture: str
    layers: tuple[LayerRecord, ...]
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


class ImageRow(Out, frozen=True, kw_only=True):
    """One tag, and what it stands for."""

    name: str
    tag: str
    serial: int
    image: str
    """Digest of the OCI manifest."""
    size: int
    """Bytes of the squashfs that nodes fetch."""
    architecture: str
    since: float
    author: str
    here: bool
    """Whether this controller has the files."""
    on: tuple[str, ...] = ()
    """The controllers that have all of it."""
    not_on: tuple[str, ...] = ()
    """The controllers that are still to get it."""


class FormerView(Out, frozen=True, kw_only=True):
    """What a tag of the name stood for."""

    tag: str
    serial: int
    image: str
    until: float
    author: str
    deleted: bool


class ImageView(ImageRow, frozen=True, kw_only=True):
    """All that is known of it."""

    squashfs: str
    chunks: str
    signature: str
    argv: tuple[str, ...]
    env: tuple[str, ...]
    cwd: str
    user: str
    layers: tuple[LayerRecord, ...]
    files: int
    unpacked: int
    packages: int
    left_out: int
    created: float
    source: str
    former: tuple[FormerView, ...]


class UploadView(Out, frozen=True, kw_only=True):
    """A file on its way in."""

    id: str
    size: int


class ImportRequest(In, frozen=True, kw_only=True):
    """Bring an image in: from an upload or a registry, one of them."""

    name: NameText
    tag: TagText = "latest"
    upload: UploadText = ""
    registry: RemoteText = ""
    ref: Annotated[str, Meta(pattern=PLAIN, max_length=200)] = ""
    """Which image of an archive that holds several."""
    unsigned: bool = False
    """Take it as something new of ours, whatever signed release the archive carries."""
    argv: Annotated[tuple[ArgumentText, ...], Meta(max_length=200)] = ()
    """For an archive of plain files: what to run."""


class BuildRequest(In, frozen=True, kw_only=True):
    """Build an image from an upload: a tar of `recipe.yaml` or `Containerfile`, and the files that it names."""

    name: NameText
    tag: TagText = "latest"
    upload: Annotated[str, Meta(pattern=UPLOAD, max_length=32)]


class MoveRequest(In, frozen=True, kw_only=True):
    """Let a tag stand for an image that is there."""

    source: SourceText
    create: bool = False
    """The tag must be new."""


class WorkView(Out, frozen=True, kw_only=True):
    """An image in the making: an operation, and where its log is."""

    operation: Operation
    log: str


class LogPart(Out, frozen=True, kw_only=True):
    """A part of a log; ``next`` is where to go on."""

    text: str
    next: int


class VerdictView(Out, frozen=True, kw_only=True):
    """What was found when every byte was looked at."""

    ok: bool
    problems: tuple[str, ...]


class GcRequest(In, frozen=True, kw_only=True):
    """Remove what nothing stands for."""

    dry_run: bool = False
    keep: Annotated[float, Meta(ge=0, le=1e9)] = 7 * 86400.0
    """Seconds for which former and deleted images are kept."""


class GcView(Out, frozen=True, kw_only=True):
    """What was removed, or would be."""

    images: tuple[str, ...]
    files: int
    bytes: int
    held: tuple[str, ...] = ()
    """Images that stay though no tag stands for them: nodes run them."""
