"""The folder that slurmctld reads its configuration from: compared with what was made, and written whole or not at all.

Runs where slurmctld does, as whoever may write there.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from strata.core.errors import BadRequest, DeviceError, Unavailable
from strata.core.host.captured import captured
from strata.core.input.foreign import one_line
from strata.schedulers.slurm.changes import Difference, difference
from strata.schedulers.slurm.conf import SLURM_CONF, SLURMDBD_CONF

_LIMIT = 60.0
_MODE = 0o644


def compare(directory: Path, files: Mapping[str, str]) -> Difference:
    """What would change there."""
    return difference({name: _read(directory / name) for name in files}, files)


def unreadable(files: Mapping[str, str]) -> str:
    """What Slurm's own commands have against the files; empty: nothing. ``Unavailable``: they are not here."""
    with tempfile.TemporaryDirectory(prefix="strata-slurm-") as name:
        for file, text in files.items():
            (Path(name) / file).write_text(text, encoding="utf-8")
        said = _scontrol(Path(name), "show", "hostnames", "n1")
    return "" if said.returncode == 0 else one_line(said.stderr.replace(f"{name}/", ""))[:500]


def write(directory: Path, files: Mapping[str, str], changed: Sequence[str]) -> None:
    """Put the changed files there, slurm.conf last: it names the others. Nothing is changed if Slurm cannot read
    them. Whoever reads in between has whole files."""
    if not changed:
        return
    if wrong := unreadable(files):
        raise DeviceError(f"Slurm cannot read it: {wrong}", node="scontrol")
    parts: dict[str, Path] = {}
    try:
        for name in sorted(changed, key=lambda name: name == SLURM_CONF):
            # Under a name that nobody can have put something else at.
            handle, part = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
            parts[name] = Path(part)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(files[name])
                _belongs(file.fileno(), name, files[name])
                file.flush()
                os.fsync(file.fileno())
        for name, ready in parts.items():
            ready.replace(directory / name)
    except OSError as error:
        raise BadRequest(
            f"cannot be written: {error.strerror}", where=str(directory), hint="run this where slurmctld runs"
        ) from None
    finally:
        for ready in parts.values():
            ready.unlink(missing_ok=True)


def _belongs(handle: int, name: str, text: str) -> None:
    """Commands of every user read what slurmctld does. slurmdbd insists that its own file is its user's alone."""
    if name != SLURMDBD_CONF:
        os.fchmod(handle, _MODE)
        return
    os.fchmod(handle, 0o600)
    user = re.search(r"^SlurmUser=(\S+)$", text, re.MULTILINE)
    if user and os.geteuid() == 0:
        with contextlib.suppress(KeyError):  # who is not known here cannot run slurmdbd here
            os.fchown(handle, pwd.getpwnam(user[1]).pw_uid, -1)


def reconfigure(directory: Path) -> None:
    """Have slurmctld read it again, and tell its nodes."""
    said = _scontrol(directory, "reconfigure")
    if said.returncode:
        raise DeviceError(f"written, but not taken over: {one_line(said.stderr)[:500]}", node="scontrol reconfigure")


def _scontrol(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SLURM_CONF": str(directory / SLURM_CONF)}
    try:
        return captured(["scontrol", *words], _LIMIT, env)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"cannot be run: {error}", where="scontrol", hint="install slurm-client") from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise BadRequest(f"cannot be read: {error.strerror}", where=str(path)) from None
