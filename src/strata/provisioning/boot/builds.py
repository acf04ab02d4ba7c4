"""Which build of the minimal OS ``latest`` means now. Looked up once a second: thousands of machines ask at once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from strata.core.errors import NotFound
from strata.provisioning.minos.artefacts import INITRD, KERNEL, LATEST, MANIFEST, Manifest

_DIGEST = re.compile(r"[0-9a-f]{12}\Z")
_LOOK_EVERY = 1.0


class Builds:
    """The builds in ``root`` (``STATE/minos``), as ``strata.provisioning.minos.artefacts`` leaves them there."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self.shared: Callable[[], str] = lambda: ""
        """Which build all controllers call the latest; empty: they have not said, or it is not here yet."""
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}
        self._digests: dict[str, Mapping[str, str]] = {}

    def digest(self, which: str) -> str:
        """From ``latest`` or a digest to the digest of a build that is there; ``NotFound`` if none is."""
        now = self._clock()
        seen, digest = self._known.get(which, (0.0, ""))
        if not digest or now - seen > _LOOK_EVERY:
            digest = self._look(which)
            self._known[which] = (now, digest)
        return digest

    def digests(self, digest: str) -> Mapping[str, str]:
        """``vmlinuz`` and ``initrd`` of a build → ``sha256:…`` of their contents; empty where it has no manifest."""
        found = self._digests.get(digest)
        if found is None:
            try:
                manifest = msgspec.json.decode((self.root / digest / MANIFEST).read_bytes(), type=Manifest)
            except (OSError, msgspec.MsgspecError):
                return {}
            found = {KERNEL: f"sha256:{manifest.vmlinuz.sha256}", INITRD: f"sha256:{manifest.initrd.sha256}"}
            self._digests[digest] = found
        return found

    def _look(self, which: str) -> str:
        link = self.root / LATEST
        digest = which
        if which == LATEST:
            digest = self.shared() or (link.readlink().name if link.is_symlink() else which)
        if not _DIGEST.match(digest) or not all((self.root / digest / name).is_file() for name in (KERNEL, INITRD)):
            what = "no minimal OS was built yet" if which == LATEST else f"there is no minimal OS {which[:12]}"
            raise NotFound(what, where=str(self.root), hint="strata minos build")
        return digest
