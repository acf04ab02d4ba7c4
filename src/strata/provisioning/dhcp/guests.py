"""Addresses for machines that are no nodes: for a while, so that they can tell what they are.

An offer changes nothing: the address follows from the MAC. Only who takes it is written down, and there are never
more of them than addresses in the subnet's part for discovery.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

from strata.provisioning.networks import Span, Subnet

LEASE = 300
"""Seconds. Short: most of these machines are adopted, or gone, soon."""
_PROBES = 32


class Guests:
    """Who has which address of one subnet's discovery part."""

    def __init__(self, subnet: Subnet, is_taken: Callable[[int], bool]) -> None:
        self._span: Span = subnet.discovery_span
        self._reserved = subnet.reserved
        self._is_taken = is_taken
        self._held: dict[int, tuple[str, float]] = {}
        self._of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def address_for(self, mac: str, now: float) -> int | None:
        """The address that ``mac`` has or would get; None: there is none left."""
        own = self._of.get(mac)
        if own is not None and self._is_free(own, mac, now):
            return own
        start = zlib.crc32(mac.encode())
        for step in range(min(_PROBES, self._span.size)):
            address = self._span.first + (start + step) % self._span.size
            if self._is_free(address, mac, now):
                return address
        return None

    def take(self, mac: str, address: int, now: float) -> None:
        """``mac`` has ``address`` now (which ``address_for`` told)."""
        before = self._of.pop(mac, None)
        if before is not None:
            del self._held[before]
        if address in self._held:
            del self._of[self._held[address][0]]
        self._held[address] = (mac, now + LEASE)
        self._of[mac] = address

    def give_back(self, mac: str) -> None:
        """``mac`` needs its address no more."""
        address = self._of.pop(mac, None)
        if address is not None:
            del self._held[address]

    def _is_free(self, address: int, mac: str, now: float) -> bool:
        if address in self._reserved or self._is_taken(address):
            return False
        holder = self._held.get(address)
        return holder is None or holder[0] == mac or holder[1] < now
