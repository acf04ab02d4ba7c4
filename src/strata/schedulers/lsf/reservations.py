"""Advance reservations of LSF, by ``brsvadd``: pure."""

from __future__ import annotations

import re
import time
from calendar import timegm
from collections.abc import Sequence

import msgspec

from strata.core.errors import BadRequest
from strata.schedulers.gridengine.submission import Environment
from strata.schedulers.lsf.texts import is_away
from strata.schedulers.meanings import given, says
from strata.schedulers.reservations import Reservation, ReservationSpec, identifier

LEAST = 600
"""Seconds: what LSF reserves at least, and in steps of."""
_ROW = re.compile(
    r"(?P<id>\S+)\s+(?P<type>user|group|sys)\s+(?P<user>\S+)\s+(?P<slots>\S+)\s+(?P<hosts>\S+)\s+"
    r"(?P<window>\S+)( \*)?\s*\Z"
)
_ONCE = re.compile(r"(\d+)/(\d+)/(\d+)/(\d+)-(\d+)/(\d+)/(\d+)/(\d+)\Z")
is_denied = says(re.compile(r"permission denied|not (an )?administrator|not authori[sz]ed", re.IGNORECASE))
is_gone = says(
    re.compile(r"no (such )?reservation|reservation .* (is )?not found|no matching reservation", re.IGNORECASE)
)
reserved = given("reservation", "brsvadd", re.compile(r"Reservation \"?(?P<id>[^\s\"]+)\"? is created"))
__all__ = ["is_away", "is_denied", "is_gone", "listing", "remove", "reservations", "reserve", "reserved"]


def reserve(spec: ReservationSpec, environments: Sequence[Environment]) -> tuple[str, ...]:
    """``brsvadd``: whole hosts, of any kind. Times are minutes, and periods tens of them."""
    if spec.seconds < LEAST:
        raise BadRequest("a reservation of LSF must be at least ten minutes long", where="seconds")
    begins = int(spec.start if spec.start is not None else time.time() + 60) // 60 * 60
    form = "%Y:%m:%d:%H:%M"
    times = (time.strftime(form, time.gmtime(begins + after)) for after in (0, spec.seconds))
    queue = ("-q", spec.queue) if spec.queue is not None else ()
    hosts = ("-unit", "host", "-n", str(spec.nodes), "-R", "select[type==any]")
    begin, end = times
    return ("brsvadd", "-N", spec.name, "-u", " ".join(spec.accounts), *hosts, *queue, "-b", begin, "-e", end)


def listing(said: str | None) -> tuple[str, ...]:
    """One question."""
    return ("brsvs", "-w") if said is None else ()


def reservations(said: str, now: float) -> list[Reservation]:
    """A table; further hosts of one stand in lines of their own. Times have no year, and those of one that comes again
    and again no date."""
    found: list[Reservation] = []
    for line in said.splitlines():
        row = _ROW.match(line)
        if row is None:
            host = re.match(r"\s+([A-Za-z0-9_.-]+):\S+\s*\Z", line)
            if host and found:
                last = found.pop()
                found.append(msgspec.structs.replace(last, nodes=(*last.nodes, host[1])))
            continue
        start, end = _window(row["window"], now)
        active = None not in (start, end) and (start or 0.0) <= now < (end or 0.0)
        found.append(
            Reservation(
                id=row["id"],
                name=row["id"],
                state="unknown" if start is None else "active" if active else "waiting",
                start=start,
                end=end,
                accounts=(row["user"],) if row["type"] == "user" else (),
                nodes=(row["hosts"].partition(":")[0],) if ":" in row["hosts"] else (),
            )
        )
    return found


def _window(told: str, now: float) -> tuple[float | None, float | None]:
    said = _ONCE.match(told)
    if said is None:
        return None, None
    numbers = [int(part) for part in said.groups()]
    # The year in which it has not ended yet.
    for year in (time.gmtime(now).tm_year, time.gmtime(now).tm_year + 1):
        start = float(timegm((year, *numbers[:4], 0)))
        end = float(timegm((year + (numbers[4] < numbers[0]), *numbers[4:], 0)))
        if end > now:
            return start, end
    return start, end


def remove(ident: str) -> tuple[str, ...]:
    """``brsvdel``."""
    return ("brsvdel", identifier(ident))
