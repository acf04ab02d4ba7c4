"""What nodes used: by node list, job or application, between two times; and their counters. Never a guess: ``time`` is
what was measured of the time asked for, a node without measurements is left out and, if it was asked for, named with
why; ``nid_count`` says how many are in."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.distinct import common
from strata.power.capmc.reply import (
    EBADE,
    EINVAL,
    NO_DATA,
    Refusal,
    Reply,
    aside,
    columns,
    objects,
    of_nids,
    reply,
    said,
)
from strata.power.capmc.request import Ask, moment, nids_of, stamped, those_known, word, written
from strata.power.capmc.service import CapmcMachine
from strata.power.telemetry.columns import Uids

NEAR = 30.0
"""Seconds before a given time in which a counter must have been read."""
LEAST_KNOWN = 0.5
"""The share of the time for which the best known node was measured that another must have been, too, to count: an
energy of a few minutes does not belong beside those of hours."""

_APID = re.compile(r"[!-~]{1,256}")


class _Used(msgspec.Struct, frozen=True):
    nids: npt.NDArray[np.int64]
    joules: npt.NDArray[np.int64]
    seconds: float
    """For which they were measured: the longest of any."""
    missing: dict[int, str]
    """Why others that were asked for are not among them, by NID."""
    unknown: dict[int, str]
    """The same of those that are nobody's."""

    def told(self) -> dict[str, Any]:
        """What every reply says of them."""
        return {"nid_count": len(self.nids), "time": self.seconds, **_errors(self.unknown, self.missing)}


def _errors(unknown: dict[int, str], missing: dict[int, str]) -> dict[str, Any]:
    """What a reply says of nodes that are not in it."""
    if not unknown and not missing:
        return {}
    return {"e": EBADE, "err_msg": said(EBADE), "nids": of_nids(unknown, EINVAL) + of_nids(missing, NO_DATA)}


async def get_node_energy(machine: CapmcMachine, ask: Ask) -> Reply:
    """What each node used."""
    used = await _used(machine, ask)
    pairs = zip(used.nids.tolist(), used.joules.tolist(), strict=True)
    nodes = objects(f'{{"nid":{nid},"energy":{joules}}}' for nid, joules in pairs)
    return columns({"nodes": nodes}, **used.told())


async def get_node_energy_stats(machine: CapmcMachine, ask: Ask) -> Reply:
    """What the nodes used, in short."""
    used = await _used(machine, ask)
    joules, most, least = used.joules, int(used.joules.argmax()), int(used.joules.argmin())
    return reply(
        **used.told(),
        energy_total=int(joules.sum()),
        energy_avg=float(joules.mean()),
        energy_std=float(joules.std()),
        energy_max=[int(used.nids[most]), int(joules[most])],
        energy_min=[int(used.nids[least]), int(joules[least])],
    )


async def _used(machine: CapmcMachine, ask: Ask) -> _Used:
    body, table = ask.body, machine.nodes()
    nids = nids_of(body)
    start, end = (
        _bound(machine, body, "start_time", "BAD_START_TIME"),
        _bound(machine, body, "end_time", "BAD_END_TIME"),
    )
    if start is not None and end is not None and end <= start:
        raise Refusal(
            400,
            f"Inverted time window - start time: {written(start, machine.zone)}, "
            f"end time: {written(end, machine.zone)}",
        )
    job, apid, now = _job(body), _apid(body), machine.now()
    if not (job or apid):
        if start is None or (not len(nids) and "nids" not in body):
            raise Refusal(400, "INVALID_ARGUMENTS")
        at, unknown = those_known(table, nids)
        uids, spans = table.uids[at], [(start, now)]
    else:
        ran = await machine.ran(job=job, apid=apid)
        if ran is None:
            raise Refusal(400, "BAD_JOB_ID" if job else "BAD_APID")
        at, unknown = those_known(table, nids)
        uids = ran.uids if not len(nids) else common(ran.uids, table.uids[at])
        spans = list(ran.spans)
    until = now if end is None else min(end, now)
    spans = [(a if start is None else max(a, start), min(b, until)) for a, b in spans]
    spans = [(a, b) for a, b in spans if b > a]
    joules, known = await _measured(machine, uids, spans)
    longest = float(known.max(initial=0.0))
    if longest <= 0.0:
        begun = spans[0][0] if spans else (start or 0.0)
        raise Refusal(200, f"Error: No data in time window, Start Time: {written(begun, machine.zone)}", e=400, more={})
    at, there = _places(table.uids, uids, sort=True)
    order = np.argsort(table.nids[at])
    numbers, joules, known = table.nids[at][order], joules[there][order], known[there][order]
    enough = known >= LEAST_KNOWN * longest
    missing: dict[int, str] = {}
    if len(nids) or job or apid:
        for nid, seconds in zip(numbers[~enough].tolist(), known[~enough].tolist(), strict=True):
            missing[nid] = "No data in time window" + (f": only {seconds:.0f} s of it" if seconds > 0 else "")
    return _Used(numbers[enough], np.rint(joules[enough]).astype(np.int64), round(longest, 6), missing, unknown)


