"""A disk that fails as told: a SQLite VFS over the store's own, with a switch for each fault."""

from __future__ import annotations

from typing import Any

import apsw

from strata.store.sqlite.file import checksum_vfs


class FaultyDisk(apsw.VFS):
    """Behaves, until ``full`` (no space for new bytes) or ``broken`` (writing and syncing fail) is set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.full = False
        self.broken = False
        self.sync_broken = False
        self.refused = 0
        super().__init__(name, checksum_vfs())

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__(checksum_vfs(), name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._disk.full:
            self._disk.refused += 1
            raise apsw.FullError("no space left on device")
        if self._disk.broken:
            self._disk.refused += 1
            raise apsw.IOError("input/output error")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.broken or self._disk.sync_broken:
            self._disk.refused += 1
            raise apsw.IOError("input/output error")
        super().xSync(flags)
