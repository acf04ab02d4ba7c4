"""Which build of the minimal OS a node boots, by its architecture.

Looked up once a second: thousands of machines ask at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from strata.core.errors import NotFound, Refused
from strata.provisioning.minos.artefacts import INITRD, KERNEL, LATEST, Manifest, is_digest, latest, read_manifest
from strata.provisioning.minos.soundness import Soundness

_LOOK_EVERY = 1.0


class Builds:
    """The builds in ``root`` (``STATE/minos``), as ``strata.provisioning.minos.artefacts`` leaves them there."""

    def __init__(self, root: Path, soundness: Soundness, *, clock: Callable[[], float] = time.monotonic) -> None:
        """``soundness``: of these builds. What is not sound keeps its name, but is offered to nobody."""
        self.root = root
        self.soundness = soundness
        self.shared: Callable[[str], str] = lambda arch: ""
        """Which build all controllers call the latest of an architecture; empty: they have not said, or it is not here
        yet."""
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, str]] = {}
        self._manifests: dict[str, Manifest] = {}
        """Kept: one that is lost later does not make another build of it."""

    def digest(self, which: str, arch: str = "") -> str:
        """From ``latest`` or a digest to the digest of a build that is there, for machines of the architecture ``arch``
        (empty: the digest's own). ``NotFound`` if there is none, ``Refused`` if it is for other machines."""
        now = self._clock()
        seen, digest = self._known.get((which, arch), (0.0, ""))
        if not digest or now - seen > _LOOK_EVERY:
            digest = self._look(which, arch)
            self._known[which, arch] = (now, digest)
        return digest

    def by_architecture(self, which: str) -> dict[str, str]:
        """Architecture → the build that ``latest`` or a digest means on its machines, as far as there is one."""
        found = {}
        for arch in latest(self.root) if which == LATEST else [self._architecture(which)]:
            try:
                found[arch] = self.digest(which, arch)
            except (NotFound, Refused):
                continue
        return found

    def digests(self, digest: str) -> Mapping[str, str]:
        """``vmlinuz`` and ``initrd`` of a build → ``sha256:…`` of their contents; empty where it has no manifest."""
        found = self._manifest(digest)
        return {KERNEL: f"sha256:{found.vmlinuz.sha256}", INITRD: f"sha256:{found.initrd.sha256}"} if found else {}

    def _look(self, which: str, arch: str) -> str:
        digest = which
        if which == LATEST:
            digest = self.shared(arch) or latest(self.root).get(arch, "")
        if not is_digest(digest) or not all((self.root / digest / name).is_file() for name in (KERNEL, INITRD)):
            none = which == LATEST
            what = f"no minimal OS was built yet for {arch}" if none else f"there is no minimal OS {which[:12]}"
            hint = f"strata minos build --arch {arch}" if arch else "strata minos build"
            raise NotFound(what, where=str(self.root), hint=hint)
        own = self._architecture(digest)
        if arch and own and own != arch:
            raise Refused(
                f"it is for {own}, and cannot be booted on {arch}",
                by="architecture",
                where=f"minOS {digest}",
                hint="strata minos list shows the builds; let the node's boot profile name 'latest', or one that fits",
            )
        return digest

    def _architecture(self, digest: str) -> str:
        found = self._manifest(digest)
        return found.arch if found else ""

    def _manifest(self, digest: str) -> Manifest | None:
        """None: it cannot be read."""
        if digest not in self._manifests:
            with suppress(OSError, msgspec.MsgspecError):
                self._manifests[digest] = read_manifest(self.root / digest)
        return self._manifests.get(digest)
