"""Puts the graph of cables together from what both ends of each cable say, and a file that says how it should be. Pure.

A *claim* is one side's word: the port of a switch or NIC, and what is at the other end. Claims of the two ends that
agree are one link. Claims that cannot both be true are a conflict and no link: nobody guesses where a cable goes.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from strata.core.errors import BadRequest
from strata.hardware.fabric.topology import End, Link, Source, Switch, Topology
from strata.hardware.inventory.records import Component, Found, Machine, Neighbour, Port

_FIELDS = ("switch", "port", "node", "nic")
_MOST = 1_000_000


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One cable. ``node`` may also be a switch, and ``nic`` its port."""

    switch: str
    port: str
    node: str
    nic: str = ""


def read_rows(text: str, source: str) -> list[Row]:
    """The cables that a file declares; ``BadRequest`` names the first line that is wrong."""
    found = _yaml(text, source) if text.lstrip().startswith("-") else _csv(text, source)
    seen: dict[tuple[str, str], str] = {}
    rows = []
    for where, values in found:
        row = Row(**{field: _text(values.get(field), field, where) for field in _FIELDS})
        end = (row.switch.lower(), row.port.lower())
        if end in seen:
            raise BadRequest(f"{row.switch}:{row.port} is also at {seen[end]}", where=where)
        seen[end] = where
        rows.append(row)
        if len(rows) > _MOST:
            raise BadRequest(f"more than {_MOST} cables", where=source)
    return rows


def _csv(text: str, source: str) -> list[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text))
    header = [name.strip().lower() for name in reader.fieldnames or ()]
    if not {"switch", "port", "node"} <= set(header) or not set(header) <= set(_FIELDS):
        raise BadRequest(
            f"the header is {','.join(header)[:80] or 'missing'}", where=source, hint="it must be switch,port,node,nic"
        )
    reader.fieldnames = header
    return [(f"{source} line {reader.line_num}", dict(row)) for row in reader if any(row.values())]


