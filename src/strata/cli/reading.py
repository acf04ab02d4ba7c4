"""Files that a command is given: their text, or in one line why it cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

from strata.core.errors import BadRequest
from strata.core.input import foreign


def read_text(path: Path, *, lenient: bool = False) -> str:
    """The text of a file; ``-`` is standard input. ``lenient``: bytes that are not UTF-8 are replaced, for what a
    machine wrote and nobody can be asked to mend."""
    try:
        if lenient:
            return foreign.read_text(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise BadRequest("cannot be read: it is not UTF-8 text", where=str(path)) from None
