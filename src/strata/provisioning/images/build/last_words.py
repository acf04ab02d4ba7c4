"""What a command that failed said last: for the error that tells of it, one line, bounded, and without secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from strata.core.redact import redact

LINES = 3
_LONGEST = 120  # characters of a line
_NOTE = "I: "  # how mmdebstrap says what it is doing, also after it has failed
_READ = 8000  # bytes of the log's end that are looked at


def last_words(log: Path, since: int = 0) -> str:
    """The last lines of a log that differ, of what came after its first ``since`` bytes. Empty: nothing did."""
    try:
        with log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(since, size - _READ))
            text = file.read(_READ).decode(errors="replace")
    except OSError:
        return ""
    lines = (_short(line.rpartition("\r")[2], _LONGEST) for line in reversed(redact(text).splitlines()))
    differing = dict.fromkeys(line for line in lines if line and not line.startswith(_NOTE))
    return " | ".join(list(differing)[:LINES][::-1])


def one_line(text: str, longest: int = 80) -> str:
    """A command or a script, in as few characters, for people to recognise it."""
    return _short(" ".join(redact(text).split()), longest)


class OwnLog:
    """What comes after this moment in the log that standard error goes to."""

    _STDERR = 2

    def __init__(self) -> None:
        status = os.fstat(self._STDERR)
        self._since = status.st_size if stat.S_ISREG(status.st_mode) else None

    def last_words(self) -> str:
        """Empty: nothing was said, or it went where it cannot be read again."""
        return "" if self._since is None else last_words(Path(f"/proc/self/fd/{self._STDERR}"), self._since)


def _short(text: str, longest: int) -> str:
    line = "".join(char if char.isprintable() else " " for char in text[:1000]).strip()
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
