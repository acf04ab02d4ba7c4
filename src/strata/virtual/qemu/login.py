"""The key with which one logs in to virtual nodes: made once per chassis, in its folder."""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

KEY = "login.key"


def make_key(directory: Path) -> str:
    """The public half, in the form of ``authorized_keys``; the private one is in the chassis's folder (0600)."""
    path = directory / KEY
    if not path.exists():
        made = ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made)
    key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    form = serialization.PublicFormat.OpenSSH
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, form).decode() + " strata\n"


def command(directory: Path, address: str) -> list[str]:
    """What logs in to the node at ``address``, inside the namespace. Nodes make new host keys at every boot."""
    quiet = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    return ["ssh", "-i", str(directory / KEY), *quiet, f"root@{address}"]
