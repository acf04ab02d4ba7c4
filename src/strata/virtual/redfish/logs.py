"""The system event log of a simulated node."""

from __future__ import annotations

from typing import Protocol

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.body import OK, ROOT, Json, collection, done, link, resource
from strata.virtual.redfish.journal import MOST_ENTRIES, Entry, Journal
from strata.virtual.redfish.router import Call, Deeds, Views
from strata.virtual.redfish.site import Site

SEL = f"{ROOT}/Systems/1/LogServices/SEL"
ENTRIES = f"{SEL}/Entries"


class Logs(Protocol):
    """A BMC with a system event log."""

    site: Site

    @property
    def journal(self) -> Journal:
        """The log."""
        ...


def _services(bmc: Logs, call: Call) -> Json:
    return collection(call.path, "LogService", ["SEL"])


def _sel(bmc: Logs, call: Call) -> Json:
    return resource(
        call.path,
        "LogService.v1_4_0",
        "System event log",
        ServiceEnabled=True,
        LogEntryType="SEL",
        OverWritePolicy="WrapsWhenFull",
        MaxNumberOfRecords=MOST_ENTRIES,
        DateTime=bmc.site.date(call.now),
        Status=OK,
        Entries=link(ENTRIES),
        Actions={"#LogService.ClearLog": {"target": f"{SEL}/Actions/LogService.ClearLog"}},
    )


def _entries(bmc: Logs, call: Call) -> Json:
    """As most BMCs do, with the entries themselves in place of links."""
    found = [_entry_body(f"{call.path}/{name}", entry) for name, entry in bmc.journal.entries.items()]
    return collection(call.path, "LogEntry", []) | {"Members": found, "Members@odata.count": len(found)}


def _entry(bmc: Logs, call: Call) -> Json | None:
    found = bmc.journal.entries.get(call.ids[0])
    return None if found is None else _entry_body(call.path, found)


def _entry_body(path: str, entry: Entry) -> Json:
    body = resource(
        path,
        "LogEntry.v1_15_0",
        "Log entry",
        EntryType="Event",
        Created=entry.created,
        Severity=entry.severity,
        Message=entry.message,
        MessageId=entry.message_id,
        Links={"OriginOfCondition": link(f"{ROOT}/Systems/1")},
    )
    if entry.sensor:
        body |= {"EntryType": "SEL", "SensorType": entry.sensor}
    return body


def _clear(bmc: Logs, call: Call) -> Reply:
    bmc.journal.clear()
    return done()


VIEWS: Views[Logs] = {
    "Systems/1/LogServices": _services,
    "Systems/1/LogServices/SEL": _sel,
    "Systems/1/LogServices/SEL/Entries": _entries,
    "Systems/1/LogServices/SEL/Entries/*": _entry,
}

DEEDS: Deeds[Logs] = {"POST Systems/1/LogServices/SEL/Actions/LogService.ClearLog": _clear}
