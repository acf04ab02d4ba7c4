"""A release: what a tag stands for, signed. Nodes run nothing that a release does not vouch for.

Pure: knows no file and no store. ``Releases`` is what others ask for one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from strata.core.errors import BadRequest
from strata.provisioning.signing import Signer
from strata.provisioning.signing import verify as verify_signature

CHUNK = 1 << 20
"""Bytes of one chunk: what a node verifies, and keeps or fetches again, as a whole."""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}\Z")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")

_canonical = msgspec.json.Encoder(order="sorted")


class ImageConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the image wants to be run, if nobody says otherwise."""

    argv: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    cwd: str = "/"
    user: str = ""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One image under one name. ``serial`` grows with every release of the name: a node refuses to go back."""

    name: str
    tag: str
    serial: int
    image: str
    """Digest of the OCI manifest."""
    squashfs: str
    """Digest of the file that nodes mount."""
    size: int
    """Its bytes."""
    chunk: int = CHUNK
    chunks: str
    """Digest of the list of its chunks' digests (raw SHA-256, one after the other)."""
    config: ImageConfig = ImageConfig()
    signature: str = ""
    """Base64 of Ed25519 over ``signed_bytes``."""

    @property
    def reference(self) -> str:
        """``name:tag``."""
        return f"{self.name}:{self.tag}"

    @property
    def signed_bytes(self) -> bytes:
        """What the signature is over: all other fields as JSON with sorted keys and no spaces."""
        return canonical({key: value for key, value in msgspec.to_builtins(self).items() if key != "signature"})


class Releases(Protocol):
    """Where releases are asked for."""

    moved: list[Callable[[str], None]]
    """Told of each tag (``name:tag``) that comes to stand for something else, or is gone. On the event loop: they must
    neither block nor raise."""

    async def release(self, reference: str) -> Release:
        """What ``name:tag`` stands for now; ``NotFound`` if nothing."""
        ...


def build_of(digest: str) -> str:
    """A build as people are shown it: enough of its digest to tell it from others."""
    return digest.removeprefix("sha256:")[:12]


def canonical(value: Any) -> bytes:
    """JSON that is the same for the same value: sorted keys, no spaces, UTF-8."""
    return _canonical.encode(value)


def signed(release: Release, signer: Signer) -> Release:
    """The release with its signature."""
    signature = base64.b64encode(signer.sign(release.signed_bytes)).decode()
    return msgspec.structs.replace(release, signature=signature)


def is_signed_by(release: Release, public_pem: str) -> bool:
    """Whether the holder of the key vouches for every field of it."""
    try:
        signature = base64.b64decode(release.signature, validate=True)
    except binascii.Error:
        return False
    return verify_signature(public_pem, release.signed_bytes, signature)


def parse_reference(text: str) -> tuple[str, str]:
    """``name:tag`` apart; without a tag it is ``latest``."""
    name, colon, tag = text.partition(":")
    if not colon:
        tag = "latest"
    if not NAME.match(name) or not TAG.match(tag):
        raise BadRequest(
            "an image is named name:tag, the name in lower-case letters, digits, '.', '_' and '-'",
            where=repr(text)[:100],
            hint="as in debian:12",
        )
    return name, tag


def check_digest(text: str) -> str:
    """The hexadecimal part of ``sha256:...``."""
    if not DIGEST.match(text):
        raise BadRequest("not a SHA-256 digest", where=repr(text)[:100])
    return text.removeprefix("sha256:")