async def _measured(
    machine: CapmcMachine, uids: Uids, spans: Sequence[tuple[float, float]]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What each node used, and for how many seconds that is known."""
    joules, known = np.zeros(len(uids)), np.zeros(len(uids))
    for start, end in spans:
        found = await machine.energy(uids, start, end)
        at, there = _places(found.uids, uids)
        joules[there] += np.nan_to_num(found.joules[at])
        known[there] += np.nan_to_num(found.known[at]) * (end - start)
    return joules, known


def _places(known: Uids, wanted: Uids, *, sort: bool = False) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each of ``wanted`` that is in ``known`` is there, and which of ``wanted`` those are."""
    order = np.argsort(known, kind="stable") if sort else np.arange(len(known))
    if not len(known):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    there = np.flatnonzero(known[order][at] == wanted)
    return order[at[there]], there


async def get_node_energy_counter(machine: CapmcMachine, ask: Ask) -> Reply:
    """The nodes' counters as they stood at a time, or as they stand now: nodes are not read every second, so what came
    since a reading is reckoned from power."""
    body, table = ask.body, machine.nodes()
    job, apid, nids = _job(body), _apid(body), nids_of(body)
    if sum((bool(job), bool(apid), bool(len(nids)))) != 1:
        raise Refusal(400, "MISSING_NIDS_APID_JOBID" if not (job or apid or len(nids)) else "INVALID_ARGUMENTS")
    when = None if body.get("time") in (None, "") else moment(body["time"], machine.zone, "BAD_START_TIME")
    unknown: dict[int, str] = {}
    if len(nids):
        at, unknown = those_known(table, nids)
    else:
        ran = await machine.ran(job=job, apid=apid)
        if ran is None:
            raise Refusal(400, "BAD_JOB_ID" if job else "BAD_APID")
        at = np.flatnonzero(np.isin(table.uids, ran.uids))
    uids = table.uids[at]
    if when is None:
        values, times, seen = machine.counters(uids)
    else:
        values, times = await _then(machine, uids, when)
        seen = times
    numbers, zone = table.nids[at], machine.zone
    there = np.flatnonzero(~np.isnan(values) & ~np.isnan(times))
    missing = dict.fromkeys(np.delete(numbers, there).tolist(), said(NO_DATA)) if len(nids) else {}
    ages = times[there] - seen[there]
    nodes = await aside(len(there), lambda: _counters(numbers[there], values[there], times[there], ages, zone))
    return columns({"nodes": nodes}, nid_count=len(there), **_errors(unknown, missing))


def _counters(
    nids: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    times: npt.NDArray[np.float64],
    ages: npt.NDArray[np.float64],
    zone: dt.tzinfo,
) -> bytes:
    """``ages``: seconds since each was read; what came since is reckoned from power, and marked so."""
    # Many nodes share a time, or how long ago they were read: each is written once.
    distinct, which = np.unique(times, return_inverse=True)
    stamps = [f',"time":"{stamped(time, zone)}"' for time in distinct.tolist()]
    thousandths, aged = np.unique(np.rint(ages * 1000).astype(np.int64), return_inverse=True)
    ends = [f',"extrapolated":{age / 1000:.3f}}}' if age > 0 else "}" for age in thousandths.tolist()]
    rows = zip(
        nids.tolist(),
        values.astype(np.int64).tolist(),
        which.reshape(-1).tolist(),
        aged.reshape(-1).tolist(),
        strict=True,
    )
    return objects([f'{{"nid":{nid},"energy_ctr":{value}{stamps[time]}{ends[age]}' for nid, value, time, age in rows])


async def _then(
    machine: CapmcMachine, uids: Uids, when: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Each node's last counter at that second."""
    values, times = np.full(len(uids), np.nan), np.full(len(uids), np.nan)
    if machine.series is None:
        return values, times
    order = np.argsort(uids)
    window = await machine.series.window("energy", uids[order], when - NEAR, when + 1.0)
    at, there = _places(window.uids, uids[order])
    for row, time in enumerate(window.times.tolist()):
        seen = np.asarray(window.values[row], dtype=np.float64)[at]
        good = ~np.isnan(seen)
        values[order[there[good]]] = seen[good]
        times[order[there[good]]] = time
    return values, times


def _bound(machine: CapmcMachine, body: Any, key: str, wrong: str) -> float | None:
    text = body.get(key)
    return None if text in (None, "") else moment(text, machine.zone, wrong)


def _job(body: Any) -> str:
    return word(body.get("job_id") or "", "job_id", 256)


def _apid(body: Any) -> str:
    """A number, or the name of a step such as ``4711.0``."""
    value = body.get("apid")
    if value is None or value == "":
        return ""
    if type(value) is int and value >= 0:
        return str(value)
    if isinstance(value, str) and _APID.fullmatch(value):
        return value
    raise Refusal(400, "BAD_APID")
