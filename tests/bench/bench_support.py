"""Runs a benchmark as its users do, and sees that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parents[2] / "bench"


def command(script: str, *options: str) -> list[str]:
    """How a script is started."""
    return [sys.executable, str(BENCH / script), *options]


def environment(scratch: Path) -> dict[str, str]:
    """Temporary files go to ``scratch``."""
    return {**os.environ, "TMPDIR": str(scratch)}


def figures(scratch: Path, script: str, *options: str) -> dict[str, Any]:
    """The one object that a script prints with ``--json``: nothing else on standard output, and no file is left. What
    a service warns of on a busy machine (a loop that came late) goes to standard error."""
    done = subprocess.run(
        command(script, *options, "--json"), env=environment(scratch), capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert list(scratch.iterdir()) == []
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found
