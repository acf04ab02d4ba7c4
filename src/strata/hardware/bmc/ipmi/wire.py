"""IPMI 2.0 on the wire: RMCP framing, messages, RMCP+ keys, sealing and opening. Pure: no socket, no clock.

Numbers and layouts are of the IPMI v2.0 specification, revision 1.1, chapter 13. Only cipher suites that authenticate,
protect and encrypt are known here, so that no other can be spoken; suite 0 in particular is not.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

RMCP = b"\x06\x00\xff\x07"
IPMI, SOL = 0x00, 0x01
OPEN_REQUEST, OPEN_RESPONSE, RAKP1, RAKP2, RAKP3, RAKP4 = range(0x10, 0x16)

_BMC, _CONSOLE = 0x20, 0x81
_ENCRYPTED, _AUTHENTICATED = 0x80, 0x40


class Suite(NamedTuple):
    """A cipher suite: its number, its algorithms as RMCP+ numbers them, and how they work."""

    id: int
    authentication: int
    integrity: int
    confidentiality: int
    hash: Callable[..., Any]
    code: int
    """Bytes of an integrity check value."""

    @property
    def numbers(self) -> list[int]:
        """Of its three algorithms."""
        return [self.authentication, self.integrity, self.confidentiality]

    @property
    def algorithms(self) -> bytes:
        """The three payloads of an open session request."""
        return b"".join(struct.pack("<BxxBBxxx", kind, 8, number) for kind, number in enumerate(self.numbers))

    def mac(self, key: bytes, data: bytes) -> bytes:
        """The keyed hash."""
        return hmac.digest(key, data, self.hash)


SUITES: tuple[Suite, ...] = (
    Suite(17, 3, 4, 1, hashlib.sha256, 16),
    Suite(3, 1, 1, 1, hashlib.sha1, 12),
)
"""What we speak, best first."""


class Message(NamedTuple):
    """An IPMI request or response."""

    netfn: int
    lun: int
    sequence: int
    command: int
    data: bytes

    def encode(self) -> bytes:
        """As a request from us to the BMC."""
        head = bytes((_BMC, self.netfn << 2 | self.lun))
        body = bytes((_CONSOLE, self.sequence << 2, self.command)) + self.data
        return head + _checksum(head) + body + _checksum(body)


def message(payload: bytes) -> Message | None:
    """Decode what the BMC sent; None if that is nonsense. A response's first byte of data is its completion code."""
    if len(payload) < 8 or _checksum(payload[:2]) != payload[2:3] or _checksum(payload[3:-1]) != payload[-1:]:
        return None
    return Message(payload[1] >> 2, payload[1] & 3, payload[4] >> 2, payload[5], payload[6:-1])


class Packet(NamedTuple):
    """What is in a datagram outside any session, or before its check inside one."""

    kind: int
    """Payload type, without its two marks."""
    session: int
    sequence: int
    payload: bytes
    sealed: bool


def bare(payload: bytes, kind: int = IPMI) -> bytes:
    """A datagram outside any session. Plain messages go in the old format, which every BMC answers."""
    if kind == IPMI:
        return RMCP + struct.pack("<BIIB", 0, 0, 0, len(payload)) + payload
    return RMCP + struct.pack("<BBIIH", 6, kind, 0, 0, len(payload)) + payload


def parse(datagram: bytes) -> Packet | None:
    """Take a datagram apart as far as one can without keys; None if it is not one of IPMI's."""
    if len(datagram) < 14 or datagram[:4] != RMCP:
        return None
    if datagram[4] == 0:
        sequence, session, size = struct.unpack_from("<IIB", datagram, 5)
        payload = datagram[14 : 14 + size]
        return Packet(IPMI, session, sequence, payload, False) if len(payload) == size else None
    if datagram[4] != 6 or len(datagram) < 16:
        return None
    marked, session, sequence, size = struct.unpack_from("<BIIH", datagram, 5)
    payload = datagram[16 : 16 + size]
    if len(payload) != size:
        return None
    return Packet(marked & 0x3F, session, sequence, payload, bool(marked & (_AUTHENTICATED | _ENCRYPTED)))


class Keys:
    """The keys of one session. Never shown."""

    __slots__ = ("_aes", "_k1", "_suite")

    def __init__(self, suite: Suite, session_key: bytes) -> None:
        self._suite = suite
        # The constants are as long as SHA-1 is, whatever the hash: what BMCs and ipmitool do.
        self._k1 = suite.mac(session_key, b"\x01" * 20)
        self._aes = algorithms.AES(suite.mac(session_key, b"\x02" * 20)[:16])

    def seal(self, kind: int, session: int, sequence: int, payload: bytes) -> bytes:
        """A datagram in the session: encrypted, then authenticated."""
        pad = -(len(payload) + 1) % 16
        plain = payload + bytes(range(1, pad + 1)) + bytes((pad,))
        vector = os.urandom(16)
        cipher = Cipher(self._aes, modes.CBC(vector)).encryptor()
        secret = vector + cipher.update(plain) + cipher.finalize()
        body = struct.pack("<BBIIH", 6, kind | _ENCRYPTED | _AUTHENTICATED, session, sequence, len(secret)) + secret
        pad = -(len(body) + 2) % 4
        body += b"\xff" * pad + bytes((pad, 7))
        return RMCP + body + self._suite.mac(self._k1, body)[: self._suite.code]

    def open(self, datagram: bytes) -> bytes | None:
        """The payload of a datagram of the session; None unless it is authentic and encrypted."""
        code = self._suite.code
        if len(datagram) < 16 + 32 + code or datagram[5] & 0xC0 != _ENCRYPTED | _AUTHENTICATED:
            return None
        body, check = datagram[4:-code], datagram[-code:]
        if not hmac.compare_digest(self._suite.mac(self._k1, body)[:code], check):
            return None
        size = int.from_bytes(datagram[14:16], "little")
        secret = datagram[16 : 16 + size]
        if size < 32 or size % 16 or len(secret) != size:
            return None
        cipher = Cipher(self._aes, modes.CBC(secret[:16])).decryptor()
        plain = cipher.update(secret[16:]) + cipher.finalize()
        pad = plain[-1] + 1
        return plain[:-pad] if pad <= len(plain) else None


class Window:
    """Which sequence numbers were seen: a datagram that comes twice, or very late, is not taken."""

    __slots__ = ("_newest", "_seen")

    SIZE = 32

    def __init__(self) -> None:
        self._newest = 0
        self._seen = 0

    def takes(self, sequence: int) -> bool:
        """Whether this one is new; from now on it is not."""
        ahead = sequence - self._newest
        if ahead > 0:
            self._seen = (self._seen << ahead | 1) & (1 << self.SIZE) - 1 if ahead < self.SIZE else 1
            self._newest = sequence
            return True
        mark = 1 << -ahead
        if -ahead >= self.SIZE or self._seen & mark:
            return False
        self._seen |= mark
        return True


def suites_of(records: bytes) -> set[int]:
    """The numbers of the standard cipher suites in the records that a BMC lists."""
    found, at = set(), 0
    while at < len(records) - 1:
        if records[at] == 0xC0:
            found.add(records[at + 1])
        at += 1
    return found


def _checksum(data: bytes) -> bytes:
    return bytes((-sum(data) & 0xFF,))
