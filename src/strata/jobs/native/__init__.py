"""The native container runner and what schedulers load of it: small C programs, which ``make native`` builds here.

`enter.c` is the one way into an image; ``strata-run``, Slurm's plugin and Grid Engine's starter use it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from strata.core.errors import Unavailable

Program = Literal["strata-run", "strata_spank.so", "strata-grid-engine"]

BUILT = Path(__file__).parent / "built"


def program(name: Program) -> Path:
    """Where a program of this folder is; it must have been built."""
    found = BUILT / name
    if not found.is_file():
        raise Unavailable(f"{name} is not built", where=str(BUILT), hint="run: make native")
    return found
