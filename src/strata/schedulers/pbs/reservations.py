"""Reservations of PBS, by ``pbs_rsub``: pure. A reservation is a queue of its own there, which jobs name."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from strata.core.errors import BadRequest
from strata.schedulers.dates import seconds
from strata.schedulers.gridengine.submission import Environment
from strata.schedulers.meanings import given, says
from strata.schedulers.pbs.texts import is_away, is_denied
from strata.schedulers.reservations import Reservation, ReservationSpec, State, identifier

_STATES: dict[str, State] = {
    "RESV_UNCONFIRMED": "waiting",
    "RESV_CONFIRMED": "waiting",
    "RESV_WAIT": "waiting",
    "RESV_TIME_TO_RUN": "active",
    "RESV_RUNNING": "active",
}
is_gone = says(re.compile(r"unknown (resv|reservation|job) ?id|unknown/illegal|unknown resv", re.IGNORECASE))
reserved = given("reservation", "pbs_rsub", re.compile(r"(?m)^(?P<id>R[0-9]+)(\.\S+)?\s+(UN)?CONFIRMED"))
__all__ = ["is_away", "is_denied", "is_gone", "listing", "remove", "reservations", "reserve", "reserved"]


def reserve(spec: ReservationSpec, environments: Sequence[Environment]) -> tuple[str, ...]:
    """``pbs_rsub``. It answers at once; whether there is room it says later, in its state."""
    if spec.queue is not None:
        raise BadRequest("a reservation of PBS is a queue of its own", where="queue", hint="leave it out")
    begins = time.gmtime(spec.start if spec.start is not None else time.time() + 60)
    command = ["pbs_rsub", "-N", spec.name, "-R", time.strftime("%Y%m%d%H%M.%S", begins), "-D", str(spec.seconds)]
    command += ["-U", ",".join(spec.accounts), "-l", f"select={spec.nodes}:ncpus={spec.cores}"]
    return (*command, "-l", "place=scatter") if spec.nodes > 1 else tuple(command)


def listing(said: str | None) -> tuple[str, ...]:
    """One question."""
    return ("pbs_rstat", "-f") if said is None else ()


def reservations(said: str, now: float) -> list[Reservation]:
    """Blocks of ``name = value``, long values going on in lines that begin with a tab."""
    found = []
    for block in re.split(r"(?m)^Resv ID:\s*", said.replace("\n\t", ""))[1:]:
        ident, _, rest = block.partition("\n")
        told = {name.strip(): value.strip() for name, _, value in (line.partition(" = ") for line in rest.splitlines())}
        users = told.get("Authorized_Users", "")
        found.append(
            Reservation(
                id=ident.strip().partition(".")[0],
                name=told.get("Reserve_Name", ""),
                state=_STATES.get(told.get("reserve_state", ""), "unknown"),
                start=seconds(told.get("reserve_start", "")),
                end=seconds(told.get("reserve_end", "")),
                accounts=tuple(user.partition("@")[0].lstrip("+") for user in users.split(",") if user),
                nodes=tuple(dict.fromkeys(re.findall(r"\(([A-Za-z0-9_.-]+)", told.get("resv_nodes", "")))),
            )
        )
    return found


def remove(ident: str) -> tuple[str, ...]:
    """``pbs_rdel``: jobs in it end, too."""
    return ("pbs_rdel", identifier(ident))
