"""Advance reservations of Grid Engine, by ``qrsub``: pure."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from xml.etree import ElementTree

from strata.schedulers.dates import seconds
from strata.schedulers.gridengine.replies import tree
from strata.schedulers.gridengine.submission import Environment, is_away, is_denied, slots_of
from strata.schedulers.meanings import given, says
from strata.schedulers.reservations import Reservation, ReservationSpec, State, identifier

_FORM = "%Y-%m-%dT%H:%M:%S"
_STATES: dict[str, State] = {"w": "waiting", "W": "waiting", "r": "active", "E": "active"}
is_gone = says(re.compile(r"does not exist|not found"))
reserved = given("reservation", "qrsub", re.compile(r"advance reservation (?P<id>[0-9]+) has been granted"))
__all__ = ["is_away", "is_denied", "is_gone", "listing", "remove", "reservations", "reserve", "reserved"]


def reserve(spec: ReservationSpec, environments: Sequence[Environment]) -> tuple[str, ...]:
    """``qrsub``; slots, spread by a parallel environment."""
    begins = ("-a", time.strftime("%Y%m%d%H%M.%S", time.gmtime(spec.start))) if spec.start is not None else ()
    queue = ("-q", spec.queue) if spec.queue is not None else ()
    spread = slots_of(spec.nodes, spec.nodes * spec.cores, list(environments))
    return ("qrsub", *begins, "-d", str(spec.seconds), "-N", spec.name, "-u", ",".join(spec.accounts), *spread, *queue)


def listing(said: str | None) -> tuple[str, ...]:
    """All of them, then who may use each."""
    if said is None:
        return ("qrstat", "-u", "*", "-xml")
    found = [one.findtext("id", "") for one in _read(said)]
    return ("qrstat", "-ar", ",".join(found), "-xml") if found else ()


def reservations(said: str, now: float) -> list[Reservation]:
    """From the longer of both answers."""
    return [
        Reservation(
            id=one.findtext("id", ""),
            name=one.findtext("name", ""),
            state=_STATES.get(one.findtext("state", ""), "unknown"),
            start=seconds(one.findtext("start_time", ""), _FORM),
            end=seconds(one.findtext("end_time", ""), _FORM),
            accounts=tuple(acl.get("user", "") for acl in one.iter("acl")),
            nodes=tuple(
                dict.fromkeys(given.get("queue_instance", "").rpartition("@")[2] for given in one.iter("granted_slots"))
            ),
        )
        for one in _read(said)
    ]


def remove(ident: str) -> tuple[str, ...]:
    """``qrdel``: jobs in it end, too."""
    return ("qrdel", identifier(ident))


def _read(said: str) -> list[ElementTree.Element]:
    return list(tree("qrstat", said).iter("ar_summary")) if said.strip() else []
