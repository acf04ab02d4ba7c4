"""Puts files and packages into an unpacked system, runs scripts in it, and writes what is new as a layer.

A program of its own (``python -m``), started in namespaces of its own: what it mounts and starts ends with it. Whatever
is done in the system is done apart (``confinement``), each script too: the system is the only file system that there
is, its root is nobody outside, and nothing begins before every process of the step before has ended. From outside no
file of the system is ever opened.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

import msgspec

from strata.core.errors import BadRequest, StrataError
from strata.provisioning.images.build.confinement import apart, enter, run_program
from strata.provisioning.images.build.last_words import OwnLog, one_line
from strata.provisioning.images.build.network import RESOLVER
from strata.provisioning.images.build.recipe import Recipe, RecipeFile
from strata.provisioning.images.build.syscalls import open_beneath
from strata.provisioning.images.squash import FileLine, read_listing
from strata.provisioning.images.squashing import Pressed, say
from strata.provisioning.images.tree import Kind

_EMPTIED = ("proc", "sys", "dev")
"""What is there on a machine that runs is the machine's."""
_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo"}
_KEPT_XATTRS = ("user.", "security.capability")
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/root",
    "DEBIAN_FRONTEND": "noninteractive",
}
_RESOLVER = Path("/etc/resolv.conf")
_NO_SERVICES = Path("/usr/sbin/policy-rc.d")


class Furnishing(msgspec.Struct, frozen=True, kw_only=True):
    """The order."""

    root: str
    recipe: Recipe
    context: str
    """Where the recipe's own files are."""
    install: bool = False
    """Packages are still to be put in."""
    parent_listing: str = ""
    """The files of the parent; empty: everything is new."""
    layer: str
    """Where the layer goes."""


def furnish(order: Furnishing) -> None:
    """Do it."""
    root, recipe = Path(order.root), order.recipe
    staged = [(file, _content(Path(order.context), file.source, file.content)) for file in recipe.files]
    if staged:
        say(f"putting {len(staged)} files in")
        _put(root, staged)
    if order.install:
        say(f"installing {', '.join(recipe.packages)[:500]}")
        for command in (
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-y", "-q", "--no-install-recommends", *recipe.packages],
            ["apt-get", "clean"],
            ["sh", "-c", "rm -rf /var/lib/apt/lists/*"],
        ):
            _run_inside(root, command, " ".join(command[:2]), "recipe, packages")
    for number, script in enumerate(recipe.run, 1):
        step = f"script {number} of {len(recipe.run)}"
        say(f"running {step}")
        _run_inside(root, ["/bin/sh", "-euc", script], f"{step} ({one_line(script)})", "recipe, run")
    known = {line.path: line for line in read_listing(Path(order.parent_listing))} if order.parent_listing else {}
    say("writing the layer")
    with Path(order.layer).open("xb") as layer:

        def write() -> None:
            enter()
            write_layer(Path("/"), known, layer)

        apart(root, write, kept=[layer.fileno()])


