"""What OCI and Docker write about an image: index, manifest, configuration. Parsed strictly where it matters."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from strata.core.errors import BadRequest
from strata.provisioning.images.release import ImageConfig, canonical, check_digest

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
INDEXES = (INDEX, DOCKER_INDEX)
MANIFESTS = (MANIFEST, DOCKER_MANIFEST)
LAYERS = (
    LAYER,
    f"{LAYER}+gzip",
    f"{LAYER}+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
)
REF_NAME = "org.opencontainers.image.ref.name"
MOST_LAYERS = 256
MOST_JSON = 4 << 20

T = TypeVar("T")

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A blob as others refer to it."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] | None = None
    platform: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_digest(self.digest)
        if self.size < 0:
            raise BadRequest("a negative size", where=self.digest[:19])


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Several manifests."""

    manifests: tuple[Descriptor, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One image: its configuration and its layers, lowest first."""

    schema_version: int
    media_type: str = ""
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str] | None = None


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """The part of a configuration that says how it runs."""

    user: str | None = None
    env: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    working_dir: str | None = None


class RootFs(msgspec.Struct, frozen=True, kw_only=True):
    """What the layers are, unpacked."""

    type: str = "layers"
    diff_ids: tuple[str, ...]


class HistoryStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a layer came to be, in somebody's words."""

    created_by: str = ""
    comment: str = ""
    empty_layer: bool = False


class Config(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image's configuration."""

    architecture: str
    os: str
    config: RunConfig | None = None
    rootfs: RootFs
    history: tuple[HistoryStep, ...] | None = None

    @property
    def run(self) -> ImageConfig:
        """How it wants to be run."""
        said = self.config or RunConfig()
        return ImageConfig(
            argv=(*(said.entrypoint or ()), *(said.cmd or ())),
            env=said.env or (),
            cwd=said.working_dir or "/",
            user=said.user or "",
        )


def parse_index(data: bytes) -> Index:
    """An index, or ``BadRequest``."""
    return parsed(data, Index, "index")


def parse_manifest(data: bytes) -> Manifest:
    """A manifest whose layers we can unpack, or ``BadRequest``."""
    manifest = parsed(data, Manifest, "manifest")
    if len(manifest.layers) > MOST_LAYERS:
        raise BadRequest(f"{len(manifest.layers)} layers; at most {MOST_LAYERS} are taken", where="manifest")
    for layer in manifest.layers:
        if layer.media_type not in LAYERS:
            raise BadRequest(f"a layer of an unknown kind: {layer.media_type[:100]!r}", where=layer.digest[:19])
    return manifest


def parse_config(data: bytes, layers: int) -> Config:
    """A configuration for so many layers, or ``BadRequest``."""
    config = parsed(data, Config, "configuration")
    if len(config.rootfs.diff_ids) != layers:
        raise BadRequest(f"{layers} layers, but {len(config.rootfs.diff_ids)} in the configuration", where="manifest")
    for diff_id in config.rootfs.diff_ids:
        check_digest(diff_id)
    return config


def new_config(run: ImageConfig, diff_ids: Sequence[str], history: Sequence[str], *, architecture: str = "") -> bytes:
    """The configuration of an image that we make. Without a date: the same image has the same digest."""
    config = Config(
        architecture=architecture or host_architecture(),
        os="linux",
        config=RunConfig(
            user=run.user or None, env=run.env or None, entrypoint=run.argv or None, working_dir=run.cwd or None
        ),
        rootfs=RootFs(diff_ids=tuple(diff_ids)),
        history=tuple(HistoryStep(created_by=step[:500]) for step in history),
    )
    return canonical(msgspec.to_builtins(config))


def new_manifest(config: Descriptor, layers: Sequence[Descriptor]) -> bytes:
    """The manifest of an image that we make."""
    manifest = Manifest(schema_version=2, media_type=MANIFEST, config=config, layers=tuple(layers))
    return canonical(msgspec.to_builtins(manifest))


def new_index(entries: Iterable[tuple[str, str, int]]) -> bytes:
    """An index of (reference, manifest's digest, its size)."""
    manifests = [
        Descriptor(media_type=MANIFEST, digest=digest, size=size, annotations={REF_NAME: reference})
        for reference, digest, size in entries
    ]
    return canonical({"schemaVersion": 2, "mediaType": INDEX, "manifests": msgspec.to_builtins(manifests)})


def choose(index: Index, *, ref: str = "") -> Descriptor:
    """The one manifest of an index that is meant: by its name, else the one for this kind of machine."""
    found = [d for d in index.manifests if d.media_type in (*MANIFESTS, *INDEXES)]
    if ref:
        found = [d for d in found if (d.annotations or {}).get(REF_NAME) == ref]
    if len(found) > 1:
        wanted = host_architecture()
        found = [
            d
            for d in found
            if d.platform is None or (d.platform.get("architecture") == wanted and d.platform.get("os") == "linux")
        ]
    if len(found) != 1:
        names = sorted({(d.annotations or {}).get(REF_NAME, "") for d in index.manifests} - {""})
        raise BadRequest(
            f"{len(found)} of its images are meant, not one",
            where=f"index{f', reference {ref}' if ref else ''}",
            hint=f"name one with --ref: {', '.join(names)[:300]}" if names else "it has none for this kind of machine",
        )
    return found[0]


def host_architecture() -> str:
    """This machine's, as OCI calls it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def parsed(data: bytes, kind: type[T], what: str) -> T:
    """JSON that somebody else wrote; ``BadRequest`` says what is wrong with it."""
    if len(data) > MOST_JSON:
        raise BadRequest("is too large", where=what)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadRequest(f"cannot be read: {str(error)[:200]}", where=what) from None