def _yaml(text: str, source: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        items = msgspec.yaml.decode(text)
    except msgspec.DecodeError as wrong:
        raise BadRequest(f"not YAML: {str(wrong)[:200]}", where=source) from None
    found = []
    for number, item in enumerate(items if isinstance(items, list) else [], 1):
        if not isinstance(item, dict) or not set(item) <= set(_FIELDS):
            raise BadRequest("not a cable", where=f"{source} item {number}", hint="give switch, port, node and nic")
        found.append((f"{source} item {number}", item))
    return found


def _text(value: object, field: str, where: str) -> str:
    text = str(value).strip() if isinstance(value, str | int) else ""
    if (not text and field != "nic") or len(text) > _LONGEST or not text.isprintable():
        raise BadRequest(f"{field} is missing or no plain text of up to {_LONGEST} characters", where=where)
    return text


_LONGEST = 256
_NOT_HEX = re.compile(r"[^0-9a-f]")


def build(founds: Iterable[Found], node_of: Callable[[str], str], rows: Sequence[Row] = ()) -> Topology:
    """The graph. ``node_of``: the name of the node whose ``bmc`` is at an address; empty: none's."""
    known = list(founds)
    names = _Names(known, node_of, rows)
    links = _Links(names)
    for found in known:
        for claim in names.heard(found):
            links.hear(claim)
    links.join()
    for row in rows:
        links.expect(row)
    return Topology(names.switches, links.all, sorted(set(links.conflicts)))


class _Claim(NamedTuple):
    """One side's word."""

    mine: End
    other: End
    by: str
    port: Port | None
    source: Source


class _Names:
    """Who is who: every name, serial and MAC that the other end of a cable may call somebody by."""

    def __init__(self, founds: Sequence[Found], node_of: Callable[[str], str], rows: Sequence[Row]) -> None:
        self.switches: dict[str, Switch] = {}
        self.macs: dict[str, End] = {}
        self._node_of = node_of
        self._switch_ids: dict[str, str] = {}
        self._ports: dict[tuple[str, str], str] = {}
        self._nodes: dict[str, str] = {}
        self._ends: dict[tuple[str, str], End] = {}
        """(BMC, id of a port) → the end that it is."""
        for found in founds:
            self._learn(found)
        for row in rows:
            self.switch(row.switch, create=True)

    def switch(self, text: str, *, create: bool = False) -> str:
        """The id of the switch that is called so; empty: none is. ``create``: there is one, then."""
        found = self._switch_ids.get(text.lower(), "")
        if not found and create:
            self.switches[text] = Switch(id=text, name=text, fabric="", location="", model="", ports=0)
            found = self._switch_ids[text.lower()] = text
        return found

    def port(self, switch: str, text: str) -> End:
        """A switch's port, whatever it is called."""
        return End("switch", switch, self._ports.get((switch, text.lower()), text))

    def has_port(self, end: End) -> bool:
        """Whether the switch itself has told of this port."""
        return (end.owner, end.port.lower()) in self._ports

    def node(self, text: str) -> str:
        """The node that is called so; empty: none is."""
        return self._nodes.get(text.lower(), "")

    def heard(self, found: Found) -> Iterator[_Claim]:
        """What a BMC's ports say of the other ends."""
        for port in found.ports:
            mine = self._ends.get((found.address, port.id))
            if mine is None:
                continue
            for target in port.connected:
                other = self._ends.get((found.address, target))
                if other is not None:
                    yield _Claim(mine, other, mine.owner, port, "redfish")
            if port.neighbour is not None:
                other = self._resolve(port.neighbour, mine)
                if other is not None and other.owner != mine.owner:
                    yield _Claim(mine, other, mine.owner, port, "lldp")

    def _resolve(self, heard: Neighbour, mine: End) -> End | None:
        for text in (heard.mac, heard.port, heard.chassis):
            end = self.macs.get(_mac(text))
            if end is not None:
                return end
        for text in (heard.system, heard.chassis):
            if text and (switch := self.switch(text)):
                return self.port(switch, heard.port)
        name = self.node(heard.system) if heard.system else ""
        if name:
            return End("node", name, heard.port or "?")
        if mine.kind == "node" and heard.system.isprintable() and 0 < len(heard.system) <= _LONGEST:
            # A NIC hears a name that is no node's: a switch that does not speak Redfish.
            return self.port(self.switch(heard.system, create=True), heard.port)
        return None

    def _learn(self, found: Found) -> None:
        parts = {part.id: part for part in found.components}
        for part in found.components:
            if part.kind == "switch":
                self._learn_switch(found, part, [port for port in found.ports if port.owner == part.id])
        for machine in found.machines:
            name = self._node_of(machine.address)
            if name:
                for text in filter(None, (name, machine.name, machine.serial)):
                    self._nodes.setdefault(text.lower(), name)
                for mac in machine.macs:
                    self.macs.setdefault(_mac(mac), End("node", name, mac))
                self._learn_nics(found, machine, name, parts)

    def _learn_switch(self, found: Found, part: Component, ports: Sequence[Port]) -> None:
        name = part.name or part.id.rpartition("/")[2]
        ident = name if name not in self.switches else f"{name}@{found.address}"
        if ident != name and part.serial and self._switch_ids.get(part.serial.lower()) == name:
            ident = name  # the same one, told of by its own BMC and by the manager of the fabric
        else:
            self.switches[ident] = Switch(
                id=ident, name=name, fabric=found.fabric, location=part.slot, model=part.model, ports=len(ports)
            )
        for text in filter(None, (name, part.serial, *part.macs)):
            self._switch_ids.setdefault(text.lower(), ident)
        for port in ports:
            label = port.name or port.id.rpartition("/")[2]
            for text in filter(None, (label, port.id.rpartition("/")[2], port.mac)):
                self._ports.setdefault((ident, text.lower()), label)
            self._ends[found.address, port.id] = End("switch", ident, label)
            if port.mac:
                self.macs[_mac(port.mac)] = End("switch", ident, label)

    def _learn_nics(self, found: Found, machine: Machine, name: str, parts: dict[str, Component]) -> None:
        alone = len(found.machines) == 1
        nics = {p.id: p for p in found.components if p.kind == "nic" and (alone or _within(p, machine.id, parts))}
        for nic in nics.values():
            for mac in nic.macs:
                self.macs[_mac(mac)] = End("node", name, nic.name or mac)
        ports = Counter(port.owner for port in found.ports)
        for port in found.ports:
            owner = nics.get(port.owner)
            if owner is not None:
                label = owner.name or owner.id.rpartition("/")[2]
                end = End("node", name, f"{label}/{port.name}" if ports[port.owner] > 1 else label)
                self._ends[found.address, port.id] = end
                if port.mac:
                    self.macs[_mac(port.mac)] = end


class _Links:
    """Who says what, and what of it is true together."""

    def __init__(self, names: _Names) -> None:
        self.conflicts: list[str] = []
        self.all: list[Link] = []
        self._names = names
        self._said: dict[End, list[_Claim]] = {}
        self._cabled: dict[End, End] = {}
        self._nics = set(names.macs.values())

    def hear(self, claim: _Claim) -> None:
        """Take in one side's word."""
        self._said.setdefault(claim.mine, []).append(claim)
        flipped = _Claim(claim.other, claim.mine, claim.by, claim.port, claim.source)
        self._said.setdefault(claim.other, []).append(flipped)

    def join(self) -> None:
        """Make links of what agrees, and conflicts of what does not."""
        broken = set()
        for end, claims in self._said.items():
            different = self._different(claims)
            if len(different) > 1:
                broken.add(end)
                words = " and to ".join(f"{claim.other} ({claim.by} says so)" for claim in different)
                self.conflicts.append(f"{end} is cabled to {words}")
        # What its own side has told of goes first: the other names are found to be the same end on the way.
        for end in sorted(self._said, key=lambda end: (not self._is_firm(end), end.kind != "switch", end)):
            claims = self._said[end]
            taken = end in broken or any(claim.other in broken or claim.other in self._cabled for claim in claims)
            if end not in self._cabled and not taken:
                best = max(claims, key=lambda claim: self._is_firm(claim.other))
                self._add(best, [claim.other for claim in claims])

    def expect(self, row: Row) -> None:
        """A line of the topology file: a link, unless something else is heard."""
        mine = self._names.port(self._names.switch(row.switch), row.port)
        switch = self._names.switch(row.node)
        other = (
            self._names.port(switch, row.nic)
            if switch
            else End("node", self._names.node(row.node) or row.node, row.nic or "?")
        )
        heard = self._cabled.get(mine)
        if heard is not None:
            if heard.owner != other.owner or (switch and row.nic and heard.port != other.port):
                self.conflicts.append(f"{mine}: the topology file says {other}, {heard} is heard")
        elif mine in self._said:
            return  # a conflict, reported already
        else:
            self._add(_Claim(mine, other, "the topology file", None, "file"), [other])

    def _add(self, claim: _Claim, others: Sequence[End]) -> None:
        port = claim.port
        a, b = (claim.mine, claim.other) if claim.mine.kind == "switch" else (claim.other, claim.mine)
        link = Link(
            a=a, b=b, up=port.up if port else None, speed_gbps=port.speed_gbps if port else None, source=claim.source
        )
        self.all.append(link)
        self._cabled[claim.mine] = claim.other
        for other in (claim.other, *others):
            self._cabled.setdefault(other, claim.mine)

    def _different(self, claims: Sequence[_Claim]) -> list[_Claim]:
        found: list[_Claim] = []
        for claim in claims:
            if not any(self._same(claim.other, other.other) for other in found):
                found.append(claim)
        return found

    def _same(self, a: End, b: End) -> bool:
        """Whether two words can mean one end: a NIC has several names, and so has a port of which nobody has told."""
        if (a.kind, a.owner) != (b.kind, b.owner):
            return False
        return a.kind == "node" or a.port == b.port or not (self._is_firm(a) and self._is_firm(b))

    def _is_firm(self, end: End) -> bool:
        return end in self._nics if end.kind == "node" else self._names.has_port(end)


def _within(part: Component, machine: str, parts: dict[str, Component]) -> bool:
    """Whether a part is in a machine, by what it says that it is in (at most so deep as makes sense)."""
    for _ in range(16):
        if part.id == machine or part.parent == machine or part.id.startswith(f"{machine}/"):
            return True
        above = parts.get(part.parent)
        if above is None:
            return False
        part = above
    return False


def _mac(text: str) -> str:
    """A MAC in one form; empty: it is none."""
    if len(text) not in (12, 14, 17):
        return ""
    digits = _NOT_HEX.sub("", text.lower())
    return digits if len(digits) == 12 else ""
