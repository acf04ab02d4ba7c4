"""What the API takes and gives about images."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.control.fleet_views.jobs import JobView
from strata.control.texts import PLAIN, In, Out

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


class LayerView(Out, frozen=True, kw_only=True):
    """One layer."""

    digest: str
    size: int
    made_by: str


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
    layers: tuple[LayerView, ...]
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
    """An image in the making: a job, and where its log is."""

    job: JobView
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
    held: tuple[str, ...]
    """Images that stay though no tag stands for them: nodes run them."""
