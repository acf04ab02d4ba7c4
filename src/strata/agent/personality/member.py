"""What one member of a personality is told to be."""

from __future__ import annotations

import hashlib
import json

from ..errors import CommandFailed
from ..images.release import Release

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MODES = ("ram", "demand")
_READY = ("started", "file", "tcp", "command")


class Member:
    """One image and how it runs. Two members that were told the same are the same: they need no restart."""

    def __init__(self, values: dict[str, Any]) -> None:
        try:
            self.values = values
            self.name = str(values["name"])
            self.release = Release(values["release"])
            self.mode = str(values.get("mode") or "ram")
            self.argv = [str(word) for word in values.get("argv") or []] or self.release.argv
            self.env = {str(name): str(value) for name, value in (values.get("env") or {}).items()}
            self.init = bool(values.get("init"))
            ready = values.get("ready") or {}
            self.ready_kind = str(ready.get("kind") or "started")
            self.ready_path = str(ready.get("path") or "")
            self.ready_port = int(ready.get("port") or 0)
            self.ready_argv = [str(word) for word in ready.get("argv") or []]
            self.ready_within = float(ready.get("within") or 60)
            self.ready_every = max(0.1, float(ready.get("every") or 30))
            restart = values.get("restart") or {}
            self.restart_most = int(restart.get("most", 5))
            self.restart_backoff = max(0.1, float(restart.get("backoff") or 1.0))
            self.mounts = [dict(mount) for mount in values.get("mounts") or []]
            self.files = [dict(entry) for entry in values.get("files") or []]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CommandFailed(f"a member of the personality is malformed: {type(error).__name__}: {error}") from None
        if not self.name or len(self.name) > 64 or not all(c.isalnum() or c in "-_." for c in self.name):
            raise CommandFailed(f"{self.name[:64]!r} is no name for a member: letters, digits, - _ . only")
        if self.mode not in _MODES or self.ready_kind not in _READY:
            raise CommandFailed(
                f"member {self.name}: mode must be one of {', '.join(_MODES)} and readiness one of {', '.join(_READY)}"
            )
        if not self.argv:
            raise CommandFailed(f"member {self.name}: neither the personality nor the image says what to run")
        told = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
        self.identifier = f"{self.name}-{hashlib.sha256(told).hexdigest()[:12]}"


class Personality:
    """A named set of members, at one digest."""

    def __init__(self, values: dict[str, Any]) -> None:
        try:
            self.values = values
            self.name = str(values["name"])
            self.digest = str(values["digest"])
            self.members = [Member(member) for member in values["members"]]
        except (KeyError, TypeError) as error:
            raise CommandFailed(f"the personality is malformed: {type(error).__name__}: {error}") from None
        if len({member.name for member in self.members}) != len(self.members):
            raise CommandFailed(f"personality {self.name}: two members have the same name")
