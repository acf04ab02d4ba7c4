"""Whether the builds of the minimal OS are as they were signed. Nodes boot no other.

Every byte is looked at once, in a thread, and again when a file is not the one that was looked at: what that takes is a
``stat``, which is cheap enough for every boot.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from strata.core.errors import NotFound, Refused
from strata.fleet.alarm import Alarm, AlarmSink
from strata.provisioning.minos.artefacts import PARTS, Artefacts

log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int, int] | None, ...]
"""Of every file of a build: inode, size, times. Whoever sets a file's time back cannot do so with its change time."""

_TRIES = 3
_RESTLESS = ("its files change while they are looked at",)


class Soundness:
    """Of the builds in ``root`` (``STATE/minos``), by the key that signs them."""

    def __init__(self, root: Path, public_pem: str, alarm: AlarmSink) -> None:
        self._artefacts = Artefacts(root)
        self._public_pem = public_pem
        self._alarm = alarm
        self._found: dict[str, tuple[Stamp, tuple[str, ...]]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def known(self, digest: str) -> tuple[str, ...] | None:
        """What is wrong with a build (empty: nothing); None: nobody has looked since it changed."""
        found = self._found.get(digest)
        return found[1] if found is not None and found[0] == self._stamp(digest) else None

    async def problems(self, digest: str) -> tuple[str, ...]:
        """What is wrong with a build, looked up if need be."""
        for _ in range(_TRIES):
            if (known := self.known(digest)) is not None:
                return known
            async with self._turns.setdefault(digest, asyncio.Lock()):
                if self.known(digest) is None:
                    await self._look(digest)
        return _RESTLESS

    async def require(self, digest: str) -> None:
        """Raise ``Refused`` unless the build is as it was signed, looked up if need be."""
        require_sound(digest, await self.problems(digest))

    async def _look(self, digest: str) -> None:
        stamp = self._stamp(digest)  # before: what changes meanwhile is looked at again
        if not any(stamp):
            self._found[digest] = (stamp, ("it is not there",))
            self._alarm(Alarm(kind="minos-refused", message="it is gone", about=digest, severity="ok"))
            return
        try:
            problems = tuple(await asyncio.to_thread(self._artefacts.problems, digest, self._public_pem))
        except NotFound:  # taken away meanwhile: nothing is known of it
            return
        self._found[digest] = (stamp, problems)
        if not problems:
            self._alarm(Alarm(kind="minos-refused", message="it is as it was signed", about=digest, severity="ok"))
        else:
            what = "; ".join(problems)
            log.error("a minimal OS is not as it was signed", extra={"build": digest, "problems": what})
            message = f"minOS {digest} is not booted any more: {what} ({_HINT})"
            self._alarm(Alarm(kind="minos-refused", message=message, about=digest))

    def _stamp(self, digest: str) -> Stamp:
        return tuple(_stat(f"{self._artefacts.root}/{digest}/{name}") for name in PARTS)


_HINT = "build it again with strata minos build, or choose another and remove this one; then find out who changed it"


def require_sound(digest: str, problems: Sequence[str]) -> None:
    """Raise ``Refused`` if there are problems with a build."""
    if problems:
        what = "; ".join(problems)
        raise Refused(f"it is not booted: {what}", by="signature", where=f"minOS {digest}", hint=_HINT)


def _stat(path: str) -> tuple[int, int, int, int] | None:
    try:
        seen = os.stat(path)  # noqa: PTH116 - for every boot, and three times as fast
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
