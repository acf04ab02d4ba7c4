"""Minimal OSes on every controller, and one answer to which is the latest of each architecture.

``strata minos`` changes a folder, with or without a running service. Each controller tells the store what somebody did
in its folder, and does in its folder what the store says: builds come and go everywhere, and whoever chose last
decides. A new latest counts when every controller that is there can serve it, and then for all at once; else a node
that one of them booted would look wrong to another.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from strata.core.errors import Conflict, StrataError
from strata.fleet.recurring import Recurring
from strata.provisioning.minos.artefacts import PARTS, REMOVED, Artefacts, Part, architecture, is_digest, latest_links
from strata.provisioning.minos.soundness import Soundness
from strata.provisioning.replication.copying import Copier, PuttingOff, Wanted
from strata.provisioning.replication.holdings import Holdings
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.followed import Followed
from strata.store.protocol import Put, Store

log = logging.getLogger(__name__)

BUILDS = "minos/build/"
LATEST_KEY = "minos/latest/"
"""Then an architecture."""
UNDIVIDED_KEY = "minos/latest"
"""Where older releases kept the only latest that there was: it counts for its build's architecture, until somebody
chooses anew."""
LOOK_EVERY = 1.0
"""Seconds between two looks at the folder."""
WAIT_FOR_OTHERS = 600.0
"""Seconds after which a new latest counts although a controller that is there could not get it."""
AUTHOR = "strata"
_INCOMING = ".incoming-"


class Choice(msgspec.Struct, frozen=True):
    """The latest build of an architecture."""

    digest: str
    chosen: int
    """When somebody made it that."""


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """What is there. Times are in nanoseconds."""

    builds: Mapping[str, int] = {}
    """Digest → when it was made."""
    removed: Mapping[str, int] = {}
    """Digest → when somebody removed it."""
    latest: Mapping[str, Choice] = {}
    """Architecture → the build that is its latest."""


def read_folder(root: Path) -> Folder:
    """What is in ``STATE/minos``."""
    latest = {arch: Choice(link.readlink().name, link.lstat().st_mtime_ns) for arch, link in latest_links(root).items()}
    return Folder(builds=_times(root), removed=_times(root / REMOVED), latest=latest)


def read_build(path: Path) -> dict[str, Part]:
    """The files of the build in a directory: all four."""
    found = {}
    for name in PARTS:
        with (path / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found[name] = Part(size=(path / name).stat().st_size, sha256=digest)
    return found


def wanted_files(digest: str, files: Mapping[str, Part]) -> dict[str, Wanted]:
    """The same, to be fetched."""
    return {
        name: Wanted(name=f"minos/{digest}/{name}", digest=files[name].sha256, size=files[name].size)
        for name in PARTS
        if name in files
    }


def _times(folder: Path) -> dict[str, int]:
    try:
        return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if is_digest(path.name)}
    except FileNotFoundError:
        return {}


class BuildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A build that there is, or was. Times are in nanoseconds, by the clocks of those who did it."""

    files: dict[str, Part]
    added: int
    removed: int = 0

    @property
    def there(self) -> bool:
        """Whether controllers ought to have it."""
        return self.added > self.removed


class LatestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The build that nodes of an architecture boot unless their profile names another."""

    digest: str
    chosen: int
    """When, in nanoseconds."""
    controller: str
    """Where."""


_NOTHING = Choice("", 0)
_encode = msgspec.msgpack.Encoder().encode
_decode_build = msgspec.msgpack.Decoder(BuildRecord).decode
_decode_latest = msgspec.msgpack.Decoder(LatestRecord).decode


class SharedBuilds:
    """``start``, ``stop``."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        artefacts: Artefacts,
        signer: Signer,
        soundness: Soundness,
        holdings: Holdings,
        copier: Copier,
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._artefacts = artefacts
        self._signer = signer
        self._soundness = soundness
        self._holdings = holdings
        self._copier = copier
        self._records: dict[str, BuildRecord] = {}
        self._latest: dict[str, LatestRecord] = {}
        """By architecture."""
        self._undivided: LatestRecord | None = None
        self._level: dict[str, LatestRecord] = {}
        """Those that the folder was last seen to agree with."""
        self._followed = Followed(store, "minos/", self._take, self._forget)
        self._sound: dict[str, int] = {}
        """Builds here whose every byte was checked, and when they were made."""
        self._architectures: dict[str, str] = {}
        """Of these."""
        self._waiting: dict[str, tuple[str, float]] = {}
        """Architecture → the build that somebody chose here and others lack, and since when that is so."""
        self._put_off = PuttingOff(time.monotonic)
        trouble = "minimal OSes are not level with the other controllers"
        self._looks = Recurring("minimal OSes of all controllers", self.look, lambda: LOOK_EVERY, trouble=trouble)

    async def start(self) -> None:
        """Begin."""
        await self._followed.start()
        await asyncio.to_thread(self._sweep)
        await self._looks.start()

    async def stop(self) -> None:
        """End; what is under way is gone on with at the next start."""
        await self._looks.stop()
        await self._followed.stop()

    def latest(self, arch: str) -> str:
        """The build that all controllers call the latest of an architecture, if it is here; else empty."""
        told = self._told(arch)
        return told.digest if told is not None and told.digest in self._sound else ""

    async def look(self) -> None:
        """Bring the folder and the store together, once."""
        folder = await asyncio.to_thread(read_folder, self._artefacts.root)
        await self._check(folder)
        await self._tell(folder)
        await self._discard(folder)
        self._holdings.has_builds(self._sound)
        await self._level_latest(folder)
        await self._fetch_lacking(folder)

    # the folder and the store

    def _sweep(self) -> None:
        """Remove what an interrupted removal left, and beginnings of builds that are not wanted any more."""
        for path in self._artefacts.root.glob(".removed-*"):
            shutil.rmtree(path, ignore_errors=True)
        for path in self._artefacts.root.glob(f"{_INCOMING}*"):
            record = self._records.get(path.name.removeprefix(_INCOMING))
            if record is None or not record.there:
                shutil.rmtree(path, ignore_errors=True)

    async def _check(self, folder: Folder) -> None:
        """Look at every byte of what is new in the folder or has changed: only what is sound is given to others."""
        sound = {}
        for digest, added in folder.builds.items():
            if not await self._soundness.problems(digest):
                sound[digest] = added
        for digest in sound.keys() - self._architectures.keys():
            path = self._artefacts.root / digest
            self._architectures[digest] = await asyncio.to_thread(architecture, path)
        self._sound = sound

    async def _tell(self, folder: Folder) -> None:
        """Tell the store what somebody did here."""
        for digest, removed in folder.removed.items():
            record = self._records.get(digest)
            if record is not None and record.there:
                gone = msgspec.structs.replace(record, removed=max(removed, record.added))
                if not await self._commit("minos.remove", digest, BUILDS + digest, gone):
                    continue
            (self._artefacts.root / REMOVED / digest).unlink(missing_ok=True)
        for digest, added in self._sound.items():
            record = self._records.get(digest)
            if record is None or (not record.there and added > record.removed):
                files = await asyncio.to_thread(read_build, self._artefacts.root / digest)
                await self._commit("minos.add", digest, BUILDS + digest, BuildRecord(files=files, added=added))

    async def _discard(self, folder: Folder) -> None:
        """Remove what somebody removed on another controller."""
        for digest, added in folder.builds.items():
            record = self._records.get(digest)
            if record is None or record.there or added > record.removed:
                continue
            if any(choice.digest == digest for choice in folder.latest.values()):
                continue
            await asyncio.to_thread(self._artefacts.discard, digest)
            self._sound.pop(digest, None)
            log.info("minimal OS removed, as on another controller", extra={"build": digest})

    # which is the latest

    def _told(self, arch: str) -> LatestRecord | None:
        """What all controllers were told of an architecture's latest."""
        old = self._undivided
        return self._latest.get(arch) or (
            old if old is not None and self._architectures.get(old.digest) == arch else None
        )

    async def _level_latest(self, folder: Folder) -> None:
        undivided = self._architectures.get(self._undivided.digest, "") if self._undivided is not None else ""
        for arch in sorted({*folder.latest, *self._latest, undivided} - {""}):
            await self._level_one(arch, folder.latest.get(arch, _NOTHING))

    async def _level_one(self, arch: str, here: Choice) -> None:
        told = self._told(arch)
        if told is not None and here.digest == told.digest:
            self._level[arch] = told
            return
        # What was level once was changed by somebody here since, whatever the clock says that was set back meanwhile.
        changed_here = told == self._level.get(arch) and here.digest in self._sound
        if told is not None and here.chosen <= told.chosen and not changed_here:
            if told.digest in self._sound:
                await asyncio.to_thread(self._artefacts.choose, told.digest, at=told.chosen)
            return
        if here.digest in self._sound and self._others_ready(arch, here.digest):
            chosen = max(here.chosen, told.chosen + 1) if told is not None else here.chosen
            latest = LatestRecord(digest=here.digest, chosen=chosen, controller=self._holdings.me)
            await self._commit("minos.choose", here.digest, LATEST_KEY + arch, latest)

    def _others_ready(self, arch: str, digest: str) -> bool:
        """Whether all controllers that are there can serve it, or had time enough."""
        lacking = set(self._holdings.others()) - set(self._holdings.with_build(digest))
        if not lacking:
            return True
        now = time.monotonic()
        waiting, since = self._waiting.get(arch, ("", 0.0))
        if waiting != digest:
            since = now
            self._waiting[arch] = (digest, since)
        if now - since < WAIT_FOR_OTHERS:
            return False
        log.error("controllers cannot get a minimal OS", extra={"build": digest, "controllers": sorted(lacking)})
        return True

    # fetching

    async def _fetch_lacking(self, folder: Folder) -> None:
        """Fetch the builds that another controller has and this one lacks, the newest first."""
        lacking = [
            (-record.added, digest)
            for digest, record in self._records.items()
            if record.there and digest not in folder.builds and digest not in folder.removed
        ]
        for _, digest in sorted(lacking):
            sources = self._holdings.with_build(digest)
            attempt = (digest, *sources)  # another source is another chance
            if not sources or self._put_off.seconds(attempt) > 0:
                continue
            try:
                await self._fetch(digest, self._records[digest], sources)
                self._put_off.done(attempt)
            except (StrataError, OSError) as error:
                self._put_off.failed(attempt)
                log.warning("a minimal OS was not fetched", extra={"build": digest, "reason": str(error)})

    async def _fetch(self, digest: str, record: BuildRecord, sources: Sequence[str]) -> None:
        began = time.monotonic()
        part = self._artefacts.root / f"{_INCOMING}{digest}"
        await asyncio.to_thread(part.mkdir, mode=0o700, parents=True, exist_ok=True)
        for name, file in wanted_files(digest, record.files).items():
            await self._copier.copy(file, part / name, sources)
        now = self._records.get(digest)
        if now is None or not now.there:  # removed meanwhile
            await asyncio.to_thread(shutil.rmtree, part, ignore_errors=True)
            return
        public = self._signer.public_pem
        await asyncio.to_thread(self._artefacts.adopt, part, digest, public, at=record.added)
        log.info("minimal OS fetched", extra={"build": digest, "seconds": round(time.monotonic() - began, 2)})

    # the store

    async def _commit(self, action: str, digest: str, key: str, record: BuildRecord | LatestRecord) -> bool:
        """Whether it is told; False: another was faster, and the next look decides anew."""
        entry = await self._store.get(key)
        known: Mapping[str, int] = {key: entry.modified if entry else 0}
        if entry is not None and not self._is_known(key, entry.value):
            return False
        value = _encode(record)
        try:
            revision = await self._ledger.commit(AUTHOR, action, f"minOS {digest}", [Put(key, value)], known)
        except Conflict as error:
            if error.where != key:
                raise
            return False
        self._followed.wrote(key, value, revision)
        log.info("minimal OS told to all controllers", extra={"build": digest, "what": action})
        return True

    def _is_known(self, key: str, value: bytes) -> bool:
        arch = key.removeprefix(LATEST_KEY)
        known = self._latest.get(arch) if arch != key else self._records.get(key.removeprefix(BUILDS))
        return known is not None and _encode(known) == value

    def _take(self, key: str, value: bytes | None) -> None:
        try:
            if key == UNDIVIDED_KEY:
                self._undivided = None if value is None else _decode_latest(value)
            elif key.startswith(LATEST_KEY):
                arch = key.removeprefix(LATEST_KEY)
                self._latest.pop(arch, None)
                if value is not None:
                    self._latest[arch] = _decode_latest(value)
            elif is_digest(digest := key.removeprefix(BUILDS)):
                self._records.pop(digest, None)
                if value is not None:
                    self._records[digest] = _decode_build(value)
        except msgspec.MsgspecError:
            log.error("a record of minimal OSes cannot be read", extra={"key": key})

    def _forget(self) -> None:
        self._records.clear()
        self._latest.clear()
        self._undivided = None
