"""The command line as people run it, against a controller of the test."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str


async def strata(state: Path, *words: str) -> Ended:
    """Run it on the controller whose state directory that is."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "strata.cli", "--url", f"unix:{state}/admin.sock", "--no-color", *words,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=os.environ,
    )  # fmt: skip
    out, err = await process.communicate()
    return Ended(process.returncode or 0, out.decode(), err.decode())
