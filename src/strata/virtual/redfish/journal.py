"""A BMC's own event log: a ring of entries with ids that only rise."""

from __future__ import annotations

from typing import NamedTuple

MOST_ENTRIES = 1000


class Entry(NamedTuple):
    """One line; the severity in Redfish's words."""

    created: str
    severity: str
    message: str
    message_id: str
    sensor: str = ""


class Journal:
    """The newest entries, by id."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._count = 0

    def add(self, entry: Entry) -> str:
        """Append; the oldest makes room. The new entry's id."""
        self._count += 1
        if len(self.entries) >= MOST_ENTRIES:
            del self.entries[next(iter(self.entries))]
        self.entries[str(self._count)] = entry
        return str(self._count)

    def clear(self) -> None:
        """Forget all entries; ids go on."""
        self.entries.clear()
