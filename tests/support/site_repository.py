"""Site repositories as tests write them: files, commits, branches that are moved."""

from __future__ import annotations

import subprocess
from pathlib import Path

_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@site.example",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@site.example",
}

NODES = """kind: nodes
role: compute
nodes:
  - {name: n1, nid: 1, labels: {rack: r1}}
  - {name: n2, nid: 2, labels: {rack: r1}}
  - {name: n3, nid: 3, labels: {rack: r2}}
  - {name: n4, nid: 4, labels: {rack: r2}}
"""
GROUPS = """kind: group
name: compute
members: n[1-4]
---
kind: desire
name: compute-on
select: "@compute"
set: {power: on}
"""


class SiteRepository:
    """A git repository in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str, given: str = "") -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.directory, env=_ENV, input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        for path, text in files.items():
            file = self.directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def commit(self, files: dict[str, str] | None = None, *, message: str = "Change") -> str:
        """Write files and commit everything; the commit."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")


def small_site(directory: Path) -> SiteRepository:
    """Four nodes, a group, a desire, committed."""
    found = SiteRepository(directory)
    found.commit({"site/nodes.yaml": NODES, "site/groups.yaml": GROUPS})
    return found
