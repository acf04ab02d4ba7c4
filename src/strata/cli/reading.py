"""Files that a command is given: their text, or in one line why it cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

from strata.core.errors import BadRequest


def read_text(path: Path) -> str:
    """The text of a file; ``-`` is standard input."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise BadRequest("cannot be read: it is not UTF-8 text", where=str(path)) from None
