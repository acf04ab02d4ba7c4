"""The files of the repository: an OCI image layout, and beside it what nodes fetch. Each is named for its digest.

``blobs/sha256`` and ``oci-layout`` are what any OCI tool understands. ``squashfs`` and ``chunks`` are served to nodes
by nginx, whose account reads them through the group; nobody else can list or open them. ``listings`` say which files
an image holds. ``work``, ``uploads``, ``incoming`` (from other controllers) and ``logs`` hold what is not finished, or
was said about it.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from strata.core.errors import BadRequest, NotFound, StrataError
from strata.core.host.removal import remove_tree
from strata.provisioning.images.disk_space import Room
from strata.provisioning.images.release import check_digest
from strata.provisioning.images.tarball import Body

log = logging.getLogger(__name__)

SERVED = ("squashfs", "chunks")
_PRIVATE = ("blobs", "blobs/sha256", "listings", "work", "uploads", "incoming", "logs")
_LOGS_KEPT = 7 * 86400.0
KINDS = {
    "blobs": ("blobs/sha256", ""),
    "squashfs": ("squashfs", ".squashfs"),
    "chunks": ("chunks", ""),
    "listings": ("listings", ".gz"),
}
"""Kind of file → its folder, and what stands behind the digest in its name."""


class Shelf:
    """The directory. Whatever is in place is whole: files come by being renamed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self, *, readers: int | None = None) -> None:
        """Make what is missing. ``readers``: the group of nginx's workers, if they are somebody else."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (*_PRIVATE, *SERVED):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)
        if readers is not None:
            os.chown(self.root, -1, readers)
            self.root.chmod(0o710)
            for name in SERVED:
                folder = self.root / name
                os.chown(folder, -1, readers)
                folder.chmod(0o2710)  # what comes into it is the group's as well
                for file in os.scandir(folder):
                    if file.stat(follow_symlinks=False).st_gid != readers:  # from when they were somebody else
                        os.chown(file.path, -1, readers, follow_symlinks=False)
        layout = self.root / "oci-layout"
        if not layout.exists():
            layout.write_text('{"imageLayoutVersion":"1.0.0"}\n', encoding="ascii")

    def path(self, kind: str, name: str) -> Path:
        """Where the file of a kind is, or would be, that is named by these hexadecimal digits."""
        folder, ending = KINDS[kind]
        return self.root / folder / f"{name}{ending}"

    def names(self, kind: str) -> set[str]:
        """Hexadecimal digits that name files of a kind here. Looks at the disk."""
        folder, ending = KINDS[kind]
        return {path.name.removesuffix(ending) for path in (self.root / folder).iterdir()}

    def blob(self, digest: str) -> Path:
        """Where a blob is, or would be."""
        return self.path("blobs", check_digest(digest))

    def squashfs(self, digest: str) -> Path:
        """The file that nodes mount."""
        return self.path("squashfs", check_digest(digest))

    def chunks(self, digest: str) -> Path:
        """The list of its chunks' digests."""
        return self.path("chunks", check_digest(digest))

    def listing(self, manifest: str) -> Path:
        """The files of the image with this manifest."""
        return self.path("listings", check_digest(manifest))

    def upload(self, ident: str) -> Path:
        """What a client is sending."""
        if not ident.isalnum() or len(ident) > 64:
            raise BadRequest("not the name of an upload", where=repr(ident)[:80])
        return self.root / "uploads" / ident

    def log(self, ident: str) -> Path:
        """What was said while an image was made."""
        if not ident.isalnum() or len(ident) > 64:
            raise BadRequest("not the name of a log", where=repr(ident)[:80])
        return self.root / "logs" / ident

    @contextlib.contextmanager
    def workplace(self) -> Iterator[Path]:
        """A directory on the same file system that is gone at the end."""
        place = self.root / "work" / secrets.token_hex(8)
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            clear(place)

    def add_bytes(self, data: bytes) -> str:
        """Put a small blob in place; its digest."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        part = self.root / "work" / secrets.token_hex(8)
        part.write_bytes(data)
        place(part, self.blob(digest))
        return digest

    def add_stream(self, source: IO[bytes] | Body, *, expect: str = "", most: int) -> tuple[str, int]:
        """Put a blob in place as it is read; its digest and size. Refused unless it is the expected one."""
        part = self.root / "work" / secrets.token_hex(8)
        digest, size = hashlib.sha256(), 0
        room = Room(part.parent, most, expect[:19] or "blob")
        try:
            with part.open("xb") as file:
                while piece := source.read(1 << 20):
                    size += len(piece)
                    room.take(len(piece))
                    digest.update(piece)
                    file.write(piece)
            found = f"sha256:{digest.hexdigest()}"
            if expect and found != expect:
                raise BadRequest(f"its digest is {found[:19]}…: damaged, or not what was asked for", where=expect[:19])
            place(part, self.blob(found))
        finally:
            part.unlink(missing_ok=True)
        return found, size

    def write_index(self, data: bytes) -> None:
        """Put the layout's ``index.json`` in place."""
        part = self.root / ".index.json.part"
        part.write_bytes(data)
        part.replace(self.root / "index.json")

    def read(self, digest: str, most: int = 4 << 20) -> bytes:
        """A small blob, checked."""
        path = self.blob(digest)
        try:
            with path.open("rb") as file:
                data = file.read(most + 1)
        except FileNotFoundError:
            raise NotFound("the blob is not in this controller's repository", where=digest[:19]) from None
        if len(data) > most:
            raise BadRequest(f"is larger than {most} bytes, which no manifest is", where=digest[:19])
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            raise BadRequest("is damaged", where=digest[:19], hint="import the image again")
        return data

    def sweep_work(self) -> None:
        """Remove what interrupted work left, and logs that nobody will read any more."""
        for path in (self.root / "work").iterdir():
            clear(path)
        for path in (self.root / "logs").iterdir():
            if path.stat().st_mtime < time.time() - _LOGS_KEPT:
                path.unlink()

    def put_aside(self, paths: Iterable[Path]) -> Path:
        """Take files out of reach, at once; the folder in which they can be removed at leisure."""
        aside = self.root / "work" / f"gone-{secrets.token_hex(8)}"
        aside.mkdir(mode=0o700)
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                path.rename(aside / f"{path.parent.name}-{path.name}")
        return aside

    def unused(self, used: Iterable[str], *, older: float) -> list[tuple[Path, int]]:
        """Files that belong to nothing in ``used`` (digests) and have been there for a while, with their sizes."""
        keep = {check_digest(digest) for digest in used}
        cut = time.time() - older
        found = []
        for folder, ending in KINDS.values():
            for path in sorted((self.root / folder).iterdir()):
                status = path.lstat()
                if path.name.removesuffix(ending) not in keep and status.st_mtime <= cut:
                    found.append((path, status.st_size))
        return found


def place(part: Path, path: Path) -> None:
    """Move a finished file to where it is looked for. One that is there already is the same, and only gets younger;
    unless it was damaged since: then it is replaced."""
    if path.exists() and filecmp.cmp(part, path, shallow=False):
        part.unlink()
        os.utime(path)
        return
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.chmod(0o640)
    os.chown(part, -1, path.parent.stat().st_gid)
    part.replace(path)


def clear(path: Path) -> None:
    """Remove what work left: a file or a folder, whatever a build that was killed has mounted in it."""
    try:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    except (OSError, StrataError) as error:
        log.warning("cannot be removed", extra={"path": str(path), "reason": str(error)})
