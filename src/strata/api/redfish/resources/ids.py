"""What things are called in URIs: paths of our resources, identifiers made of names that others chose, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar
from urllib.parse import unquote

from strata.api.redfish.protocol.route import ROOT

SYSTEMS = f"{ROOT}/Systems"
CHASSIS = f"{ROOT}/Chassis"
MANAGERS = f"{ROOT}/Managers"
FABRICS = f"{ROOT}/Fabrics"
TELEMETRY = f"{ROOT}/TelemetryService"
UPDATE = f"{ROOT}/UpdateService"
AGGREGATION = f"{ROOT}/AggregationService"
AGGREGATES = f"{AGGREGATION}/Aggregates"
POWER_EQUIPMENT = f"{ROOT}/PowerEquipment"

SERVICE_MANAGER = "strata"
"""The manager that is Strata itself. Those of BMCs begin with ``bmc-``, so that none is taken for it."""

_NODE = "node-"
"""Begins the id of a node's own enclosure: a node may be called like a cabinet."""
_BMC = "bmc-"
_ODD = re.compile(r"[^A-Za-z0-9.-]")
_ESCAPE = re.compile(r"_([0-9A-Fa-f]{2})")
_LONGEST = 64
_DEEPEST = 512

_Thing = TypeVar("_Thing")


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


_Part = TypeVar("_Part", bound=_HasId)


def system(node: str) -> str:
    return f"{SYSTEMS}/{node}"


def enclosure(node: str) -> str:
    return f"{CHASSIS}/{_NODE}{node}"


def node_of_enclosure(ident: str) -> str:
    """The node whose enclosure this is; empty: it is no node's (but a cabinet, a chassis, a slot)."""
    return ident.removeprefix(_NODE) if ident.startswith(_NODE) else ""


def place(xname: str) -> str:
    """The Chassis that is a cabinet, a chassis or a slot."""
    return f"{CHASSIS}/{xname}"


def manager(address: str) -> str:
    """The Manager that is a discovered BMC."""
    return f"{MANAGERS}/{bmc_id(address)}"


def bmc_id(address: str) -> str:
    """An id for the BMC at an address, from which the address can be had again."""
    return _BMC + _ODD.sub(lambda found: "".join(f"_{byte:02X}" for byte in found[0].encode()), address)


def address_of(ident: str) -> str:
    """The address in such an id; empty: it is none."""
    if not ident.startswith(_BMC) or len(ident) > _DEEPEST:
        return ""
    return unquote(_ESCAPE.sub(r"%\1", ident.removeprefix(_BMC)))


def aggregate(group: str) -> str:
    """The Aggregate that is a group."""
    return f"{AGGREGATES}/{group}"


def named(things: Iterable[_Thing], name: Callable[[_Thing], str]) -> dict[str, _Thing]:
    """Things by ids made of their names: plain characters only, and a number where two would be alike. The same
    things in the same order always get the same ids."""
    found: dict[str, _Thing] = {}
    for thing in things:
        base = _plain(name(thing))
        ident, number = base, 1
        while ident in found:
            number += 1
            ident = f"{base}-{number}"
        found[ident] = thing
    return found


def by_last_part(parts: Iterable[_Part]) -> dict[str, _Part]:
    """Parts by how their BMC calls them."""
    return named(parts, lambda part: last_part(part.id))


def last_part(path: str) -> str:
    """The end of a path: how a BMC calls one of its parts."""
    return path.rstrip("/").rpartition("/")[2] or path


def _plain(name: str) -> str:
    return _ODD.sub("_", name.strip())[:_LONGEST].strip("_.") or "unnamed"
