"""Where the agent keeps things, and where it looks at the machine; tests put both elsewhere."""

from __future__ import annotations

from pathlib import Path


class Paths:
    """`run` holds what a restarted agent goes on with (memory only); `root` is the machine's own file system."""

    def __init__(self, run: Path = Path("/run/strata"), root: Path = Path("/")) -> None:
        self.run = run
        self.root = root
        self.given = root / "etc/strata/boot.json"
        self.boot = run / "boot.json"
        self.key = run / "node.key"
        self.identity = run / "node.pem"
        self.authority = run / "ca.pem"
        self.release_keys = run / "release-keys"
        self.pending = run / "commands"
        self.fence = run / "fence.json"
        self.checks = run / "checks.json"
        self.set = run / "set.json"
        self.overlay = run / "overlay.json"
        self.delivered = run / "delivered.json"
        self.serials = run / "serials.json"
        self.images = run / "images"
        self.chunks = run / "chunks"
        self.damaged = run / "damaged"
        self.mounts = run / "mounts"
        self.secrets = run / "secrets"
        self.secret_stamps = run / "secrets.json"
        self.members = run / "members"
        self.crun = run / "crun"

    def sys(self, path: str) -> Path:
        """A place in the machine's sysfs."""
        return self.root / "sys" / path

    def proc(self, path: str) -> Path:
        """A place in the machine's procfs."""
        return self.root / "proc" / path
