"""What is to be delivered, as the controller sends it: a manifest with a digest, and the texts that it names."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json

from ..errors import Corrupt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Overlay:
    """One node's overlay, checked against its digests."""

    def __init__(self, values: dict[str, Any]) -> None:
        try:
            self.values = values
            self.revision = str(values["revision"])
            self.digest = str(values["digest"])
            manifest = str(values["manifest"])
            if self.digest != "sha256:" + hashlib.sha256(manifest.encode()).hexdigest():
                raise Corrupt("the configuration does not match its digest: it changed on the way")
            told = json.loads(manifest)
            self.check = max(0.05, min(50.0, float(told["check"])))
            self._kinds = {
                kind: [dict(entry) for entry in told[kind]]
                for kind in ("files", "users", "groups", "services", "mounts", "sysctls")
            }
            self._kinds["packages"] = [dict(entry) for entry in told.get("packages", [])]
            self._contents = {
                str(sha): base64.b64decode(text, validate=True) for sha, text in values["contents"].items()
            }
            wanted = {str(entry["sha"]) for entry in self._kinds["files"]}
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            raise Corrupt(f"the configuration is malformed: {type(error).__name__}: {error}") from None
        for sha in wanted:
            if hashlib.sha256(self._contents.get(sha, b"")).hexdigest() != sha:
                raise Corrupt("a file of the configuration does not match its digest: it changed on the way")

    def of(self, kind: str, member: str) -> list[dict[str, Any]]:
        """The entries of a kind that are for a member."""
        return [entry for entry in self._kinds[kind] if not entry.get("members") or member in entry["members"]]

    def all(self, kind: str) -> list[dict[str, Any]]:
        """The entries of a kind."""
        return self._kinds[kind]

    def content(self, entry: dict[str, Any]) -> bytes:
        """A file's bytes."""
        return self._contents[str(entry["sha"])]
