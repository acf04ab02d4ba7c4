"""The system as a whole: its limits, what it draws, who is where; and whether this service is well."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.power.capmc.reply import Refusal, Reply, aside, columns, integers, objects, quoted, reply
from strata.power.capmc.request import Ask, chosen, moment, nids_of, written
from strata.power.capmc.service import CapmcMachine
from strata.power.series.records import Total
from strata.power.telemetry.columns import Uids

SHORTEST, LONGEST, DEFAULT = 2, 3600, 10
"""Seconds of a window."""
WIDEN = 120.0
"""Seconds that are looked back where a short window up to now has no samples: nodes are not read every second."""
WHOLE = 0.9
"""The share of the most nodes ever in a sum that must be in one for it to be the system's power."""

_CABINET = re.compile(r"x(\d+)|c(\d+)-(\d+)")


async def get_system_parameters(machine: CapmcMachine, ask: Ask) -> Reply:
    return reply(**msgspec.structs.asdict(machine.parameters))


async def get_system_power(machine: CapmcMachine, ask: Ask) -> Reply:
    """What the system drew."""
    begin, seconds = _window(machine, ask)
    found, begin, seconds = await _drawn(machine, machine.nodes().uids, begin, seconds, ask)
    if found is None:
        raise Refusal(200, "NO_DATA", e=400)
    return reply(
        window_len=seconds,
        start_time=written(begin, machine.zone),
        avg=round(float(found.mean())),
        max=round(float(found.max())),
        min=round(float(found.min())),
    )


async def get_system_power_details(machine: CapmcMachine, ask: Ask) -> Reply:
    """What each cabinet drew: one question for all of them."""
    begin, seconds = _window(machine, ask)
    uids = np.sort(machine.nodes().uids)
    names = np.array(machine.cabinets(uids))
    places, groups = np.unique(names, return_inverse=True)
    found = await _by_cabinet(machine, uids, groups, begin, seconds)
    if not found and _is_now(ask) and seconds < WIDEN:
        begin, seconds = begin + seconds - WIDEN, int(WIDEN)
        found = await _by_cabinet(machine, uids, groups, begin, seconds)
    cabinets: list[dict[str, Any]] = []
    for group, sums in found.items():
        if places[group]:
            x, y = _place(str(places[group]))
            low, high = round(float(sums.min())), round(float(sums.max()))
            cabinets.append({"x": x, "y": y, "avg": float(sums.mean()), "max": high, "min": low})
    if not cabinets:
        raise Refusal(200, "NO_DATA", e=400)
    cabinets.sort(key=lambda one: (one["x"], one["y"]))
    return reply(window_len=seconds, start_time=written(begin, machine.zone), cabinets=cabinets)


async def _by_cabinet(
    machine: CapmcMachine, uids: Uids, groups: npt.NDArray[np.int64], begin: float, seconds: int
) -> dict[int, npt.NDArray[np.float64]]:
    """The sums of each group that has any."""
    if machine.series is None or not len(uids):
        return {}
    told = await machine.series.totals("power", uids, groups, begin, begin + seconds)
    found = {}
    for column, group in enumerate(told.groups.tolist()):
        there = told.counts[:, column] > 0
        part = Total(times=told.times[there], sums=told.sums[there, column], counts=told.counts[there, column])
        sums = _whole(part)
        if sums is not None:
            found[group] = sums
    return found


def _place(name: str) -> tuple[int, int]:
    """A cabinet's coordinates: both in the old names, the number alone in the new."""
    found = _CABINET.match(name)
    if not found:
        return 0, 0
    return (int(found[1]), 0) if found[1] else (int(found[2]), int(found[3]))


def _window(machine: CapmcMachine, ask: Ask) -> tuple[float, int]:
    length = ask.body.get("window_len", DEFAULT)
    if isinstance(length, str) and length.isdecimal():
        length = int(length)
    if type(length) is not int:
        raise Refusal(400, "BAD_WINDOW_LEN")
    if not SHORTEST <= length <= LONGEST:
        raise Refusal(400, "WINDOW_LEN_OUT_OF_RANGE")
    if _is_now(ask):
        return machine.now() - length, length
    return moment(ask.body["start_time"], machine.zone, "BAD_START_TIME"), length


def _is_now(ask: Ask) -> bool:
    return ask.body.get("start_time") in (None, "", "now", "CURRENT_TIMESTAMP")


async def _drawn(
    machine: CapmcMachine, uids: Uids, begin: float, seconds: int, ask: Ask
) -> tuple[npt.NDArray[np.float64] | None, float, int]:
    """The sums of a window, and the window that they are of: a longer one where the one asked for has none."""
    if machine.series is None or not len(uids):
        return None, begin, seconds
    order = np.sort(uids)
    found = _whole(await machine.series.total("power", order, begin, begin + seconds))
    if found is None and _is_now(ask) and seconds < WIDEN:
        begin, seconds = begin + seconds - WIDEN, int(WIDEN)
        found = _whole(await machine.series.total("power", order, begin, begin + seconds))
    return found, begin, seconds


def _whole(total: Total) -> npt.NDArray[np.float64] | None:
    """The sums that are over (nearly) everybody who is ever in one: a part is not the system."""
    if not len(total.counts) or not total.counts.max():
        return None
    enough = total.counts >= math.ceil(WHOLE * int(total.counts.max()))
    return np.asarray(total.sums[enough], dtype=np.float64)


async def get_nid_map(machine: CapmcMachine, ask: Ask) -> Reply:
    """Which node has which NID."""
    table = machine.nodes()
    at = chosen(table, nids_of(ask.body))
    key = "xname" if ask.shasta else "cname"
    places = machine.places(table.uids[at])

    def write() -> bytes:
        rows = zip(table.nids[at].tolist(), places, table.compute[at].tolist(), strict=True)
        return objects(
            f'{{"nid":{nid},"{key}":{quoted(place)},"role":"{"compute" if compute else "service"}"}}'
            for nid, place, compute in rows
        )

    return columns({"nids": await aside(len(at), write)})


async def get_partition_map(machine: CapmcMachine, ask: Ask) -> Reply:
    """Which nodes are in which part of the machine: it has one part, of all of them."""
    nids = integers(machine.nodes().nids.tolist())
    return columns({"partitions": b'[{"partition":0,"nids":%s}]' % nids})


async def health(machine: CapmcMachine, ask: Ask) -> Reply:
    """Whether requests can be answered."""
    count = len(machine.nodes().nids)
    readiness = f"Not ready: {machine.trouble}" if machine.trouble else "Ready"
    return reply(readiness=readiness, vault="not used", hsm=f"{count} nodes")
