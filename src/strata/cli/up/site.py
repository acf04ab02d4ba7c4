"""The repository that describes the cluster of ``strata up``: the starter of ``strata config init`` with the cluster's
own nodes in it, committed and applied. From then on it is its owner's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from strata.core.errors import Unavailable
from strata.core.host.captured import captured
from strata.virtual.qemu.network import tool

if TYPE_CHECKING:
    from strata.cli.client import Client
    from strata.platform.config.starter import Machine

FOLDER = "site"
"""In the state directory."""
SYSTEM = "virtual"
_LIMIT = 60.0


def describe(client: Client, directory: Path, machine: Machine, why: str) -> None:
    """Write that this is the machine, commit it unless it is committed, and apply it."""
    from strata.platform.config.commands import applied
    from strata.platform.config.starter import files

    folder = directory / FOLDER
    for name, text in files(SYSTEM, machine).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if not (folder / ".git").exists():
        _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "add", "--all")
    if _git(folder, "status", "--porcelain"):
        _git(folder, "commit", "--quiet", "--message", why)
    applied(client, folder)


def is_as_written(directory: Path, machine: Machine) -> bool:
    """Whether the repository says this of the machine, and nobody has written anything else into it."""
    from strata.platform.config.reading import read_files
    from strata.platform.config.repository import is_configuration
    from strata.platform.config.starter import files

    folder = directory / FOLDER
    if not (folder / ".git").exists():
        return False
    written = {name: text.encode() for name, text in files(SYSTEM, machine).items() if is_configuration(name)}
    return read_files(folder) == written and not _git(folder, "status", "--porcelain")


def _git(folder: Path, *arguments: str) -> str:
    """Nothing but our own settings counts: no hooks, no signatures, whoever is logged in here."""
    ours = ("user.name=strata up", "user.email=strata@localhost", "core.hooksPath=/dev/null", "safe.directory=*")
    options = [word for setting in ours for word in ("-c", setting)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = [tool("git", "git"), "-C", str(folder), *options, *arguments]
    done = captured(command, _LIMIT, {**kept, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull})
    if done.returncode:
        raise Unavailable(f"git {arguments[0]}: {done.stderr.strip()[-300:]}", where=str(folder))
    return done.stdout