def write_layer(root: Path, known: dict[str, FileLine], layer: IO[bytes]) -> None:
    """Write what ``root`` holds and ``known`` does not, and what is gone of it. No link in it is followed."""
    left = dict(known)
    inodes: dict[tuple[int, int], str] = {}
    with tarfile.open(fileobj=layer, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        gone_below: list[str] = []
        for found in _walk(root):
            was = left.pop(found.path, None)
            _add(tar, found, was, inodes)
        for path in sorted(left):
            if not any(path.startswith(f"{above}/") for above in gone_below[-1:]):
                folder, _, name = path.rpartition("/")
                tar.addfile(tarfile.TarInfo(f"./{folder}/.wh.{name}" if folder else f"./.wh.{name}"))
                gone_below.append(path)
    layer.flush()


class _Found(NamedTuple):
    """One entry of a directory that is open."""

    path: str
    folder: int
    name: str
    status: os.stat_result

    @property
    def kind(self) -> Kind | None:
        return _KINDS.get(stat.S_IFMT(self.status.st_mode))

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of a file or directory; -1 for what has no content."""
        if self.kind not in ("file", "dir"):
            yield -1
            return
        source = os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            yield source
        finally:
            os.close(source)

    def target(self) -> str:
        return os.readlink(self.name, dir_fd=self.folder)


def _walk(root: Path) -> Iterator[_Found]:
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        stack = [""]
        while stack:
            here = stack.pop()
            folder = open_beneath(top, here or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                with os.scandir(folder) as entries:
                    names = sorted((entry.name for entry in entries), reverse=True)
                for name in names:
                    path = f"{here}/{name}" if here else name
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    yield _Found(path, folder, name, status)
                    if stat.S_ISDIR(status.st_mode) and path not in _EMPTIED:
                        stack.append(path)
            finally:
                os.close(folder)
    finally:
        os.close(top)


def _add(tar: tarfile.TarFile, found: _Found, was: FileLine | None, inodes: dict[tuple[int, int], str]) -> None:
    """Add one entry, unless it is as it ``was``. ``inodes``: where files with several names are in this layer."""
    kind, status = found.kind, found.status
    if kind is None:  # devices and sockets: nodes bring their own
        return
    with found.opened() as source:
        header = _header(found, kind, source)
        inode = (status.st_dev, status.st_ino)
        if kind == "file" and status.st_nlink > 1:
            known_as = inodes.setdefault(inode, found.path)
            if known_as != found.path:
                header.type, header.linkname, header.size = tarfile.LNKTYPE, f"./{known_as}", 0
        if was is not None and header.type != tarfile.LNKTYPE and was == _line(found, kind, source):
            inodes.pop(inode, None)  # a link must point at what is in this layer
        elif header.isreg():
            with os.fdopen(source, "rb", closefd=False) as file:
                file.seek(0)
                tar.addfile(header, file)
        else:
            tar.addfile(header)


def _header(found: _Found, kind: Kind, source: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(f"./{found.path}")
    status = found.status
    header.mode, header.uid, header.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
    header.mtime = int(status.st_mtime)
    if kind == "dir":
        header.type = tarfile.DIRTYPE
    elif kind == "link":
        header.type, header.linkname = tarfile.SYMTYPE, found.target()
    elif kind == "fifo":
        header.type = tarfile.FIFOTYPE
    else:
        header.size = status.st_size
    if source >= 0:
        header.pax_headers = {
            f"SCHILY.xattr.{name}": os.getxattr(source, name).decode("utf-8", "surrogateescape")
            for name in os.listxattr(source)
            if name.startswith(_KEPT_XATTRS)
        }
    return header


def _line(found: _Found, kind: Kind, source: int) -> FileLine:
    status, content, size = found.status, "", 0
    if kind == "file":
        size = status.st_size
        with os.fdopen(source, "rb", closefd=False) as file:
            content = file_digest(file, "sha256").hexdigest()
    elif kind == "link":
        content = found.target()
    return FileLine(found.path, kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, size, content)


def _content(context: Path, source: str | None, text: str | None) -> bytes:
    if source is None:
        return (text or "").encode()
    path = (context / source).resolve()
    if not path.is_relative_to(context.resolve()) or not path.is_file():
        raise BadRequest("no such file beside the recipe", where=f"recipe, files, {source[:200]!r}")
    return path.read_bytes()


def _put(root: Path, files: list[tuple[RecipeFile, bytes]]) -> None:
    def put() -> None:
        enter()
        for file, content in files:
            path = Path(file.path)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                path.write_bytes(content)
                os.chown(path, *file.ids)
                path.chmod(int(file.mode, 8))
            except OSError as error:
                why = f"cannot write {error.filename}: {error.strerror}"
                raise BadRequest(f"a file of the recipe cannot be put in: {why}", where="recipe, files") from None

    apart(root, put)


def _run_inside(root: Path, command: list[str], step: str, where: str) -> None:
    """``step``: the command in words, for people who wrote the recipe."""
    log = OwnLog()

    def live() -> int:
        enter(alive=True)
        with _company():
            try:
                return run_program(command, _ENV, reduced=True)
            except FileNotFoundError:
                raise BadRequest(f"the image has no {command[0]}", where=where) from None

    status = apart(root, live)
    if status:
        ended = f"failed with status {status}" if status > 0 else f"was ended by signal {-status}"
        raise BadRequest(f"{step} {ended}: {log.last_words() or 'it said nothing'}", where=where, hint="see the log")


@contextlib.contextmanager
def _company() -> Iterator[None]:
    """Inside the system: files that programs expect of a running machine, where it has none of its own; taken away
    again. A link at their place is the system's own."""
    made = []
    for path, content, mode in ((_RESOLVER, RESOLVER, 0o644), (_NO_SERVICES, b"#!/bin/sh\nexit 101\n", 0o755)):
        with contextlib.suppress(OSError):
            with path.open("xb") as file:  # new: never through a link
                file.write(content)
            made.append(path)
            path.chmod(mode)
    try:
        yield
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def main() -> NoReturn:
    """Take the order, say how it went."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Furnishing)
    # The answer is ours alone to give: for what runs in the system, standard output is the log.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer = Pressed()
    try:
        furnish(order)
    except BadRequest as error:
        answer = Pressed(error=error.detail, where=error.where, hint=error.hint)
    except StrataError as error:
        answer = Pressed(error=error.detail, where=error.where, hint=error.hint, ours=True)
    except OSError as error:
        answer = Pressed(error=f"{error.strerror}: {error.filename}", ours=True)
    with answers:
        answers.write(msgspec.json.encode(answer))
    sys.exit(0)


if __name__ == "__main__":
    main()
