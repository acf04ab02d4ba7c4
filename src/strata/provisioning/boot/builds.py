"""Which build of the minimal OS ``latest`` means now. Looked up once a second: thousands of machines ask at once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from strata.core.errors import NotFound
from strata.provisioning.minos.artefacts import INITRD, KERNEL, LATEST

_DIGEST = re.compile(r"[0-9a-f]{12}\Z")
_LOOK_EVERY = 1.0


class Builds:
    """The builds in ``root`` (``STATE/minos``), as ``strata.provisioning.minos.artefacts`` leaves them there."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}

    def digest(self, which: str) -> str:
        """From ``latest`` or a digest to the digest of a build that is there; ``NotFound`` if none is."""
        now = self._clock()
        seen, digest = self._known.get(which, (0.0, ""))
        if not digest or now - seen > _LOOK_EVERY:
            digest = self._look(which)
            self._known[which] = (now, digest)
        return digest

    def _look(self, which: str) -> str:
        link = self.root / LATEST
        digest = link.readlink().name if which == LATEST and link.is_symlink() else which
        if not _DIGEST.match(digest) or not all((self.root / digest / name).is_file() for name in (KERNEL, INITRD)):
            what = "no minimal OS was built yet" if which == LATEST else f"there is no minimal OS {which[:12]}"
            raise NotFound(what, where=str(self.root), hint="strata minos build")
        return digest
