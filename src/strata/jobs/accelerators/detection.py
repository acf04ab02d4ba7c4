"""Has the detector look at a machine: in a process of its own, since a driver that hangs keeps whoever asks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest, Unavailable
from strata.jobs.accelerators.records import Found

_PROGRAM = "strata.agent.host.accelerators"
"""The agent's: what nodes tell of themselves and what is found here is found by the same code."""
_PATIENCE = 60.0


def detect(root: Path = Path("/"), *, patience: float = _PATIENCE) -> Found:
    """What is below ``root``. ``Unavailable``: the detector did not answer in so many seconds, or failed."""
    if not root.is_dir():
        raise BadRequest("is no folder", where=str(root), hint="--root / is this machine")
    command = [sys.executable, "-P", "-m", _PROGRAM, "--root", str(root)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=patience, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"a driver did not answer within {patience:g} s",
            where=f"accelerators of {root}",
            hint="the kernel's log says which (dmesg); a device that hangs comes back with a power cycle",
        ) from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unavailable(
            f"the detector failed: {said[-1][:200] if said else f'status {done.returncode}'}",
            where=f"accelerators of {root}",
            hint=f"run it by hand: python3 -m {_PROGRAM} --root {root}",
        )
    return msgspec.json.decode(done.stdout, type=Found)
