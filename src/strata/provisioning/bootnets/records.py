"""A boot network as the site declares it, and as a controller serves it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from strata.core.texts import PLAIN, DocumentNameText, In, NoteText, Out

Address = Annotated[str, Meta(pattern=PLAIN, max_length=45)]


class NetworkEntry(In, frozen=True, kw_only=True):
    """A network that machines boot from. It names no interface and no address of ours: a controller that has an address
    in it serves it there."""

    name: DocumentNameText
    network: Address
    """``10.77.0.0/24``."""
    gateway: Address = ""
    via: Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$(?!\n)", max_length=63)] = ""
    """Another network, by our address in which the relays of this one reach us; empty: we are in it ourselves."""
    relays: Annotated[tuple[Address, ...], Meta(max_length=256)] = ()
    """Addresses of the relays that pass its machines' requests on. Empty: the gateway, where there is a ``via``."""
    dns: Annotated[tuple[Address, ...], Meta(max_length=3)] = ()
    domain: Annotated[str, Meta(pattern=PLAIN, max_length=64)] = ""
    lease: Annotated[int, Meta(ge=60, le=30 * 86400)] = 3600
    """Seconds."""
    range: Annotated[str, Meta(pattern=PLAIN, max_length=64)] = ""
    """Addresses to give to nodes that have none: ``10.77.0.10-10.77.0.250``. Empty: all that are free."""
    discovery: Annotated[str, Meta(pattern=PLAIN, max_length=64)] = ""
    """The part for machines that are no nodes. Empty: the last eighth of ``range``, at most 1024 addresses."""
    trust_ports: bool = False
    """Switches write option 82 themselves, and remove what machines write."""
    check_macs: bool = True
    """Give boot data only to the node's own MAC. To be false where routers answer ARP in the place of machines."""
    advertise: bool = True
    """Answer machines that look for an IPv6 router. To be false where another router speaks for the network."""
    prefix: Address = ""
    """An IPv6 prefix (/64) that is announced there, too; empty: none."""
    prefix_dns: Annotated[tuple[Address, ...], Meta(max_length=3)] = ()
    description: NoteText = ""


class NetworkView(Out, frozen=True, kw_only=True):
    """A network, and how the controller that answers serves it."""

    name: str
    network: str
    origin: Literal["repository", "file"]
    """``file``: the controller's own networks file."""
    interface: str
    """Where it is served; empty: it is not, here."""
    server: str
    """The controller's own address, as the network's machines or relays know it."""
    why: str
    """Why it is not served here."""
    entry: NetworkEntry | None
    """As the repository says it; null: the file does."""


class NetworkList(Out, frozen=True, kw_only=True):
    """All networks, by name."""

    controller: str
    items: tuple[NetworkView, ...]
