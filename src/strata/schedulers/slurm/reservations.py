"""Reservations of Slurm, by ``scontrol``: pure."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from strata.schedulers.dates import seconds
from strata.schedulers.gridengine.submission import Environment
from strata.schedulers.meanings import says
from strata.schedulers.reservations import Reservation, ReservationSpec, State, identifier, whole_minutes
from strata.schedulers.slurm.replies import names
from strata.schedulers.slurm.submission import is_away

_FORM = "%Y-%m-%dT%H:%M:%S"
_PAIR = re.compile(r"(\w+)=(\S*)")
_STATES: dict[str, State] = {"ACTIVE": "active", "INACTIVE": "waiting"}
is_denied = says(re.compile(r"access/permission denied|permission denied|not permitted", re.IGNORECASE))
is_gone = says(re.compile(r"reservation name is invalid|requested reservation is invalid|not found", re.IGNORECASE))
__all__ = ["is_away", "is_denied", "is_gone", "listing", "remove", "reservations", "reserve", "reserved"]


def reserve(spec: ReservationSpec, environments: Sequence[Environment]) -> tuple[str, ...]:
    """``scontrol create reservation``; whole nodes."""
    begins = "now" if spec.start is None else time.strftime(_FORM, time.gmtime(spec.start))
    command = [
        *("scontrol", "create", "reservation", f"ReservationName={spec.name}", f"StartTime={begins}"),
        *(f"Duration={whole_minutes(spec)}", f"NodeCnt={spec.nodes}", f"Users={','.join(spec.accounts)}"),
    ]
    return (*command, f"PartitionName={spec.queue}") if spec.queue is not None else tuple(command)


def reserved(said: str) -> str:
    """``Reservation created: NAME``."""
    return said.strip().rpartition(": ")[2]


def listing(said: str | None) -> tuple[str, ...]:
    """One question."""
    return ("scontrol", "--oneliner", "show", "reservation") if said is None else ()


def reservations(said: str, now: float) -> list[Reservation]:
    """A line each."""
    found = []
    for line in said.splitlines():
        told = dict(_PAIR.findall(line))
        if "ReservationName" in told:
            accounts, nodes = told.get("Users", ""), told.get("Nodes", "")
            found.append(
                Reservation(
                    id=told["ReservationName"],
                    name=told["ReservationName"],
                    state=_STATES.get(told.get("State", ""), "unknown"),
                    start=seconds(told.get("StartTime", ""), _FORM),
                    end=seconds(told.get("EndTime", ""), _FORM),
                    accounts=tuple(accounts.split(",")) if accounts not in ("", "(null)") else (),
                    nodes=names("" if nodes == "(null)" else nodes),
                )
            )
    return found


def remove(ident: str) -> tuple[str, ...]:
    """``scontrol delete``; refused by Slurm while jobs are in it."""
    return ("scontrol", "delete", f"ReservationName={identifier(ident)}")
