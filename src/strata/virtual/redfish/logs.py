"""The system event log of a simulated server: a ring of entries with ids that only rise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.body import OK, ROOT, Json, action, collection, done, link, resource
from strata.virtual.redfish.router import Call, Tree

if TYPE_CHECKING:
    from strata.virtual.redfish.server import ServerBmc

MOST_ENTRIES = 1000
SEL = f"{ROOT}/Systems/1/LogServices/SEL"
ENTRIES = f"{SEL}/Entries"

TREE: Tree[ServerBmc] = Tree()


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


@TREE.members("Systems/1/LogServices", "LogService.v1_4_0", ["SEL"])
def _sel(bmc: ServerBmc, call: Call) -> Json:
    return {
        "Name": "System event log",
        "ServiceEnabled": True,
        "LogEntryType": "SEL",
        "OverWritePolicy": "WrapsWhenFull",
        "MaxNumberOfRecords": MOST_ENTRIES,
        "DateTime": bmc.site.date(call.now),
        "Status": OK,
        "Entries": link(ENTRIES),
        "Actions": action(SEL, "LogService.ClearLog"),
    }


@TREE.view("Systems/1/LogServices/SEL/Entries")
def _entries(bmc: ServerBmc, call: Call) -> Json:
    """As most BMCs do, with the entries themselves in place of links."""
    found = [_shown(f"{call.path}/{name}", entry) for name, entry in bmc.journal.entries.items()]
    return collection(call.path, "LogEntry", []) | {"Members": found, "Members@odata.count": len(found)}


@TREE.view("Systems/1/LogServices/SEL/Entries/*")
def _entry(bmc: ServerBmc, call: Call) -> Json | None:
    found = bmc.journal.entries.get(call.ids[0])
    return None if found is None else _shown(call.path, found)


def _shown(path: str, entry: Entry) -> Json:
    return resource(
        path,
        "LogEntry.v1_15_0",
        Name="Log entry",
        EntryType="SEL" if entry.sensor else "Event",
        Created=entry.created,
        Severity=entry.severity,
        Message=entry.message,
        MessageId=entry.message_id,
        Links={"OriginOfCondition": link(f"{ROOT}/Systems/1")},
        **({"SensorType": entry.sensor} if entry.sensor else {}),
    )


@TREE.handles("POST Systems/1/LogServices/SEL/Actions/LogService.ClearLog")
def _clear(bmc: ServerBmc, call: Call) -> Reply:
    bmc.journal.entries.clear()  # ids go on
    return done()
