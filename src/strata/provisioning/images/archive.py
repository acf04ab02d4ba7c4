"""Images in one file: an OCI layout, what ``docker save`` writes, or the bare files of a system. In, and out again.

What is read here runs in a process of its own (``unpacking``). Every blob is checked against its digest before it
counts.
"""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from strata.core.errors import BadRequest
from strata.provisioning.images import oci
from strata.provisioning.images.layers import file_digest, pack, packing, unpack
from strata.provisioning.images.release import ImageConfig, Release
from strata.provisioning.images.shelf import Shelf, place
from strata.provisioning.images.tarball import Body, Entry, entries
from strata.provisioning.images.tree import MOST_ENTRIES

RELEASE_FILE = "release.json"
"""In an archive that we wrote: the signed release."""
_FIRST_MEMBERS = 16
_SYSTEM = ("usr", "bin", "etc", "sbin", "lib", "opt")


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive held."""

    manifest: str
    kind: str
    release: Release | None = None


class _DockerImage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    config: str
    repo_tags: tuple[str, ...] | None = None
    layers: tuple[str, ...]


def take(shelf: Shelf, archive: Path, place_for: Path, *, ref: str, run: ImageConfig, most: int) -> Taken:
    """Take an archive in; its blobs are in place afterwards. ``run``: for bare files, which do not say."""
    plain = archive
    if packing(archive):
        plain = place_for / "archive.tar"
        unpack(archive, plain, diff_id="", most=most)
    with plain.open("rb") as file:
        members = _members(file)
        if "index.json" in members and "oci-layout" in members:
            return _layout(shelf, file, members, ref, most)
        if "manifest.json" in members and not any(name in members for name in _SYSTEM):
            return _docker(shelf, file, members, ref, most)
        if not any(name in members for name in _SYSTEM):
            raise BadRequest(
                "holds neither an OCI layout, nor a docker archive, nor a system's files (usr, bin, etc)",
                where="archive",
            )
    return Taken(manifest=stack(shelf, plain, "", run, "imported from a tar of files", place_for), kind="files")


def told_in(file: IO[bytes]) -> Release | None:
    """The signed release in an archive, where that can be seen at its beginning without unpacking it; None also where
    it cannot: ``take`` finds it then."""
    try:
        members = {_plain_name(entry): entry for entry in itertools.islice(entries(file), _FIRST_MEMBERS)}
        if RELEASE_FILE in members and "oci-layout" in members:
            return _release(file, members)
    except BadRequest:
        pass  # compressed, or no archive at all: whoever takes it says so
    return None


def stack(shelf: Shelf, plain: Path, parent: str, run: ImageConfig, made_by: str, place_for: Path) -> str:
    """Make an image of one more layer (a plain tar) on a parent (empty: none); its manifest's digest."""
    below: tuple[oci.Descriptor, ...] = ()
    diff_ids: tuple[str, ...] = ()
    history: tuple[str, ...] = ()
    architecture = ""
    if parent:
        manifest = oci.parse_manifest(shelf.read(parent))
        config = oci.parse_config(shelf.read(manifest.config.digest), len(manifest.layers))
        below, diff_ids, architecture = manifest.layers, config.rootfs.diff_ids, config.architecture
        steps = [step.created_by for step in config.history or () if not step.empty_layer]
        history = tuple(steps) if len(steps) == len(below) else ("",) * len(below)
    diff_id = file_digest(plain)
    packed = place_for / "layer.zst"
    pack(plain, packed)
    size, digest = packed.stat().st_size, file_digest(packed)
    place(packed, shelf.blob(digest))
    layer = oci.Descriptor(media_type=f"{oci.LAYER}+zstd", digest=digest, size=size)
    config_bytes = oci.new_config(run, (*diff_ids, diff_id), (*history, made_by), architecture=architecture)
    config_at = oci.Descriptor(media_type=oci.CONFIG, digest=shelf.add_bytes(config_bytes), size=len(config_bytes))
    return shelf.add_bytes(oci.new_manifest(config_at, (*below, layer)))


