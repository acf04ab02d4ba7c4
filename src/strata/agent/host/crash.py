"""What an earlier kernel left behind when it died: pstore's records become log lines, and room is made for the next."""

from __future__ import annotations

from ..link.logs import Logs
from ..paths import Paths

_MOST_RECORDS = 16
_MOST_LINES = 200
_MOST_BYTES = 65536


def report_crash(paths: Paths, logs: Logs) -> int:
    """Tell of each record and remove it; how many there were."""
    records = sorted(path for path in paths.sys("fs/pstore").glob("*") if path.is_file())[:_MOST_RECORDS]
    for record in records:
        try:
            with record.open("rb") as source:
                text = source.read(_MOST_BYTES).decode("utf-8", "replace")
            logs.add("crash", f"an earlier kernel left {record.name}")
            for line in text.splitlines()[-_MOST_LINES:]:
                logs.add("crash", line)
            record.unlink()
        except OSError as error:
            logs.say(f"{record.name} in pstore cannot be read or removed: {error}")
    return len(records)
