"""Logs: of a node what Strata noticed (``Events``) and what its BMC wrote down itself (``SEL``); of Strata its
audit log. The newest entries of each; the whole of them is Strata's own API's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.api.redfish.protocol.messages import STRATA
from strata.api.redfish.protocol.route import Call, Json, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources import ids, live
from strata.api.redfish.resources.forms import ENABLED, HEALTH, plain, when
from strata.api.redfish.resources.ids import MANAGERS, SERVICE_MANAGER, SYSTEMS
from strata.api.redfish.resources.needs import READ_ALERT, READ_AUDIT, READ_BMC
from strata.core.errors import BadRequest, NotFound, NotOffered
from strata.fleet.audit.service import AuditService
from strata.fleet.nodes.service import NodeService
from strata.hardware.alerts.service import AlertService
from strata.hardware.bmc.records import LogEntryView
from strata.hardware.bmc.service import BmcService
from strata.hardware.events.records import EventView
from strata.store.audit import AuditEntry

_EVENTS, _SEL, _AUDIT = "Events", "SEL", "Audit"
_NAMES = {_EVENTS: "What Strata noticed", _SEL: "The BMC's own log", _AUDIT: "Who changed what"}
_NEWEST = 200
"""Entries that a log shows."""
_WHOLE = 10_000
"""Entries of a BMC's log that are read to find the newest."""
_MESSAGE = f"{STRATA}.Event"
_MANAGER_LOGS = f"{MANAGERS}/{SERVICE_MANAGER}/LogServices"
_NODE_LOGS = f"{SYSTEMS}/{{system}}/LogServices"

ROUTES = Routes()


def _service(path: str, ident: str) -> Json:
    return resource(
        path,
        "LogService",
        _NAMES[ident],
        ServiceEnabled=True,
        LogEntryType="Event",
        OverWritePolicy="WrapsWhenFull" if ident != _AUDIT else "NeverOverWrites",
        Status=dict(ENABLED),
        Entries=link(f"{path}/Entries"),
    )


def _entry(path: str, ident: str, severity: str, message: str, created: float | None) -> Json:
    text = plain(message, 2000) or "(no text)"
    found = resource(
        path,
        "LogEntry",
        f"Entry {ident}",
        EntryType="Event",
        Severity=HEALTH[severity],
        Message=text,
        MessageId=_MESSAGE,
        MessageArgs=[text],
    )
    if created is not None:
        found["Created"] = when(created)
    return found


def _entries(path: str, name: str, members: list[Json]) -> Json:
    """The schema wants entries whole within their collection."""
    return {**collection(path, "LogEntry", name, []), "Members": members, "Members@odata.count": len(members)}


# -- of nodes


async def _node(call: Call) -> str:
    return (await call.of(NodeService).node(call.who, call.params["system"])).name


@ROUTES.get(_NODE_LOGS, READ_BMC)
async def node_logs(call: Call) -> Json:
    path = f"{ids.system(await _node(call))}/LogServices"
    call.of(BmcService)  # without the hardware layer there are none
    return collection(path, "LogService", "Logs", [f"{path}/{_EVENTS}", f"{path}/{_SEL}"])


@ROUTES.get(f"{_NODE_LOGS}/{{log}}", READ_BMC)
async def node_log(call: Call) -> Json:
    path, ident = f"{ids.system(await _node(call))}/LogServices", _log(call)
    return _service(f"{path}/{ident}", ident)


@ROUTES.get(f"{_NODE_LOGS}/{{log}}/Entries", READ_BMC)
async def node_entries(call: Call) -> Json:
    node, log = await _node(call), _log(call)
    path = f"{ids.system(node)}/LogServices/{log}/Entries"
    records = await _records(call, node, log)
    return _entries(path, _NAMES[log], [_node_entry(path, ident, record) for ident, record in records.items()])


@ROUTES.get(f"{_NODE_LOGS}/{{log}}/Entries/{{entry}}", READ_BMC)
async def node_entry(call: Call) -> Json:
    node, log = await _node(call), _log(call)
    records = await _records(call, node, log)
    ident = call.params["entry"]
    if ident not in records:
        raise NotFound("no such entry, or not any more", where=ident[:80])
    return _node_entry(f"{ids.system(node)}/LogServices/{log}/Entries", ident, records[ident])


def _node_entry(path: str, ident: str, record: EventView | LogEntryView) -> Json:
    found = _entry(f"{path}/{ident}", ident, record.severity, record.message, record.time)
    if message := plain(record.message_id):
        found |= {"MessageId": message, "MessageArgs": []}
    return found


def _log(call: Call) -> str:
    call.of(BmcService)
    if call.params["log"] not in (_EVENTS, _SEL):
        raise NotFound("no such log", where=call.params["log"][:80], hint=f"{_EVENTS} or {_SEL}")
    return call.params["log"]


async def _records(call: Call, node: str, log: str) -> Mapping[str, EventView] | Mapping[str, LogEntryView]:
    if log == _EVENTS:
        call.who.require(READ_ALERT)
        events = await live.kept(call).get(("events", node, call.who.scope), lambda: _noticed(call, node))
        return {str(event.id): event for event in events}
    try:
        entries = await live.kept(call).get(("sel", node), lambda: _written(call, node))
    except (NotOffered, BadRequest):
        entries = ()
    return ids.named(entries, lambda entry: ids.last_part(entry.id))


async def _noticed(call: Call, node: str) -> Sequence[EventView]:
    return (await call.of(AlertService).events(call.who, node, "", None, _NEWEST, "")).items


async def _written(call: Call, node: str) -> Sequence[LogEntryView]:
    # They come oldest first.
    return (await call.of(BmcService).log(call.who, node, "", _WHOLE))[: -_NEWEST - 1 : -1]


# -- of the service


@ROUTES.get(_MANAGER_LOGS, READ_AUDIT)
async def own_logs(call: Call) -> Json:
    return collection(_MANAGER_LOGS, "LogService", "Logs", [f"{_MANAGER_LOGS}/{_AUDIT}"])


@ROUTES.get(f"{_MANAGER_LOGS}/{_AUDIT}", READ_AUDIT)
async def own_log(call: Call) -> Json:
    return _service(f"{_MANAGER_LOGS}/{_AUDIT}", _AUDIT)


@ROUTES.get(f"{_MANAGER_LOGS}/{_AUDIT}/Entries", READ_AUDIT)
async def own_entries(call: Call) -> Json:
    newest = await call.of(AuditService).audit_latest(call.who, _NEWEST)
    path = f"{_MANAGER_LOGS}/{_AUDIT}/Entries"
    return _entries(path, _NAMES[_AUDIT], [_own_entry(path, record) for record in newest])


@ROUTES.get(f"{_MANAGER_LOGS}/{_AUDIT}/Entries/{{entry}}", READ_AUDIT)
async def own_entry(call: Call) -> Json:
    ident = call.params["entry"]
    if not ident.isascii() or not ident.isdigit() or len(ident) > 15:
        raise NotFound("no such record", where=ident[:80])
    page = await call.of(AuditService).audit(call.who, int(ident), 1, "")
    if not page.items or str(page.items[0].seq) != ident:
        raise NotFound("no such record", where=ident)
    return _own_entry(f"{_MANAGER_LOGS}/{_AUDIT}/Entries", page.items[0])


def _own_entry(path: str, record: AuditEntry) -> Json:
    """Who, when and what; the details of the change are in Strata's own API."""
    text = f"{record.author}: {record.action} {record.target}"
    found = _entry(f"{path}/{record.seq}", str(record.seq), "ok", text, record.time)
    return found | {"Username": plain(record.author)}
