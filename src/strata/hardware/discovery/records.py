"""What the API takes and shows of a search for BMCs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from strata.core.texts import PLAIN, AddressText, In, Out


class DiscoverRequest(In, frozen=True, kw_only=True):
    """Where to look, and what to do with what is found. Several sources may be given."""

    addresses: Annotated[tuple[AddressText, ...], Meta(max_length=100_000)] = ()
    """URLs, host names or addresses."""
    csv: Annotated[str, Meta(max_length=32 * 2**20)] = ""
    """With a header: ``address`` and any of ``name,location,nid,role,mac,serial,labels``. Credentials are refused."""
    leases: Annotated[str, Meta(max_length=32 * 2**20)] = ""
    """A lease file of ISC dhcpd, dnsmasq or Kea: whoever in it looks like a BMC."""
    dhcp: bool = False
    """The BMCs that appeared in DHCP."""
    ranges: Annotated[tuple[AddressText, ...], Meta(max_length=64)] = ()
    """``10.1.0.0/20`` or ``10.1.0.1-10.1.3.254``; at most 65,536 addresses each."""
    ssdp: bool = False
    """Ask the local networks for Redfish services."""
    known: bool = False
    """Look again at every BMC that is known (of the inventory and of nodes)."""
    mapping: Annotated[str, Meta(max_length=32 * 2**20)] = ""
    """A location mapping (CSV): any of ``address,mac,serial,switch,port`` → ``location,name,nid``."""
    adopt: bool = False
    """Make nodes of the machines that are found."""
    accept: Annotated[tuple[AddressText, ...], Meta(max_length=100_000)] = ()
    """Look at these, and take them as they are even where another BMC was before."""
    name: Annotated[str, Meta(pattern=PLAIN, max_length=63)] = "n{number:05}"
    """How nodes that nothing names are called: ``{number}``, ``{serial}``, ``{location}``, ``{hostname}``."""


class NotAdopted(Out, frozen=True, kw_only=True):
    """A machine of which no node was made, and why."""

    machine: str
    why: str


class DiscoveryReport(Out, frozen=True, kw_only=True):
    """What a discovery has come to so far."""

    job: str = ""
    found: int = 0
    new: int = 0
    changed: int = 0
    swapped: int = 0
    """Where another BMC answers than before; a person accepts it, or not."""
    silent: int = 0
    """Addresses that were given and at which nobody answers."""
    failed: int = 0
    """Others that could not be read: the operation says why."""
    troubled: int = 0
    """Found, but not whole: a part could not be read."""
    not_understood: Mapping[str, int] = {}
    """Parts that are kept without our knowing what they are: how many of each type, as their BMCs call it."""
    conflicts: int = 0
    located: int = 0
    adopted: int = 0
    updated: int = 0
    refused: tuple[NotAdopted, ...] = ()
    """The first hundred."""
    refused_count: int = 0