def write(shelf: Shelf, manifest_digest: str, release: Release, into: IO[bytes]) -> None:
    """Write an image as a tar of an OCI layout, with its signed release."""
    manifest_bytes = shelf.read(manifest_digest)
    manifest = oci.parse_manifest(manifest_bytes)
    index = oci.new_index([(release.reference, manifest_digest, len(manifest_bytes))])
    with tarfile.open(fileobj=into, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        _put(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _put(tar, "index.json", index)
        _put(tar, RELEASE_FILE, msgspec.json.encode(release))
        for digest in dict.fromkeys((manifest_digest, manifest.config.digest, *(d.digest for d in manifest.layers))):
            path = shelf.blob(digest)
            header = tarfile.TarInfo(f"blobs/sha256/{path.name}")
            header.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(header, file)


def _put(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    header = tarfile.TarInfo(name)
    header.size = len(data)
    tar.addfile(header, io.BytesIO(data))


def _members(file: IO[bytes]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for number, entry in enumerate(entries(file), 1):
        if number > MOST_ENTRIES:
            raise BadRequest(f"more than {MOST_ENTRIES} files", where="archive", hint="make the image of fewer files")
        found[_plain_name(entry)] = entry
    return found


def _plain_name(entry: Entry) -> str:
    return entry.name.removeprefix("./").strip("/")


Members = Mapping[str, Entry]


def _layout(shelf: Shelf, file: IO[bytes], members: Members, ref: str, most: int) -> Taken:
    chosen = oci.choose(oci.parse_index(_small(file, members, "index.json")), ref=ref)
    for _ in range(3):
        if chosen.media_type not in oci.INDEXES:
            break
        chosen = oci.choose(oci.parse_index(_small(file, members, _blob(chosen.digest))))
    data = _small(file, members, _blob(chosen.digest))
    manifest = oci.parse_manifest(data)
    for blob in (chosen, manifest.config, *manifest.layers):
        shelf.add_stream(_open(file, members, _blob(blob.digest)), expect=blob.digest, most=most)
    release = _release(file, members) if RELEASE_FILE in members else None
    return Taken(manifest=chosen.digest, kind="oci", release=release)


def _release(file: IO[bytes], members: Members) -> Release:
    return oci.parsed(_small(file, members, RELEASE_FILE), Release, RELEASE_FILE)


def _docker(shelf: Shelf, file: IO[bytes], members: Members, ref: str, most: int) -> Taken:
    images = oci.parsed(_small(file, members, "manifest.json"), tuple[_DockerImage, ...], "manifest.json")
    if ref:
        images = tuple(image for image in images if ref in (image.repo_tags or ()))
    if len(images) != 1 or len(images[0].layers) > oci.MOST_LAYERS:
        raise BadRequest(f"{len(images)} of its images are meant, not one", where="archive", hint="name one with --ref")
    image = images[0]
    config = _small(file, members, image.config)
    oci.parse_config(config, len(image.layers))
    config_at = oci.Descriptor(media_type=oci.CONFIG, digest=shelf.add_bytes(config), size=len(config))
    layers = []
    for name in image.layers:
        start = _open(file, members, name).read(2)
        compression = {b"\x1f\x8b": "+gzip", b"\x28\xb5": "+zstd"}.get(start, "")
        digest, size = shelf.add_stream(_open(file, members, name), most=most)
        layers.append(oci.Descriptor(media_type=f"{oci.LAYER}{compression}", digest=digest, size=size))
    return Taken(manifest=shelf.add_bytes(oci.new_manifest(config_at, layers)), kind="docker")


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _open(file: IO[bytes], members: Members, name: str, hops: int = 8) -> Body:
    member = members.get(name.removeprefix("./").strip("/"))
    # docker save shares layers between images by links inside the archive.
    if member is not None and member.kind == "link" and hops:
        folder = name.rpartition("/")[0]
        parts: list[str] = []
        for part in f"{folder}/{member.target}".split("/"):
            if part == ".." and parts:
                parts.pop()
            elif part not in ("", ".", ".."):
                parts.append(part)
        return _open(file, members, "/".join(parts), hops - 1)
    if member is None or member.kind != "file" or member.pieces is not None:
        raise BadRequest("is missing in the archive", where=repr(name)[:120])
    return Body(file, member.at, member.size)


def _small(file: IO[bytes], members: Members, name: str) -> bytes:
    data = _open(file, members, name).read(oci.MOST_JSON + 1)
    if len(data) > oci.MOST_JSON:
        raise BadRequest("is too large", where=repr(name)[:120])
    return data
