"""Debian packages by the machine's own apt: looked up, downloaded once, checked against the archive's digest.

Neither root nor anything installed is needed. A package that the machine's lists lack (never updated, or of another
architecture) is looked up in lists of our own, made from the same sources.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from strata.core.errors import Corrupt, NotFound, Unavailable
from strata.provisioning.minos.tree import File, Tree

_TIMEOUT = 600
_FRESH = 86400.0
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")


class Package(NamedTuple):
    """One version of a package, as the archive describes it."""

    name: str
    version: str
    architecture: str
    sha256: str
    depends: tuple[str, ...]


class Packages:
    """The packages of one Debian architecture."""

    def __init__(self, cache: Path, architecture: str) -> None:
        self._cache = cache
        self._architecture = architecture
        native = _run(["dpkg", "--print-architecture"]).strip()
        self._own_lists = native != architecture
        self._root = cache / f"apt-{architecture}"
        self._known: dict[str, Package] = {}

    def find(self, names: Iterable[str]) -> list[Package]:
        """The candidates of that name."""
        wanted = list(names)
        for name in wanted:
            if not _NAME.fullmatch(name):
                raise NotFound(f"{name[:80]!r} is no package name", where="minos build")
        missing = self._look_up(wanted)
        if missing:
            self.refresh()
            missing = self._look_up(wanted)
        if missing:
            raise NotFound(
                f"apt knows no package {', '.join(sorted(missing))} for {self._architecture}",
                where="minos build",
                hint="apt-cache policy shows which sources the machine has",
            )
        return [self._known[name] for name in wanted]

    def closure(self, names: Iterable[str], follow: Callable[[str], bool]) -> list[Package]:
        """These packages, and what they depend on as far as ``follow`` says of a name."""
        found: dict[str, Package] = {}
        level = sorted(set(names))
        while level:
            for package in self.find(level):
                found[package.name] = package
            level = sorted(
                {name for package in found.values() for name in package.depends if follow(name)} - found.keys()
            )
        return [found[name] for name in sorted(found)]

    def fetch(self, packages: Iterable[Package]) -> dict[str, Path]:
        """Name → the package's file, downloaded unless it was already."""
        wanted = list(packages)
        if any(not self._has(package) for package in wanted):
            with self._alone():
                # Somebody else may have fetched them while we waited.
                self._download([package for package in wanted if not self._has(package)])
        return {package.name: self._path(package) for package in wanted}

    def _has(self, package: Package) -> bool:
        path = self._path(package)
        return path.exists() and _sha256(path) == package.sha256

    def _path(self, package: Package) -> Path:
        version = package.version.replace(":", "%3a")
        return self._cache / f"{package.name}_{version}_{package.architecture}.deb"

    def refresh(self) -> None:
        """Forget what was known, and read the archive's lists again."""
        self._own_lists = True
        self._known.clear()
        with self._alone():
            self._apt("apt-get", "-q", "update")
            (self._root / "updated").touch()

    def _look_up(self, names: Iterable[str]) -> set[str]:
        """Learn of these; the names that are not known."""
        updated = self._root / "updated"
        if self._own_lists and updated.exists() and time.time() - updated.stat().st_mtime > _FRESH:
            # Without a way to the archive, yesterday's lists are better than none.
            with suppress(Unavailable):
                self.refresh()
        missing = {name for name in names if name not in self._known}
        if missing:
            text = self._apt("apt-cache", "show", "--no-all-versions", *sorted(missing), check=False)
            for package in _paragraphs(text):
                self._known.setdefault(package.name, package)
        return missing - self._known.keys()

    def _download(self, packages: list[Package]) -> None:
        """Into a folder of its own first: a file in the cache is whole."""
        with tempfile.TemporaryDirectory(prefix=".download-", dir=self._cache) as folder:
            exact = [f"{package.name}={package.version}" for package in packages]
            if exact:
                self._apt("apt-get", "-q", "download", *exact, cwd=Path(folder))
            for package in packages:
                path = Path(folder) / self._path(package).name
                if not path.exists() or _sha256(path) != package.sha256:
                    raise Corrupt(
                        f"package {package.name} is not what the archive describes",
                        where="minos build",
                        hint="apt-get update, then try again",
                    )
                path.replace(self._path(package))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One build at a time asks the archive: the others then find what it fetched."""
        self._cache.mkdir(parents=True, exist_ok=True)
        with (self._cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _apt(self, command: str, *arguments: str, cwd: Path | None = None, check: bool = True) -> str:
        root = self._root
        root.mkdir(parents=True, exist_ok=True)
        # A container's apt keeps no index of its lists, and would read them all for every question.
        index = root / ("own.index" if self._own_lists else "machine.index")
        options = ["-oAPT::Sandbox::User=", f"-oDir::Cache::pkgcache={index}"]
        if self._own_lists:
            for folder in ("state/lists/partial", "cache/archives/partial"):
                (root / folder).mkdir(parents=True, exist_ok=True)
            (root / "status").touch()
            options += [
                f"-oAPT::Architecture={self._architecture}",
                f"-oAPT::Architectures={self._architecture}",
                f"-oDir::State={root / 'state'}",
                f"-oDir::State::status={root / 'status'}",
                f"-oDir::Cache={root / 'cache'}",
            ]
        return _run([command, *options, *arguments], cwd=cwd, check=check)


def contents(path: Path, wanted: Callable[[str], bool]) -> Tree:
    """The files of a package whose path ``wanted`` says yes to. Only regular files and symbolic links."""
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], capture_output=True, timeout=_TIMEOUT)
    if done.returncode:
        raise Corrupt("the package cannot be unpacked", where=str(path), hint="remove it, and build again")
    found: Tree = {}
    with tarfile.open(fileobj=BytesIO(done.stdout), mode="r:") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if not wanted(name):
                continue
            if member.issym():
                found[name] = File(0o120777, member.linkname.encode())
            elif member.isreg():
                body = archive.extractfile(member)
                found[name] = File(0o100000 | (0o755 if member.mode & 0o111 else 0o644), body.read() if body else b"")
    return found


def _paragraphs(text: str) -> Iterator[Package]:
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", paragraph, re.MULTILINE))
        if not {"Package", "Version", "Architecture", "SHA256"} <= fields.keys():
            continue
        wanted = ",".join(filter(None, (fields.get("Pre-Depends"), fields.get("Depends"))))
        depends = tuple(word.split("|")[0].split("(")[0].split(":")[0].strip() for word in wanted.split(",") if word)
        yield Package(fields["Package"], fields["Version"], fields["Architecture"], fields["SHA256"], depends)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(command: list[str], *, cwd: Path | None = None, check: bool = True) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=_TIMEOUT)
    except FileNotFoundError:
        raise Unavailable(
            f"{command[0]} is not installed", where="minos build", hint="it needs a Debian machine"
        ) from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not end within {_TIMEOUT} s", where="minos build") from None
    if check and done.returncode:
        last = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()[-1:]
        raise Unavailable(
            f"{command[0]} failed: {' '.join(last)[:400]}", where="minos build", hint="apt-get update, then try again"
        )
    return done.stdout
