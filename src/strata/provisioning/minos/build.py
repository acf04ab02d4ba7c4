"""Builds the minimal OS: packages in, a kernel and a signed initrd out. The same inputs give the same bytes."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from strata.core.errors import Unavailable
from strata.provisioning.minos import modules, python, root
from strata.provisioning.minos.artefacts import Artefact, Artefacts, Input, Manifest, Part
from strata.provisioning.minos.packages import Package, Packages, contents
from strata.provisioning.minos.recipe import PACKAGES, Recipe
from strata.provisioning.minos.tree import File, Tree, fingerprint, pack
from strata.provisioning.signing import Signer

STEPS = 6
_KEPT = 4
Progress = Callable[[int, str], None]
"""Called with how many of ``STEPS`` are done, and what is being done now."""


def build(
    recipe: Recipe,
    agent: Path,
    cache: Path,
    into: Artefacts,
    signer: Signer,
    *,
    kernel: str = "",
    extra: Iterable[str] = (),
    hardware: Iterable[str] | None = None,
    crash_hook: bytes | None = None,
    progress: Progress = lambda done, doing: None,
) -> Artefact:
    """Build with the ``agent`` package of that folder and the usual kernel, or the one that ``kernel`` names.

    ``extra`` names modules to carry besides; ``hardware`` is the modaliases of the machines, where known;
    ``crash_hook`` is a program for crashed nodes to run instead of ours.
    """
    sources = python.sources(agent)
    if "__main__.py" not in sources:
        raise Unavailable("there is no agent to pack", where=str(agent))
    progress(0, "looking up packages")
    packages = Packages(cache, recipe.debian)
    try:
        image, parts, paths = _fetch(packages, kernel or recipe.kernel, progress)
    except Unavailable:
        # The archive has moved on since the lists were read: what they name is gone.
        progress(0, "reading the archive's lists")
        packages.refresh()
        image, parts, paths = _fetch(packages, kernel or recipe.kernel, progress)
    progress(2, "unpacking packages")
    origin: dict[str, Package] = {}
    files: Tree = {}
    for package in parts:
        for path, file in contents(paths[package.name], _useful).items():
            files[path] = file
            origin[path] = package
    progress(3, "unpacking the kernel")
    kernel_files = contents(
        paths[image.name], lambda path: path.startswith(("boot/", "lib/modules/", "usr/lib/modules/"))
    )
    kernel_files = {path.removeprefix("usr/"): file for path, file in kernel_files.items()}
    release, kernel_image = _image(recipe, kernel_files)
    progress(4, "putting the file tree together")
    chosen = modules.select(kernel_files, release, extra, hardware)
    tree = root.system(recipe, files, sources, crash_hook) | chosen
    progress(5, "compressing the initrd")
    archive = pack(tree)
    initrd = compressed(archive, cache)
    manifest = Manifest(
        arch=recipe.arch,
        kernel=release,
        inputs=_inputs([image, *_used(files, origin, tree)]),
        agent=_digest(sources),
        files=fingerprint(tree),
        modules=tuple(sorted(path.rpartition("/")[2].removesuffix(".ko") for path in chosen if path.endswith(".ko"))),
        unpacked=len(archive),
        vmlinuz=_part(kernel_image),
        initrd=_part(initrd),
    )
    made = into.add(manifest, kernel_image, initrd, signer)
    progress(6, "done")
    return made


def _fetch(packages: Packages, kernel: str, progress: Progress) -> tuple[Package, list[Package], dict[str, Path]]:
    """The kernel's package, those of everything else, and all their files."""
    image = _kernel(packages, kernel)
    parts = packages.closure(PACKAGES, _carried)
    progress(1, f"downloading {len(parts) + 1} packages")
    return image, parts, packages.fetch([image, *parts])


def _kernel(packages: Packages, name: str) -> Package:
    """The package that holds the kernel: of that name, or the one that it stands for."""
    (package,) = packages.find([name])
    below = [one for one in package.depends if re.fullmatch(r"linux-image-\d.*", one)]
    return packages.find(below)[0] if below else package


def _carried(name: str) -> bool:
    # A program beside the one that is taken of its package speaks to Xen, with a dozen libraries.
    return name.startswith(("lib", "python3", "zlib")) and not name.startswith("libxen")


def _useful(path: str) -> bool:
    return path.removeprefix("usr/").startswith(("bin/", "etc/ssl/", "lib/", "lib64/", "sbin/"))


def _image(recipe: Recipe, files: Mapping[str, File]) -> tuple[str, bytes]:
    """The kernel's release, and its file."""
    for path in sorted(files):
        if path.startswith(f"boot/{recipe.image}-"):
            release = path.removeprefix(f"boot/{recipe.image}-")
            config = files.get(f"boot/config-{release}", File(0)).data
            if b"CONFIG_RD_ZSTD=y" not in config:
                raise Unavailable(f"kernel {release} cannot unpack zstd", where="minos build", hint="use a newer one")
            return release, files[path].data
    raise Unavailable("the kernel's package holds no kernel", where="minos build", hint="name a linux-image package")


def compressed(archive: bytes, cache: Path) -> bytes:
    """The archive as nodes fetch it. Compressing is most of a build: earlier results are kept, and checked."""
    kept = cache / f"initrd-{hashlib.sha256(archive).hexdigest()[:16]}.zst"
    if kept.exists() and _zstd(["-dc"], kept.read_bytes(), check=False) == archive:
        data = kept.read_bytes()
    else:
        # One thread: with more, where blocks end would depend on how many there are.
        data = _zstd(["-18", "--single-thread", "-c"], archive)
        _keep(kept, data)
    # The kernel takes another archive after this one only where a word begins.
    return data + bytes(-len(data) % 4)


def _zstd(options: list[str], data: bytes, *, check: bool = True) -> bytes:
    try:
        done = subprocess.run(["zstd", "-q", *options], input=data, capture_output=True, timeout=600)
    except FileNotFoundError:
        raise Unavailable("zstd is not installed", where="minos build", hint="apt-get install zstd") from None
    if check and done.returncode:
        raise Unavailable(f"zstd failed: {done.stderr.decode(errors='replace')[:200]}", where="minos build")
    return done.stdout


def _keep(path: Path, data: bytes) -> None:
    """Whole, and only the last few."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
    older = sorted(path.parent.glob("initrd-*.zst"), key=lambda one: one.stat().st_mtime)[:-_KEPT]
    for one in older:
        one.unlink(missing_ok=True)


def _used(files: Mapping[str, File], origin: Mapping[str, Package], tree: Mapping[str, File]) -> set[Package]:
    """The packages of which the tree holds something. Contents tell: libraries are put elsewhere, sources compiled."""
    held = {file.data for file in tree.values()}
    return {
        package
        for path, package in origin.items()
        if path in tree or path + "c" in tree or (files[path].data and files[path].data in held)
    }


def _inputs(packages: Iterable[Package]) -> tuple[Input, ...]:
    return tuple(
        Input(name=package.name, version=package.version, sha256=package.sha256) for package in sorted(packages)
    )


def _digest(sources: Mapping[str, str]) -> str:
    total = hashlib.sha256()
    for path in sorted(sources):
        total.update(f"{hashlib.sha256(sources[path].encode()).hexdigest()} {path}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _part(data: bytes) -> Part:
    return Part(size=len(data), sha256=hashlib.sha256(data).hexdigest())
