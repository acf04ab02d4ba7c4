"""Secrets at rest: sealed with a key that is not in the store, each bound to what it is the secret of.

A sealed secret is ``version (1) | key id (8) | nonce (12) | AES-256-GCM ciphertext and tag``. Its *context* (the key of
its record) is authenticated with it, so that a secret that is moved to another record does not open there. The key file
holds one key per line: all of them open, the first one seals.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from strata.core.errors import Corrupt, Unavailable
from strata.core.host.private_file import write_new

KEY_FILE = "secrets.key"
"""In the state directory, unless another path was given."""

_KEY_BYTES = 32
_VERSION = b"\x01"
_ID_BYTES = 8
_NONCE_BYTES = 12
_HEADER = len(_VERSION) + _ID_BYTES + _NONCE_BYTES
_NOTE = (
    "# Opens the secrets in Strata's store. One key per line; the first one seals. Keep a copy, apart from backups.\n"
)


class Seal:
    """Seals and opens. Shows no key, and does not pickle."""

    def __init__(self, keys: Sequence[bytes], *, where: str = "memory") -> None:
        if not keys or any(len(key) != _KEY_BYTES for key in keys):
            raise Corrupt(f"a key has {_KEY_BYTES} bytes", where=where, hint="restore the file from your copy")
        self.where = where
        self._ciphers = {_id_of(key): AESGCM(key) for key in keys}
        self._first = _id_of(keys[0])

    @property
    def key_ids(self) -> tuple[str, ...]:
        """What the keys are known by, the one that seals first; they say nothing of the keys."""
        return (self._first.hex(), *(name.hex() for name in self._ciphers if name != self._first))

    def __repr__(self) -> str:
        return f"Seal({self.where})"

    def __reduce__(self) -> str:
        raise TypeError("keys are not written anywhere")

    @classmethod
    def load(cls, path: Path, *, make: bool = False) -> Seal:
        """The keys in the file at ``path``. ``make``: if there is no such file, write one with a new key."""
        if make and not path.exists():
            write_new(path, _line(secrets.token_bytes(_KEY_BYTES)))
        try:
            if path.stat().st_mode & 0o077:
                raise Unavailable(
                    "others than its owner may read the key file", where=str(path), hint=f"chmod 600 {path}"
                )
            lines = path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"the key file cannot be read ({type(error).__name__})",
                where=str(path),
                hint="restore it from your copy; without it the stored secrets cannot be opened",
            ) from None
        return cls(
            [_key_of(line, path) for line in lines if line.strip() and not line.startswith("#")], where=str(path)
        )

    def seal(self, data: bytes, context: str) -> bytes:
        """``data``, readable only with the key and for the same ``context``."""
        nonce = os.urandom(_NONCE_BYTES)
        head = _VERSION + self._first
        return head + nonce + self._ciphers[self._first].encrypt(nonce, data, head + context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """What was sealed for ``context``; ``Corrupt`` if the key is missing, or anything was changed or moved."""
        head, nonce = sealed[: _HEADER - _NONCE_BYTES], sealed[_HEADER - _NONCE_BYTES : _HEADER]
        if len(sealed) < _HEADER or head[:1] != _VERSION:
            raise Corrupt("not a sealed secret of a known form", where=context, hint="set the secret again")
        cipher = self._ciphers.get(head[1:])
        if cipher is None:
            raise Corrupt(
                f"its secret was sealed with the key {head[1:].hex()}, which {self.where} does not hold",
                where=context,
                hint="add that key to the file from your copy, or set the secret again",
            )
        try:
            return cipher.decrypt(nonce, sealed[_HEADER:], head + context.encode())
        except InvalidTag:
            raise Corrupt(
                "its secret was changed or belongs to something else", where=context, hint="set the secret again"
            ) from None

    def reseal(self, sealed: bytes, context: str) -> bytes | None:
        """The same secret under the first key; None if it is under that one already."""
        if sealed[1 : 1 + _ID_BYTES] == self._first:
            return None
        return self.seal(self.open(sealed, context), context)


def _id_of(key: bytes) -> bytes:
    """Names a key without giving anything of it away."""
    return hashlib.sha256(b"strata seal key id" + key).digest()[:_ID_BYTES]


def _line(key: bytes) -> bytes:
    return (_NOTE + base64.b64encode(key).decode() + "\n").encode()


def _key_of(line: str, path: Path) -> bytes:
    try:
        return base64.b64decode(line.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise Corrupt(
            "a line of the key file is not a key", where=str(path), hint="restore the file from your copy"
        ) from None
