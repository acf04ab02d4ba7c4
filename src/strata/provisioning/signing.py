"""The key that vouches for what nodes run: releases of images, and the minimal OS. Ed25519, in the state directory."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from strata.core.errors import Corrupt
from strata.core.host.private_file import write_new

KEY_FILE = "release.key"


class Signer:
    """Signs. ``open`` makes the key on first use."""

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def open(cls, directory: Path) -> Signer:
        """The key in ``directory``, which only its owner can read."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / KEY_FILE
        if not path.exists():
            fresh = ed25519.Ed25519PrivateKey.generate()
            form = serialization.PrivateFormat.PKCS8
            write_new(path, fresh.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError) as error:
            raise Corrupt(
                f"the signing key cannot be read: {type(error).__name__}",
                where=str(path),
                hint="restore it from a backup, or remove it to make a new one (images must be signed again)",
            ) from None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise Corrupt("the signing key is not an Ed25519 key", where=str(path), hint="restore it from a backup")
        return cls(key)

    def sign(self, data: bytes) -> bytes:
        """The signature of ``data``: 64 bytes."""
        return self._key.sign(data)

    @property
    def public_pem(self) -> str:
        """What verifies it."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def verify(public_pem: str, data: bytes, signature: bytes) -> bool:
    """Whether ``signature`` is that of ``data`` by the key in ``public_pem``."""
    try:
        key = serialization.load_pem_public_key(public_pem.encode())
    except ValueError:
        return False
    if not isinstance(key, ed25519.Ed25519PublicKey):
        return False
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True
