"""The built minimal OSes in a folder: each in a directory named by its manifest's digest, and which are the latest.

A directory holds ``vmlinuz``, ``initrd``, ``manifest.json`` and ``manifest.sig``. Each architecture has a latest of its
own: the symbolic link ``latest-x86_64`` names a directory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest, Conflict, Corrupt, NotFound
from strata.provisioning.signing import Signer, verify

LATEST = "latest"
"""How people name the latest build; ``latest-aarch64`` where there is one for each of several architectures."""
KERNEL = "vmlinuz"
INITRD = "initrd"
MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
PARTS = (KERNEL, INITRD, MANIFEST, SIGNATURE)
"""Every file of a build."""
REMOVED = ".removed"
"""Folder of empty files, one for each build that somebody removed: until all controllers know of it."""
_DIGITS = 12
_BUILD = re.compile(r"[0-9a-f]{12}\Z")


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A package of which at least one file was taken."""

    name: str
    version: str
    sha256: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a build."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was built, of what. The same inputs make the same manifest, and its digest names the build."""

    arch: str
    kernel: str
    """Its release, as ``uname -r`` says."""
    inputs: tuple[Input, ...]
    agent: str
    """Digest over the agent's sources."""
    files: str
    """Digest over every path, mode and content in the initrd."""
    modules: tuple[str, ...]
    unpacked: int
    """Bytes of the initrd in a node's memory."""
    vmlinuz: Part
    initrd: Part


class Artefact(msgspec.Struct, frozen=True, kw_only=True):
    """One build."""

    digest: str
    """The first 12 hexadecimal digits of the SHA-256 of its manifest."""
    manifest: Manifest
    path: Path
    latest: bool = False
    """Whether it is the latest of its architecture."""


class Artefacts:
    """The builds in ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, manifest: Manifest, kernel: bytes, initrd: bytes, signer: Signer) -> Artefact:
        """Keep a build, whole or not at all, and make it the latest of its architecture. One that is there already
        stays."""
        text = encode(manifest)
        digest = hashlib.sha256(text).hexdigest()[:_DIGITS]
        self.root.mkdir(parents=True, exist_ok=True)
        target = self.root / digest
        part = Path(tempfile.mkdtemp(prefix=".build-", dir=self.root))
        try:
            for name, data in (
                (KERNEL, kernel),
                (INITRD, initrd),
                (MANIFEST, text),
                (SIGNATURE, signer.sign(text)),
            ):
                _write(part / name, data)
            part.chmod(0o755)
            if target.exists() and _problems(target, digest, signer.public_pem):
                self._take_away(digest)
            if not target.exists():
                part.rename(target)
            (self.root / REMOVED / digest).unlink(missing_ok=True)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        self.choose(digest)
        return Artefact(digest=digest, manifest=manifest, path=target, latest=True)

    def all(self) -> list[Artefact]:
        """All builds, by digest."""
        if not self.root.is_dir():
            return []
        return [self.get(path.name) for path in sorted(self.root.iterdir()) if is_digest(path.name)]

    def get(self, name: str) -> Artefact:
        """The build of that digest (or the one that begins so), ``latest``, or ``latest-`` and an architecture."""
        digest = self._resolve(name)
        path = self.root / digest
        try:
            manifest = read_manifest(path)
        except (OSError, msgspec.MsgspecError) as error:
            raise Corrupt(
                f"its manifest cannot be read: {type(error).__name__}",
                where=f"minOS {digest}",
                hint=f"strata minos remove {digest}, then build again",
            ) from None
        return Artefact(digest=digest, manifest=manifest, path=path, latest=digest in latest(self.root).values())

    def choose(self, name: str, *, at: int = 0) -> str:
        """Make a build the latest of its architecture; its digest. ``at``: when that was decided, in nanoseconds, if
        not now."""
        found = self.get(name)
        link = latest_links(self.root).get(found.manifest.arch)
        part = self.root / f".{LATEST}.{os.getpid()}"
        part.unlink(missing_ok=True)
        part.symlink_to(found.digest)
        if at:
            os.utime(part, ns=(at, at), follow_symlinks=False)
        part.replace(self.root / f"{LATEST}-{found.manifest.arch}")
        if link is not None and link.name == LATEST:
            link.unlink(missing_ok=True)
        return found.digest

    def problems(self, name: str, public_pem: str) -> list[str]:
        """What is wrong with a build: its signature, or a file that is not as its manifest says. Empty: nothing."""
        digest = self._resolve(name)
        return _problems(self.root / digest, digest, public_pem)

    def remove(self, name: str) -> str:
        """Delete a build that is not the latest, and leave word of it for the other controllers; its digest."""
        digest = self.discard(name)
        (self.root / REMOVED).mkdir(exist_ok=True)
        (self.root / REMOVED / digest).touch()
        return digest

    def adopt(self, part: Path, digest: str, public_pem: str, *, at: int) -> None:
        """Keep a build that another controller made, whose files are in ``part``. ``at``: when it was made, in
        nanoseconds."""
        if problems := _problems(part, digest, public_pem):
            raise Corrupt(
                "; ".join(problems), where=f"minOS {digest}", hint="have the same signing key on all controllers"
            )
        for name in PARTS:
            with (part / name).open("rb") as file:
                os.fsync(file.fileno())
            (part / name).chmod(0o644)
        part.chmod(0o755)
        os.utime(part, ns=(at, at))
        part.rename(self.root / digest)

    def discard(self, name: str) -> str:
        """Delete a build that is not the latest, here only; its digest."""
        digest = self._resolve(name)
        if digest in latest(self.root).values():
            raise Conflict(
                "it is the latest, which nodes boot", where=f"minOS {digest}", hint="make another one the latest first"
            )
        self._take_away(digest)
        return digest

    def _take_away(self, digest: str) -> None:
        """Delete a build; nobody sees half of it."""
        aside = Path(tempfile.mkdtemp(prefix=".removed-", dir=self.root))
        (self.root / digest).rename(aside / digest)
        shutil.rmtree(aside)

    def _resolve(self, name: str) -> str:
        if name == LATEST or name.startswith(f"{LATEST}-"):
            there = {arch: digest for arch, digest in latest(self.root).items() if (self.root / digest).is_dir()}
            if name == LATEST and len(there) > 1:
                names = ", ".join(f"{LATEST}-{arch}" for arch in sorted(there))
                raise BadRequest(
                    "each architecture has a latest of its own", where="minOS", hint=f"name one of {names}"
                )
            found = [digest for arch, digest in there.items() if name in (LATEST, f"{LATEST}-{arch}")]
        elif re.fullmatch(r"[0-9a-f]{1,64}", name) and self.root.is_dir():
            found = sorted(
                path.name
                for path in self.root.iterdir()
                if is_digest(path.name) and (path.name.startswith(name) or name.startswith(path.name))
            )
        else:
            found = []
        if len(found) == 1:
            return found[0]
        detail = f"{len(found)} builds begin so" if found else "there is no such build"
        raise NotFound(detail, where=f"minOS {name[:64]!r}", hint="strata minos list; strata minos build makes one")


def latest_links(root: Path) -> dict[str, Path]:
    """Architecture → the link to its latest build. A link without an architecture, as older releases left it, is that
    of its build's architecture."""
    found = {}
    for link in (root / LATEST, *sorted(root.glob(f"{LATEST}-*"))):
        if digest := _named(link):
            arch = link.name.removeprefix(LATEST).removeprefix("-") or architecture(root / digest)
            if arch:
                found[arch] = link
    return found


