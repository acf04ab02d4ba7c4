"""What travels between the etcd store and etcd's JSON gateway: messages, keys, and values with their checksums.

In etcd's JSON bytes are base64 and 64-bit numbers are text; msgspec reads and writes both.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from strata.core.errors import Corrupt
from strata.store.protocol import Entry


class Header(msgspec.Struct):
    """What every reply says about the store."""

    revision: int = 0


class KeyValue(msgspec.Struct):
    """One key, as etcd sends it."""

    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class RangeReply(msgspec.Struct):
    """Reply to a range."""

    header: Header = msgspec.field(default_factory=Header)
    kvs: list[KeyValue] = []
    more: bool = False


class TxnPart(msgspec.Struct):
    """The reply to one operation of a transaction."""

    response_range: RangeReply | None = None


class TxnReply(msgspec.Struct):
    """Reply to a transaction."""

    header: Header
    succeeded: bool = False
    responses: list[TxnPart] = []


class LeaseReply(msgspec.Struct, rename={"ttl": "TTL"}):
    """Reply to a grant or a renewal. A ttl of 0: there is no such lease."""

    ttl: int = 0


class KeepAlive(msgspec.Struct):
    """A renewal is a stream of replies; this is one."""

    result: LeaseReply = msgspec.field(default_factory=LeaseReply)


class Alarm(msgspec.Struct):
    """A member's trouble."""

    alarm: str = ""


class AlarmReply(msgspec.Struct):
    """Reply to: what is the matter?"""

    alarms: list[Alarm] = []


class WatchEvent(msgspec.Struct):
    """One change; ``type`` is left out for a put."""

    kv: KeyValue
    type: str = "PUT"


class WatchResult(msgspec.Struct):
    """One message of a watch."""

    header: Header = msgspec.field(default_factory=Header)
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    compact_revision: int = 0
    fragment: bool = False
    events: list[WatchEvent] = []


class Failure(msgspec.Struct):
    """What the gateway answers instead; ``code`` is gRPC's."""

    message: str = ""
    code: int = 0


class WatchLine(msgspec.Struct):
    """One line of a watch's stream."""

    result: WatchResult | None = None
    error: Any = None


class Names:
    """Our keys to etcd's and back: all of ours are under one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"/{prefix}/".encode()
        self.meta = f"/{prefix}.meta".encode()
        """A key beside ours that says what the store as a whole must remember."""

    def key(self, key: str) -> bytes:
        """Our key as etcd's."""
        return self._prefix + key.encode()

    def end(self, prefix: str) -> bytes:
        """The first key of etcd's above everything that begins with our ``prefix``."""
        # UTF-8 has no byte 0xff, so the last byte can always be counted up.
        start = self.key(prefix)
        return start[:-1] + bytes([start[-1] + 1])

    def ours(self, key: bytes) -> str:
        """Etcd's key as ours."""
        return key[len(self._prefix) :].decode()


def seal(key: str, value: bytes) -> bytes:
    """A value with its checksum behind it: etcd itself does not notice a flipped bit in its file."""
    return value + zlib.crc32(value, zlib.crc32(key.encode())).to_bytes(4, "big")


def unseal(key: str, stored: bytes) -> bytes:
    """The value, if it is what was written."""
    value = stored[:-4]
    if len(stored) < 4 or seal(key, value) != stored:
        raise Corrupt("a stored value failed its checksum and is not served", where=key, hint="restore a backup")
    return value


def to_entry(names: Names, kv: KeyValue, offset: int) -> Entry:
    """Etcd's key-value as an entry, verified."""
    key = names.ours(kv.key)
    return Entry(key, unseal(key, kv.value), kv.create_revision + offset, kv.mod_revision + offset, kv.lease)
