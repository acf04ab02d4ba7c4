"""Puts files and packages into an unpacked system, runs scripts in it, and writes what is new as a layer.

A program of its own (``python -m``), started in namespaces of its own: what it mounts and starts ends with it. Whatever
is done in the system is done where its root is the only file system there is (``confine``), and scripts lack the rights
that would let them reach the machine.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from hashlib import file_digest
from pathlib import Path
from typing import NoReturn

import msgspec

from strata.core.errors import BadRequest, StrataError
from strata.provisioning.images.confinement import confine
from strata.provisioning.images.last_words import OwnLog, one_line
from strata.provisioning.images.press import Pressed, say
from strata.provisioning.images.recipe import Recipe
from strata.provisioning.images.squash import FileLine, read_listing

_EMPTIED = ("proc", "sys", "dev")
"""What is mounted there is the machine's."""
_KEPT_XATTRS = ("user.", "security.capability")
_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/root",
    "DEBIAN_FRONTEND": "noninteractive",
}
_NO_SERVICES = "usr/sbin/policy-rc.d"


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

    def put() -> None:
        for file, content in staged:
            path = Path(file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            os.chown(path, *file.ids)
            path.chmod(int(file.mode, 8))

    if staged:
        say(f"putting {len(staged)} files in")
        _inside(root, put)
    if recipe.run or order.install:
        with _living(root):
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
    write_layer(root, known, Path(order.layer))


def write_layer(root: Path, known: dict[str, FileLine], layer: Path) -> None:
    """Write what ``root`` holds and ``known`` does not, and what is gone of it."""
    left = dict(known)
    inodes: dict[tuple[int, int], str] = {}
    with layer.open("xb") as file, tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        gone_below: list[str] = []
        for path, status in _walk(root):
            was = left.pop(path, None)
            full = root / path
            header = _header(full, path, status)
            if header is None:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                known_as = inodes.setdefault((status.st_dev, status.st_ino), path)
                if known_as != path:
                    header.type, header.linkname, header.size = tarfile.LNKTYPE, f"./{known_as}", 0
            if was is not None and was == _line(full, path, status) and header.type != tarfile.LNKTYPE:
                inodes.pop((status.st_dev, status.st_ino), None)  # a link must point at what is in this layer
                continue
            if header.isreg():
                with full.open("rb") as source:
                    tar.addfile(header, source)
            else:
                tar.addfile(header)
        for path in sorted(left):
            if not any(path.startswith(f"{above}/") for above in gone_below[-1:]):
                folder, _, name = path.rpartition("/")
                tar.addfile(tarfile.TarInfo(f"./{folder}/.wh.{name}" if folder else f"./.wh.{name}"))
                gone_below.append(path)


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    stack = [""]
    while stack:
        here = stack.pop()
        for entry in sorted(os.scandir(root / here), key=lambda found: found.name, reverse=True):
            path = f"{here}/{entry.name}" if here else entry.name
            status = entry.stat(follow_symlinks=False)
            yield path, status
            if stat.S_ISDIR(status.st_mode) and path not in _EMPTIED:
                stack.append(path)


def _header(full: Path, path: str, status: os.stat_result) -> tarfile.TarInfo | None:
    header = tarfile.TarInfo(f"./{path}")
    header.mode, header.uid, header.gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
    header.mtime = int(status.st_mtime)
    if stat.S_ISDIR(status.st_mode):
        header.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        header.type, header.linkname = tarfile.SYMTYPE, str(full.readlink())
    elif stat.S_ISFIFO(status.st_mode):
        header.type = tarfile.FIFOTYPE
    elif stat.S_ISREG(status.st_mode):
        header.size = status.st_size
    else:
        return None
    if not stat.S_ISLNK(status.st_mode):
        header.pax_headers = {
            f"SCHILY.xattr.{name}": os.getxattr(full, name).decode("utf-8", "surrogateescape")
            for name in os.listxattr(full, follow_symlinks=False)
            if name.startswith(_KEPT_XATTRS)
        }
    return header


def _line(full: Path, path: str, status: os.stat_result) -> FileLine:
    mode, content, size = stat.S_IMODE(status.st_mode), "", 0
    if stat.S_ISREG(status.st_mode):
        kind, size = "file", status.st_size
        with full.open("rb") as file:
            content = file_digest(file, "sha256").hexdigest()
    elif stat.S_ISLNK(status.st_mode):
        kind, content = "link", str(full.readlink())
    else:
        kind = "dir" if stat.S_ISDIR(status.st_mode) else "fifo"
    return FileLine(path, kind, mode, status.st_uid, status.st_gid, size, content)  # type: ignore[arg-type]


def _content(context: Path, source: str | None, text: str | None) -> bytes:
    if source is None:
        return (text or "").encode()
    path = (context / source).resolve()
    if not path.is_relative_to(context.resolve()) or not path.is_file():
        raise BadRequest("no such file beside the recipe", where=f"recipe, files, {source[:200]!r}")
    return path.read_bytes()


def _inside(root: Path, work: Callable[[], None]) -> None:
    """Do ``work`` in a child whose root is ``root``."""
    log = OwnLog()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            confine(root)
            work()
            status = 0
        except OSError as error:
            say(f"cannot write {error.filename}: {error.strerror}")
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        why = log.last_words() or f"status {status}"
        raise BadRequest(f"a file of the recipe cannot be put in: {why}", where="recipe, files", hint="see the log")


def _run_inside(root: Path, command: list[str], step: str, where: str) -> None:
    """``step``: the command in words, for people who wrote the recipe."""
    log = OwnLog()
    try:
        done = subprocess.run(
            command,
            env=_ENV,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
            check=False,
            preexec_fn=lambda: confine(root),
        )
    except FileNotFoundError:
        raise BadRequest(f"the image has no {command[0]}", where=where) from None
    if done.returncode:
        ended = (
            f"failed with status {done.returncode}"
            if done.returncode > 0
            else f"was ended by signal {-done.returncode}"
        )
        raise BadRequest(f"{step} {ended}: {log.last_words() or 'it said nothing'}", where=where, hint="see the log")


@contextlib.contextmanager
def _living(root: Path) -> Iterator[None]:
    """What programs expect of a running machine. Mounts are our namespace's own; files are taken away again."""
    for kind, folder in (("proc", "proc"), ("sysfs", "sys")):
        (root / folder).mkdir(exist_ok=True)
        _mount("-t", kind, kind, str(root / folder))
    (root / "dev").mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", "mode=755,size=1m", "tmpfs", str(root / "dev"))
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (root / "dev" / name).touch()
        _mount("--bind", f"/dev/{name}", str(root / "dev" / name))
    made: list[Path] = []
    resolver = root / "etc/resolv.conf"
    if resolver.parent.is_dir() and not resolver.parent.is_symlink() and not os.path.lexists(resolver):
        with contextlib.suppress(OSError):
            resolver.write_bytes(Path("/etc/resolv.conf").read_bytes())
            made.append(resolver)
    policy = root / _NO_SERVICES
    if all((root / f).is_dir() and not (root / f).is_symlink() for f in ("usr", "usr/sbin")) and not policy.exists():
        policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        policy.chmod(0o755)
        made.append(policy)
    try:
        yield
    finally:
        for path in made:
            path.unlink(missing_ok=True)
        for folder in ("dev", "sys", "proc"):
            subprocess.run(["umount", "-R", "-l", str(root / folder)], check=False)


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, check=False)
    if done.returncode:
        raise StrataError(f"cannot mount: {done.stderr.decode(errors='replace').strip()[:200]}", where=arguments[-1])


def main() -> NoReturn:
    """Take the order, say how it went."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Furnishing)
    answer = Pressed()
    try:
        furnish(order)
    except BadRequest as error:
        answer = Pressed(error=error.detail, where=error.where, hint=error.hint)
    except StrataError as error:
        answer = Pressed(error=error.detail, where=error.where, hint=error.hint, ours=True)
    except OSError as error:
        answer = Pressed(error=f"{error.strerror}: {error.filename}", ours=True)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.exit(0)


if __name__ == "__main__":
    main()
