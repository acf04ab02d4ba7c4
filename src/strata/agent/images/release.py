"""A release of an image, and whether to believe it: signed by a key this boot was given, not older than one seen."""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
import threading
from pathlib import Path

from ..errors import AgentError, CommandFailed, Corrupt
from ..files import load_json, save_json, write_private
from ..paths import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_CHUNKS = 1 << 20


class Release:
    """One image to run: where its bytes are, how they are checked, what it runs by itself."""

    def __init__(self, values: dict[str, Any]) -> None:
        try:
            self.values = values
            self.name = str(values["name"])
            self.tag = str(values["tag"])
            self.serial = int(values["serial"])
            self.hex = _digest(values["squashfs"])
            self.size = int(values["size"])
            self.chunk = int(values["chunk"])
            self.chunks_hex = _digest(values["chunks"])
            config = values.get("config") or {}
            self.argv = [str(word) for word in config.get("argv") or []]
            self.env = [str(word) for word in config.get("env") or []]
            self.cwd = str(config.get("cwd") or "/")
            self.user = str(config.get("user") or "")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CommandFailed(f"the release is malformed: {type(error).__name__}: {error}") from None
        if self.size <= 0 or not 4096 <= self.chunk <= 64 << 20 or self.count > _MOST_CHUNKS:
            raise CommandFailed(f"the release of {self} has absurd sizes: {self.size} bytes in pieces of {self.chunk}")

    def __str__(self) -> str:
        return f"{self.name}:{self.tag} (serial {self.serial})"

    @property
    def count(self) -> int:
        """How many chunks the image has."""
        return -(-self.size // self.chunk)

    def length(self, index: int) -> int:
        """How long one chunk is: the last may be shorter."""
        return min(self.chunk, self.size - index * self.chunk)


def _digest(value: object) -> str:
    """The hexadecimal part of a digest, which becomes a file name and a path: nothing else may pass."""
    kind, _, text = str(value).partition(":")
    if kind != "sha256" or len(text) != 64 or any(c not in "0123456789abcdef" for c in text):
        raise ValueError(f"{str(value)[:100]!r} is not a sha256 digest")
    return text


class Trust:
    """Which releases may run on this node."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._lock = threading.Lock()

    def check(self, release: Release, held: bool) -> None:
        """Refuse a release that no key of ours signed, or that is older than one seen here and not held any more."""
        unsigned = {name: value for name, value in release.values.items() if name != "signature"}
        try:
            signature = base64.b64decode(str(release.values.get("signature") or ""), validate=True)
        except binascii.Error:
            raise Corrupt(f"{release}: the signature is malformed") from None
        data = json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        keys = sorted(self._paths.release_keys.glob("*.pem"))
        with self._lock:
            if not any(_signed(key, data, signature, self._paths.run) for key in keys):
                raise Corrupt(f"{release}: not signed by any of the {len(keys)} release keys of this boot")
            seen = load_json(self._paths.serials) or {}
            tag = f"{release.name}:{release.tag}"
            highest = int(seen.get(tag, 0))
            if release.serial < highest and not held:
                raise Corrupt(f"{release}: older than serial {highest}, which this node has seen")
            if release.serial > highest:
                save_json(self._paths.serials, {**seen, tag: release.serial})


def _signed(key: Path, data: bytes, signature: bytes, folder: Path) -> bool:
    write_private(folder / "verify.data", data)
    write_private(folder / "verify.signature", signature)
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(key), "-rawin"]
    command += ["-in", str(folder / "verify.data"), "-sigfile", str(folder / "verify.signature")]
    try:
        done = subprocess.run(command, env={**os.environ, "OPENSSL_CONF": "/dev/null"}, capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgentError(f"signatures cannot be checked: {error}") from None
    return done.returncode == 0
