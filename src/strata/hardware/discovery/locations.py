"""Where machines are: from a mapping file, from the switch ports that their NICs hear, or nowhere. Pure.

The mapping is a CSV: any of ``address,mac,serial,switch,port`` say whom a row is about, any of ``location,name,nid``
what is to be. A row with ``mac,switch,port`` and nothing else says how things are wired. Two rows that say different
things of one machine are no answer: the doubt is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from strata.core.errors import BadRequest
from strata.hardware.discovery.sources import Candidate, CsvRows, address_of, bare, location, mac, nid, node_name, plain
from strata.hardware.inventory.changes import machine_of
from strata.hardware.inventory.records import Component, Machine, Parts, Place, Port

KEYS = ("address", "mac", "serial")
COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "address": address_of,
    "mac": mac,
    "serial": plain,
    "switch": plain,
    "port": plain,
    "location": location,
    "name": node_name,
    "nid": nid,
}


class Said(msgspec.Struct, frozen=True):
    """What one source says of a machine."""

    place: Place
    by: str
    """``mapping line 7``."""


class Locations:
    """All that is said of where machines are and what they are called."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], list[Said]] = {}
        self._wired: dict[str, tuple[str, str]] = {}
        self._expected: dict[str, Candidate] = {}

    def read(self, text: str) -> None:
        """Take in a mapping file; ``BadRequest`` names every line and column that is wrong."""
        table = CsvRows(text, COLUMNS, "mapping")
        places: dict[str, int] = {}
        for line, row in table:
            switched = "switch" in row and "port" in row
            if ("switch" in row) != ("port" in row):
                table.wrong(line, "port" if "switch" in row else "switch", "empty: a switch and its port go together")
            target = Place(location=row.get("location", ""), name=row.get("name", ""), nid=row.get("nid"))
            keys = [(key, _folded(key, row[key])) for key in KEYS if key in row]
            if target == Place():
                if switched and "mac" in row:
                    self._wired[row["mac"]] = _end(row["switch"], row["port"])
                else:
                    table.wrong(line, "", "says neither location, name nor nid")
                continue
            if switched:
                keys.append(("wire", "\0".join(_end(row["switch"], row["port"]))))
            if not keys:
                table.wrong(line, "", "does not say whom it is about: address, mac, serial, or switch and port")
            if target.location and (before := places.setdefault(target.location, line)) != line:
                table.wrong(line, "location", f"{target.location} is also in line {before}")
            for key in keys:
                self._said.setdefault(key, []).append(Said(target, f"mapping line {line}"))
        table.check()

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Take in what came with the addresses themselves."""
        for candidate in candidates:
            target = Place(location=candidate.location, name=candidate.name, nid=candidate.nid)
            if target != Place():
                key = ("address", _folded("address", candidate.address))
                self._said.setdefault(key, []).append(Said(target, "the CSV"))
            if candidate.mac or candidate.serial:
                self._expected[_folded("address", candidate.address)] = candidate

    def wire(self, ports: Sequence[Port], switches: Mapping[str, Component]) -> None:
        """Take in what switches hear from the other ends of their cables. What the mapping says of a MAC stands."""
        for port in ports:
            switch = switches.get(port.owner)
            heard = port.neighbour
            if switch is None or heard is None:
                continue
            for found in {heard.mac, _mac(heard.chassis), _mac(heard.port)} - {""}:
                self._wired.setdefault(found, _end(switch.name, port.name))

    def find(self, address: str, machine: Machine, parts: Parts, *, alone: bool) -> Place:
        """Where a machine is and what it is called. ``alone``: its BMC has no other, so what is said of the
        BMC is said of it."""
        own = {part.id: part for part in parts.components}
        near = [p for p in parts.components if alone or machine_of(p, own, (machine,)) == machine.address]
        macs = {found for part in near for found in part.macs} if alone else set(machine.macs)
        serials = {machine.serial} | ({p.serial for p in near if p.kind in ("chassis", "manager")} if alone else set())
        keys = [("address", _folded("address", machine.address))]
        keys += [("address", _folded("address", address))] if alone else []
        keys += [("mac", found) for found in sorted(macs)]
        keys += [("serial", _folded("serial", found)) for found in sorted(serials) if found]
        ends = {self._wired[found] for found in macs if found in self._wired}
        ids = {part.id for part in near}
        for port in parts.ports:
            heard = port.neighbour
            if heard is not None and port.owner in ids:
                ends |= {_end(name, heard.port) for name in (heard.system, heard.chassis, heard.mac) if name}
        keys += [("wire", "\0".join(end)) for end in sorted(ends)]
        doubt = self._surprise(address, machine, macs) if alone else ""
        if doubt:
            return Place(doubt=doubt)
        return _agreed([said for key in dict.fromkeys(keys) for said in self._said.get(key, ())])

    def _surprise(self, address: str, machine: Machine, macs: set[str]) -> str:
        """Why the machine is not the one that the CSV expects at its address."""
        wanted = self._expected.get(_folded("address", address))
        if wanted is None:
            return ""
        if wanted.serial and machine.serial and wanted.serial.lower() != machine.serial.lower():
            return f"the CSV expects serial {wanted.serial} there, and it is {machine.serial}"
        if wanted.mac and macs and wanted.mac not in macs:
            return f"the CSV expects MAC {wanted.mac} there, and it has {', '.join(sorted(macs)[:4])}"
        return ""


def _agreed(said: Sequence[Said]) -> Place:
    """One place out of all that is said, where nothing contradicts anything."""
    found: dict[str, tuple[object, str]] = {}
    for one in said:
        for what in ("location", "name", "nid"):
            value = getattr(one.place, what)
            if value in ("", None):
                continue
            before, by = found.setdefault(what, (value, one.by))
            if before != value:
                return Place(doubt=f"{by} says {what} {before}, {one.by} says {value}")
    return Place(**{what: value for what, (value, _) in found.items()})  # type: ignore[arg-type]


def _end(switch: str, port: str) -> tuple[str, str]:
    return switch.strip().lower(), port.strip().lower()


def _folded(key: str, value: str) -> str:
    return bare(value) if key == "address" else value.lower()


def _mac(text: str) -> str:
    try:
        return mac(text)
    except BadRequest:
        return ""
