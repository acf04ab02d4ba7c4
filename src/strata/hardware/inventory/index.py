"""Finds BMCs by what they hold: MACs, serials, UUIDs, places; and knows what is held twice. In memory only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Literal

import numpy as np
import numpy.typing as npt

from strata.hardware.inventory.records import Known

Mark = Literal["mac", "serial", "uuid", "location"]

INTERNAL = 8
"""A locally administered MAC on more machines than this is that of an internal interface, which all of a make share."""

_MERGE_AT = 65_536


class Marks:
    """What identifies machines, and which BMCs claim it."""

    def __init__(self) -> None:
        self._holders: dict[tuple[Mark, str], str | tuple[str, ...]] = {}
        self._shared: set[tuple[Mark, str]] = set()

    def put(self, old: Known | None, new: Known | None) -> None:
        """A BMC is known anew, has changed, or is not known any more."""
        before, after = (set(marks(known)) if known else set() for known in (old, new))
        address = (new or old).address  # type: ignore[union-attr]
        for mark in before - after:
            self._set(mark, tuple(holder for holder in self.holders(mark) if holder != address))
        for mark in after - before:
            self._set(mark, (*self.holders(mark), address))

    def holders(self, mark: tuple[Mark, str]) -> tuple[str, ...]:
        """Addresses of the BMCs that claim it."""
        found = self._holders.get(mark, ())
        return (found,) if isinstance(found, str) else found

    def clash(self, mark: tuple[Mark, str]) -> tuple[str, ...]:
        """Addresses of the BMCs that claim it, if they are several and only one can be right."""
        holders = self.holders(mark)
        internal = mark[0] == "mac" and len(holders) > INTERNAL and is_local(mark[1])
        return () if internal or len(holders) < 2 else holders

    def clashes(self) -> Iterator[tuple[Mark, str, tuple[str, ...]]]:
        """What more than one BMC claims to have alone, sorted."""
        for mark in sorted(self._shared):
            if holders := self.clash(mark):
                yield *mark, holders

    def _set(self, mark: tuple[Mark, str], holders: tuple[str, ...]) -> None:
        if not holders:
            self._holders.pop(mark, None)
        else:
            # Nearly everything has one holder: a tuple for each would cost more than the rest.
            self._holders[mark] = holders[0] if len(holders) == 1 else holders
        if len(holders) > 1:
            self._shared.add(mark)
        else:
            self._shared.discard(mark)


def marks(known: Known) -> Iterator[tuple[Mark, str]]:
    """What a BMC and its machines claim to have alone."""
    for mac in known.macs:
        if not is_local(mac):
            yield "mac", mac
    for machine in known.machines:
        for mac in machine.macs:
            yield "mac", mac
        if machine.serial:
            yield "serial", machine.serial
        if machine.uuid:
            yield "uuid", machine.uuid
    for place in known.places.values():
        if place.location:
            yield "location", place.location


def is_local(mac: str) -> bool:
    """Whether a MAC was made up by whoever uses it, and is not the maker's."""
    return bool(int(mac[:2], 16) & 2)


def hashed(serials: Iterable[str]) -> bytes:
    """Serials as they are kept in ``Known.serials``."""
    return b"".join(blake2b(serial.encode(), digest_size=8).digest() for serial in serials)


class Serials:
    """Which BMCs have a part with a serial: hashes only, so a hit must be looked at. Made for millions."""

    def __init__(self) -> None:
        self._addresses: list[str] = []
        self._numbers: dict[str, int] = {}
        self._hashes: npt.NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._owners: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._fresh: list[tuple[bytes, int]] = []
        """Not yet among the sorted ones."""
        self._fresh_size = 0

    def add(self, address: str, serials: bytes) -> None:
        """A BMC has these. What it does not have any more stays: a hit is looked at anyway."""
        if not serials:
            return
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = len(self._addresses)
            self._addresses.append(address)
        self._fresh.append((serials, number))
        self._fresh_size += len(serials) // 8

    def find(self, serials: bytes) -> set[str]:
        """BMCs that may have one of these."""
        if self._fresh_size > _MERGE_AT:
            self._hashes, self._owners = _sorted(
                np.concatenate((self._hashes, self._fresh_hashes())),
                np.concatenate((self._owners, self._fresh_owners())),
            )
            self._fresh, self._fresh_size = [], 0
        wanted = np.frombuffer(serials, dtype=np.uint64)
        low = np.searchsorted(self._hashes, wanted, side="left").tolist()
        high = np.searchsorted(self._hashes, wanted, side="right").tolist()
        owners = {int(self._owners[i]) for a, b in zip(low, high, strict=True) for i in range(a, b)}
        if self._fresh:
            owners.update(self._fresh_owners()[np.isin(self._fresh_hashes(), wanted)].tolist())
        return {self._addresses[owner] for owner in owners}

    def _fresh_hashes(self) -> npt.NDArray[np.uint64]:
        return np.frombuffer(b"".join(serials for serials, _ in self._fresh), dtype=np.uint64)

    def _fresh_owners(self) -> npt.NDArray[np.int32]:
        counts = [len(serials) // 8 for serials, _ in self._fresh]
        return np.repeat(np.array([number for _, number in self._fresh], dtype=np.int32), counts)


def _sorted(
    hashes: npt.NDArray[np.uint64], owners: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """Both by hash, each pair once."""
    order = np.lexsort((owners, hashes))
    hashes, owners = hashes[order], owners[order]
    keep = np.ones(len(hashes), dtype=np.bool_)
    keep[1:] = (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])
    return hashes[keep], owners[keep]
