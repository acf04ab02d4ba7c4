"""Builds the minimal OS: packages in, a kernel and a signed initrd out. The same inputs give the same bytes."""

from __future__ import annotations

import hashlib
import lzma
import os
import re
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
_KEPT = 8
_KERNEL_FILTERS = {lzma.FILTER_X86: b"CONFIG_XZ_DEC_X86"}
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
    system = root.system(recipe, files, sources, crash_hook)
    tree = system | chosen
    progress(5, "compressing the initrd")
    # Two archives, which the kernel takes one after the other: what makes programs smaller makes modules larger.
    archives = (pack(system), recipe.filters), (pack(chosen), ())
    initrd = b"".join(compressed(archive, cache, filters) for archive, filters in archives)
    manifest = Manifest(
        arch=recipe.arch,
        kernel=release,
        inputs=_inputs([image, *_used(files, origin, tree)]),
        agent=_digest(sources),
        files=fingerprint(tree),
        modules=tuple(sorted(path.rpartition("/")[2].removesuffix(".ko") for path in chosen if path.endswith(".ko"))),
        unpacked=sum(len(archive) for archive, _ in archives),
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
    # Beside what is taken of a package, a program speaks to Xen, with a dozen libraries. systemd has a stand-in.
    return name.startswith(("lib", "python3", "zlib")) and not name.startswith(("libxen", "libsystemd"))


def _useful(path: str) -> bool:
    return path.removeprefix("usr/").startswith(("bin/", "etc/ssl/", "lib/", "lib64/", "sbin/"))


def _image(recipe: Recipe, files: Mapping[str, File]) -> tuple[str, bytes]:
    """The kernel's release, and its file."""
    for path in sorted(files):
        if path.startswith(f"boot/{recipe.image}-"):
            release = path.removeprefix(f"boot/{recipe.image}-")
            config = files.get(f"boot/config-{release}", File(0)).data
            for one in (b"CONFIG_RD_XZ", *(_KERNEL_FILTERS[one] for one in recipe.filters)):
                if one + b"=y" not in config.splitlines():
                    raise Unavailable(
                        f"kernel {release} cannot unpack the initrd: it is without {one.decode()}",
                        where="minos build",
                        hint="name another linux-image package",
                    )
            return release, files[path].data
    raise Unavailable("the kernel's package holds no kernel", where="minos build", hint="name a linux-image package")


def compressed(archive: bytes, cache: Path, filters: Iterable[int] = ()) -> bytes:
    """The archive as nodes fetch it. Compressing is most of a build: earlier results are kept, and checked."""
    chain = [*({"id": one} for one in filters), {"id": lzma.FILTER_LZMA2, "preset": 6}]
    kept = cache / f"initrd-{hashlib.sha256(archive + repr(chain).encode()).hexdigest()[:16]}.xz"
    if kept.exists() and _unpacks_to(kept.read_bytes(), archive):
        return kept.read_bytes()
    # The kernel knows this check only. What comes out is whole words: another archive may follow.
    data = lzma.compress(archive, check=lzma.CHECK_CRC32, filters=chain)
    _keep(kept, data)
    return data


def _unpacks_to(data: bytes, archive: bytes) -> bool:
    try:
        return lzma.decompress(data) == archive
    except lzma.LZMAError:
        return False


def _keep(path: Path, data: bytes) -> None:
    """Whole, and only the last few."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)
    older = sorted(path.parent.glob("initrd-*"), key=lambda one: one.stat().st_mtime)[:-_KEPT]
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
