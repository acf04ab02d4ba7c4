"""DHCPv4 on the wire: reads requests (whatever a machine may send), writes options. Decides nothing."""

from __future__ import annotations

import msgspec

MAGIC = b"\x63\x82\x53\x63"
NONE = b"\x00\x00\x00\x00"
"""No address."""

DISCOVER, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE, INFORM = range(1, 9)

MASK, ROUTER, DNS, HOST_NAME, DOMAIN, VENDOR = 1, 3, 6, 12, 15, 43
REQUESTED, LEASE, KIND, SERVER_ID, RENEW, REBIND = 50, 51, 53, 54, 58, 59
VENDOR_CLASS, CLIENT_ID, BOOT_FILE, USER_CLASS, RELAY, ARCHITECTURE, IPXE = 60, 61, 67, 77, 82, 93, 175

_CIRCUIT, _REMOTE, _LINK = 1, 2, 5
_OPTIONS = 240
"""Where the options begin."""
LARGEST = 1500


class Request(msgspec.Struct, gc=False):
    """What a machine sent."""

    kind: int
    packet: bytes
    options: dict[int, bytes]
    """By code; the first of each."""

    @property
    def mac(self) -> str:
        """Who asks, as ``52:54:00:12:34:56``."""
        return self.packet[28:34].hex(":")

    @property
    def own(self) -> bytes:
        """The address that it has already (ciaddr)."""
        return self.packet[12:16]

    @property
    def relay(self) -> bytes:
        """The relay that passed it on (giaddr)."""
        return self.packet[24:28]

    @property
    def requested(self) -> bytes:
        """The address that it asks for."""
        found = self.options.get(REQUESTED, NONE)
        return found if len(found) == 4 else NONE

    def text(self, code: int) -> str:
        """An option as text that a log can hold: at most 255 characters."""
        found = self.options.get(code)
        if not found:
            return ""
        return "".join(one if one.isprintable() else "?" for one in found.decode("ascii", "replace"))


def parse(packet: bytes) -> Request | None:
    """The request in a datagram; None unless it is a well-formed one of an Ethernet client."""
    size = len(packet)
    if not _OPTIONS < size <= LARGEST or packet[:3] != b"\x01\x01\x06" or packet[236:240] != MAGIC:
        return None
    if packet[28] & 1 or packet[28:34] == b"\x00\x00\x00\x00\x00\x00":
        return None
    options: dict[int, bytes] = {}
    at = _OPTIONS
    while at < size:
        code = packet[at]
        if code == 255:
            break
        if code == 0:
            at += 1
            continue
        if at + 1 >= size:
            return None
        end = at + 2 + packet[at + 1]
        if end > size:
            return None
        if code not in options:
            options[code] = packet[at + 2 : end]
        at = end
    kind = options.get(KIND, b"")
    return Request(kind[0], packet, options) if len(kind) == 1 else None


def option(code: int, value: bytes) -> bytes:
    """One option; nothing where there is no value."""
    return bytes((code, len(value))) + value if value else b""


class Place(msgspec.Struct, gc=False):
    """What option 82 says."""

    port: str = ""
    """``remote-id/circuit-id``; an id that is no plain text is written as ``0x`` and hexadecimal digits."""
    link: bytes = NONE
    """An address in the machine's subnet, where that is not the relay's own (RFC 3527)."""


NOWHERE = Place()


def place(option82: bytes) -> Place:
    """Read option 82; garbage is no place at all."""
    parts: dict[int, bytes] = {}
    at, size = 0, len(option82)
    while at < size:
        end = at + 2 + option82[at + 1] if at + 1 < size else size + 1
        if end > size:
            return Place()
        parts[option82[at]] = option82[at + 2 : end]
        at = end
    link = parts.get(_LINK, NONE)
    remote, circuit = parts.get(_REMOTE, b""), parts.get(_CIRCUIT, b"")
    port = f"{_id(remote)}/{_id(circuit)}" if remote or circuit else ""
    return Place(port, link if len(link) == 4 else NONE)


def _id(value: bytes) -> str:
    text = value.decode("ascii", "replace")
    return text if value.isascii() and text.isprintable() and " " not in text else f"0x{value.hex()}"
