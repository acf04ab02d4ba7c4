"""The system event log over Redfish."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from strata.core.errors import NotOffered
from strata.hardware.bmc.protocol import CLOCK_AHEAD, LogEntry
from strata.hardware.bmc.redfish.client import ROOT, Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import below, items, path_of, text
from strata.hardware.bmc.redfish.find import action, around, linked, manager, maybe
from strata.hardware.bmc.redfish.sensors import SEVERITIES

NAMES = ("sel", "iml", "eventlog", "event", "log1", "log", "platformlog", "standardlog")
"""Ids of the log that is meant, best first: Dell and most say SEL, HPE IML, OpenBMC EventLog, Supermicro Log1."""

CLOCK_UNSET = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
"""A BMC that lost its clock begins at 1970."""


async def read_log(client: RedfishClient, target: Target, *, after: str, limit: int) -> Sequence[LogEntry]:
    """Oldest first: the first ``limit`` after the entry ``after``; the last ``limit`` where it is not known."""
    if "entries" not in target.paths:
        service = (await client.get(target.address, await _service(client, target))).body
        target.paths["entries"] = (linked(target, service, "Entries", what="log entries"),)
    log = target.paths["entries"][0]
    entries = await client.tree(target.address, log)
    found = [_entry(body, log) for body in items(entries, "Members") if text(body.get("Id"))]
    found.sort(key=_order(found))
    ids = [entry.id for entry in found]
    if after in ids:
        begin = ids.index(after) + 1
        return found[begin : begin + limit]
    return found[-limit:] if limit > 0 else []


async def clear_log(client: RedfishClient, target: Target) -> None:
    """Empty it."""
    service = (await client.get(target.address, await _service(client, target))).body
    where, _ = action(target, service, "#LogService.ClearLog")
    await client.request(target.address, "POST", where, {})


async def _service(client: RedfishClient, target: Target) -> str:
    """The log service that is meant: of the system, its manager or its chassis."""
    if "log" not in target.paths:
        paths = [path async for path in _services(client, target)]
        if not paths:
            raise NotOffered("it keeps no log", node=target.bmc.base)

        def rank(path: str) -> int:
            name = path.rpartition("/")[2].lower()
            return NAMES.index(name) if name in NAMES else len(NAMES)

        target.paths["log"] = (min(paths, key=rank),)
    return target.paths["log"][0]


async def _services(client: RedfishClient, target: Target) -> AsyncIterator[str]:
    near = await around(client, target)
    owners = [path for path in (target.resource, *near.own, *near.shared) if path]
    if target.resource.startswith(f"{ROOT}/Systems/"):
        # Where it is not said which manager answers for the node, what the node itself has is all that is its own.
        with suppress(NotOffered):
            owners.insert(1, await manager(client, target, offering="LogServices"))
    for owner in dict.fromkeys(owners):
        services = path_of(target.bmc, (await maybe(client, target, owner)).get("LogServices"))
        for member in items(await maybe(client, target, services), "Members"):
            if path := path_of(target.bmc, member):
                yield path


def _entry(body: Json, log: str) -> LogEntry:
    severity = SEVERITIES.get(text(body.get("Severity")), "ok")
    origin = below(body, "Links", "OriginOfCondition").get("@odata.id")
    return LogEntry(
        id=text(body.get("Id")),
        time=moment(body.get("Created") or body.get("EventTimestamp")),
        severity=severity,
        message=text(body.get("Message"), 2000) or text(body.get("Name")),
        message_id=text(body.get("MessageId")),
        sensor=text(body.get("SensorType")) or text(origin).rpartition("/")[2],
        origin=text(origin),
        log=log,
    )


def moment(value: object) -> float | None:
    """Unix time of a Redfish timestamp; None for what is none, or is from before the BMC had a clock."""
    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if when is None:
        return None
    found = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    return found if found >= CLOCK_UNSET else None


def _order(entries: Sequence[LogEntry]) -> Callable[[LogEntry], tuple[float, int, str]]:
    """By time where all have one that can be, else by number, else by id.

    An entry from the future, written while the BMC's clock was wrong, would be the newest for years, and
    nothing after it would be news: it counts as old where there are no numbers to go by.
    """
    now = time.time() + CLOCK_AHEAD
    timed = all(entry.time is not None for entry in entries)
    if timed and any(entry.time is not None and entry.time > now for entry in entries):
        numbers = {_number(entry.id) for entry in entries}
        timed = len(numbers) < len(entries)

    def key(entry: LogEntry) -> tuple[float, int, str]:
        at = entry.time if timed and entry.time is not None and entry.time <= now else 0.0
        return at, _number(entry.id), entry.id

    return key


def _number(name: str) -> int:
    digits = name.rpartition("-")[2] if "-" in name else name
    return int(digits) if digits.isdecimal() and len(digits) < 19 else 0
