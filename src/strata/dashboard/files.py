"""The dashboard's built files, where nginx may read them. Knows nothing of what is in them."""

from __future__ import annotations

import shutil
from pathlib import Path

BUILT = Path(__file__).parent / "static"
"""What ``make dashboard`` makes; a wheel has it inside."""
PAGE = "index.html"


def published(to: Path, built: Path = BUILT) -> Path | None:
    """Copy the files to ``to``, whatever was there before; None: there are none.

    A copy, because nginx's workers need to read it: an installation is not ours to open to them, a state directory is.
    """
    shutil.rmtree(to, ignore_errors=True)
    if not (built / PAGE).is_file():
        return None
    for file in sorted(path for path in built.rglob("*") if path.is_file()):
        copy = to / file.relative_to(built)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        copy.chmod(0o644)
    for folder in (to, *(path for path in to.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    return to
