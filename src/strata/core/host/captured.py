"""A program run to its end, for what it says: it reads nothing, and has a limit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def captured(
    command: Sequence[str], limit: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """How ``command`` ended, and what it wrote. Raises ``subprocess.TimeoutExpired`` after ``limit`` seconds."""
    return subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit,
        check=False,
    )