def latest(root: Path) -> dict[str, str]:
    """Architecture → the digest of its latest build, whether or not that is there."""
    return {arch: _named(link) for arch, link in latest_links(root).items()}


def is_digest(name: str) -> bool:
    """Whether a build can be named so."""
    return _BUILD.match(name) is not None


def read_manifest(path: Path) -> Manifest:
    """Of the build in a directory; ``OSError`` or ``MsgspecError`` where it cannot be read."""
    return msgspec.json.decode((path / MANIFEST).read_bytes(), type=Manifest)


def architecture(path: Path) -> str:
    """Of the build in a directory, as its manifest says; empty: it cannot be read."""
    try:
        return read_manifest(path).arch
    except (OSError, msgspec.MsgspecError):
        return ""


def _named(link: Path) -> str:
    """The build that a link names; empty: none."""
    try:
        name = link.readlink().name
    except OSError:
        return ""
    return name if is_digest(name) else ""


def encode(manifest: Manifest) -> bytes:
    """The bytes that are signed."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2) + b"\n"


def _problems(path: Path, digest: str, public_pem: str) -> list[str]:
    found = []
    try:
        text = (path / MANIFEST).read_bytes()
        signature = (path / SIGNATURE).read_bytes()
        manifest = msgspec.json.decode(text, type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        return [f"its manifest cannot be read: {type(error).__name__}"]
    if hashlib.sha256(text).hexdigest()[:_DIGITS] != digest:
        found.append(f"{MANIFEST} is not the one that {digest} names")
    if not verify(public_pem, text, signature):
        found.append(f"{SIGNATURE} is not by this site's key")
    for name, part in ((KERNEL, manifest.vmlinuz), (INITRD, manifest.initrd)):
        if not _is(path / name, part):
            found.append(f"{name} is not as its manifest says")
    return found


def _is(path: Path, part: Part) -> bool:
    try:
        with path.open("rb") as file:
            return path.stat().st_size == part.size and hashlib.file_digest(file, "sha256").hexdigest() == part.sha256
    except OSError:
        return False


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)
