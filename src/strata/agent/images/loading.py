"""From a signed release to a mounted image: checked, fetched, mounted; and removed when nobody needs it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from ..errors import CommandFailed, Corrupt
from ..files import write_private
from ..link.identity import Identity
from ..paths import Paths
from .damage import forget_damage, note_damage
from .fetch import Source
from .mounts import image_server, image_store, key_of, mount_on_demand, mount_whole, remove_image
from .release import Release, Trust


class Loader:
    """Brings images onto the node."""

    def __init__(self, paths: Paths, identity: Identity, controllers: list[str]) -> None:
        self._paths = paths
        self._identity = identity
        self._controllers = controllers
        self._trust = Trust(paths)
        self._mounting = threading.Lock()

    def load(self, release: Release, mode: str, cancelled: Callable[[], bool]) -> None:
        """Check a release and fetch what its mode needs before it can be mounted."""
        key = key_of(release, mode)
        held = os.path.ismount(self._paths.mounts / key) or (self._paths.images / f"{key}.squashfs").exists()
        self._trust.check(release, held)
        if held:
            return
        try:
            self._fetch(key, release, mode, cancelled)
        except Corrupt as error:
            note_damage(self._paths, release, str(error))
            raise
        forget_damage(self._paths, release)

    def _fetch(self, key: str, release: Release, mode: str, cancelled: Callable[[], bool]) -> None:
        source = Source(self._controllers, self._identity.context)
        try:
            chunks = self._paths.chunks / key
            if not chunks.exists():
                write_private(chunks, source.chunk_list(release))
            if mode == "ram":
                self._fetch_whole(key, release, chunks.read_bytes(), source, cancelled)
        finally:
            source.close()

    def mount(self, release: Release, mode: str) -> Path:
        """The image's files, read-only."""
        key = key_of(release, mode)
        with self._mounting:
            if mode == "ram":
                return mount_whole(self._paths, key)
            digests = (self._paths.chunks / key).read_bytes()
            return mount_on_demand(self._paths, key, release, digests, self._controllers)

    def server(self, release: Release, mode: str) -> int | None:
        """The process that an image on demand comes from; the image is gone when it ends."""
        return image_server(self._paths, key_of(release, mode))

    def keep_only(self, wanted: list[tuple[Release, str]]) -> None:
        """Remove every image that is not among these, by release and mode."""
        places = (self._paths.mounts, self._paths.images, self._paths.chunks)
        there = {path.name.split(".")[0] for place in places for path in place.glob("*")}
        for key in there - {key_of(release, mode) for release, mode in wanted}:
            remove_image(self._paths, key)
        for path in self._paths.damaged.glob("*"):
            if path.name not in {release.hex for release, _ in wanted}:
                path.unlink(missing_ok=True)

    def _fetch_whole(
        self, key: str, release: Release, digests: bytes, source: Source, cancelled: Callable[[], bool]
    ) -> None:
        """Transfer into memory; what an interrupted transfer left is gone on from, at a whole chunk."""
        store = image_store(self._paths)
        final, partial = store / f"{key}.squashfs", store / f"{key}.partial"
        done = partial.stat().st_size // release.chunk if partial.exists() else 0
        room = os.statvfs(store)
        if room.f_bavail * room.f_frsize < release.size - done * release.chunk:
            free = room.f_bavail * room.f_frsize >> 20
            raise CommandFailed(f"{release} needs {release.size >> 20} MiB of memory and {free} MiB are free")
        with partial.open("ab") as out:
            out.truncate(done * release.chunk)
            for _, piece in source.chunks(release, digests, done, release.count - done):
                out.write(piece)
                if cancelled():
                    raise CommandFailed("cancelled")
        partial.replace(final)
