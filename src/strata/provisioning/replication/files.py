"""The files that controllers fetch from each other, by name, and a range of one at a time.

Only what is in place has a name: what is still being made or fetched cannot be asked for.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.errors import NotFound, Unavailable
from strata.core.input.decoding import decoded
from strata.fleet.peers.client import PeerClient
from strata.fleet.peers.peers import Peers
from strata.provisioning.images.shelf import KINDS, Shelf
from strata.provisioning.minos.artefacts import PARTS

PIECE = 4 << 20
"""Bytes of the largest range."""
SILENCE = 30.0
"""Seconds for a range to come, after which its source counts as gone."""
ROUTE = "files/read"

_IMAGE_FILE = re.compile(rf"({'|'.join(KINDS)})/([0-9a-f]{{64}})\Z")
_BUILD_FILE = re.compile(rf"minos/([0-9a-f]{{12}})/({'|'.join(map(re.escape, PARTS))})\Z")

_encode = msgspec.json.Encoder().encode


class PeerFiles:
    """Reads at other controllers."""

    def __init__(self, peers: Peers, client: PeerClient) -> None:
        self._peers = peers
        self._client = client

    async def read(self, controller: str, name: str, offset: int, length: int) -> bytes:
        """Bytes of a file there; fewer than ``length`` only where it ends."""
        peer = self._peers.get(controller)
        if peer is None:
            raise Unavailable(f"controller {controller} is away", where=name)
        asked = _encode(ReadRequest(name=name, offset=offset, length=length))
        return await self._client.call(peer, ROUTE, asked, timeout=SILENCE)


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks for a part of a file."""

    name: Annotated[str, Meta(max_length=120)]
    """``squashfs/<64 hex>``, ``minos/<12 hex>/initrd``."""
    offset: Annotated[int, Meta(ge=0)]
    length: Annotated[int, Meta(ge=1, le=PIECE)]


_decode = msgspec.json.Decoder(ReadRequest).decode


class Library:
    """What this controller gives to others."""

    def __init__(self, shelf: Shelf, builds: Path) -> None:
        self._shelf = shelf
        self._builds = builds

    def path(self, name: str) -> Path:
        """Where a file is, or would be; ``NotFound`` for a name that no file can have."""
        if found := _IMAGE_FILE.match(name):
            return self._shelf.path(found[1], found[2])
        if found := _BUILD_FILE.match(name):
            return self._builds / found[1] / found[2]
        raise NotFound("controllers give each other no such file", where=repr(name)[:120])

    async def answer(self, controller: str, body: bytes) -> bytes:
        """Bytes of a file: fewer than were asked for only where it ends."""
        asked = decoded(_decode, body)
        return await asyncio.to_thread(_read, self.path(asked.name), asked)


def _read(path: Path, asked: ReadRequest) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        raise NotFound("it is not on this controller", where=asked.name) from None
    try:
        found = b""
        while len(found) < asked.length:  # a read may give less than there is
            piece = os.pread(handle, asked.length - len(found), asked.offset + len(found))
            if not piece:
                break
            found = found + piece if found else piece
        return found
    finally:
        os.close(handle)
