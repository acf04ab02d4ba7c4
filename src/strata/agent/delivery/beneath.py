"""Files beneath a member's root, reached by descriptors alone: whatever the member does, nothing outside is touched.

Every component is opened by itself and without following it. A link is followed as a process rooted there would, and
only if root made it: an account that may write into a folder cannot lead us elsewhere by one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import CommandFailed

_MOST_LINKS = 40
_MOST_READ = 4 << 20
_WALK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_BESIDE = ".strata~"


class Beneath:
    """A member's root. `with` it: what was opened is closed, and what was staged and not put into place is gone."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[tuple[int, int], int] = {}
        self._staged: list[tuple[int, str]] = []

    def __enter__(self) -> Beneath:
        try:
            self._base = os.open(self._root, _WALK | os.O_DIRECTORY)
        except OSError as error:
            raise CommandFailed(f"the member's root is not there: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        for folder, name in self._staged:
            with contextlib.suppress(OSError):
                os.unlink(_BESIDE + name, dir_fd=folder)
        for descriptor in (self._base, *self._folders.values()):
            os.close(descriptor)
        self._folders, self._staged = {}, []

    def look(self, path: str) -> os.stat_result | None:
        """What is there, itself and not what it leads to; None: nothing is."""
        try:
            with self._folder(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(path, error) from None

    def read(self, path: str) -> bytes | None:
        """A plain file's bytes; None where there is none."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with self._folder(path) as (folder, name):
                descriptor = os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(path, error) from None
        with os.fdopen(descriptor, "rb") as source:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise CommandFailed(f"{path} is no plain file")
            return source.read(_MOST_READ)

    def stage(self, path: str, data: bytes, mode: int, uid: int, gid: int) -> None:
        """Write a file beside where it is to be, whole. Folders that are missing are made; those of an account are its
        own."""
        there = self.look(path)
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise CommandFailed(f"{path} is a folder")
        try:
            with self._folder(path, (uid, gid)) as (found, name):
                folder = self._kept(found)
            beside = _BESIDE + name
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)  # an agent that was killed may have left it
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(beside, flags, 0o600, dir_fd=folder)
            self._staged.append((folder, name))
            with os.fdopen(descriptor, "wb") as out:
                out.write(data)
                out.flush()
                os.fchown(descriptor, uid, gid)
                os.fchmod(descriptor, mode)
        except OSError as error:
            raise _failed(path, error) from None

    def commit(self) -> None:
        """Put everything that was staged into its place."""
        while self._staged:
            folder, name = self._staged[0]
            try:
                os.rename(_BESIDE + name, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                raise _failed(name, error) from None
            del self._staged[0]

    def remove(self, path: str) -> None:
        """Take a plain file away; anything else that is there by now is not ours."""
        there = self.look(path)
        if there is not None and stat.S_ISREG(there.st_mode):
            with contextlib.suppress(FileNotFoundError), self._folder(path) as (folder, name):
                os.unlink(name, dir_fd=folder)

    def _kept(self, folder: int) -> int:
        """The same folder, open until the end; once for all files in it."""
        itself = os.fstat(folder)
        key = (itself.st_dev, itself.st_ino)
        if key not in self._folders:
            self._folders[key] = os.dup(folder)
        return self._folders[key]

    @contextlib.contextmanager
    def _folder(self, path: str, owner: tuple[int, int] | None = None) -> Iterator[tuple[int, str]]:
        """The open folder that a path leads to, and the last name in it. `owner`: of folders that are made."""
        parts = _parts(path)
        if not parts or ".." in parts:
            raise CommandFailed(f"{path[:200]!r} is no path of a file")
        name = parts.pop()
        stack, opened, links = [self._base], [], 0
        try:
            while parts:
                part = parts.pop(0)
                if part == "..":
                    stack = stack[:-1] or [self._base]
                    continue
                found = _step(stack[-1], part, owner)
                opened.append(found)
                kind = os.fstat(found)
                if stat.S_ISLNK(kind.st_mode):
                    links += 1
                    if links > _MOST_LINKS:
                        raise CommandFailed(f"too many links on the way to {path}")
                    if kind.st_uid != 0:
                        raise CommandFailed(f"{part} on the way to {path} is a link that root did not make")
                    target = os.readlink("", dir_fd=found)
                    stack = [self._base] if target.startswith("/") else stack
                    parts = _parts(target) + parts
                elif stat.S_ISDIR(kind.st_mode):
                    stack.append(found)
                else:
                    raise CommandFailed(f"{part} on the way to {path} is no folder")
            yield stack[-1], name
        finally:
            for descriptor in opened:
                os.close(descriptor)


def _step(folder: int, part: str, owner: tuple[int, int] | None) -> int:
    """One component further. `owner`: of the folder that is made where nothing is there; None: none is made."""
    try:
        return os.open(part, _WALK, dir_fd=folder)
    except FileNotFoundError:
        if owner is None:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, 0o755 if owner[0] == 0 else 0o700, dir_fd=folder)
        os.chown(part, *owner, dir_fd=folder, follow_symlinks=False)
    return os.open(part, _WALK, dir_fd=folder)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _failed(path: str, error: OSError) -> CommandFailed:
    return CommandFailed(f"{path}: {error.strerror or error}")
