"""Makes nodes of the machines that were found. What is not clear is refused and listed, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from strata.core.errors import BadRequest, StrataError
from strata.core.node import Interface, Node, check_label, check_node_name
from strata.fleet.nodes.interfaces import MOST, is_mac
from strata.fleet.nodes.records import InterfaceSpec, NodeSpec
from strata.fleet.registry.edits import Edits
from strata.hardware.discovery.records import NotAdopted
from strata.hardware.discovery.sources import Candidate, bare
from strata.hardware.inventory.nodes import SERIAL, NodesByBmc
from strata.hardware.inventory.records import Known, Machine, Place
from strata.hardware.inventory.store import Inventory

NOT_NODES = frozenset(("DPU",))
"""Types of systems that live inside other machines."""

FIELDS = ("number", "serial", "location", "hostname")
_FIELD = re.compile(r"\{([a-z]+)(:0?[0-9]{1,2})?\}")


def check_template(template: str) -> None:
    """Raise ``BadRequest`` unless names can be made from it."""
    where = f"name {template!r}"
    used = [found[1] for found in _FIELD.finditer(template)]
    wrong = [name for name in used if name not in FIELDS]
    bare = _FIELD.sub("1", template)
    if wrong or "{" in bare or "}" in bare or not used:
        fields = ", ".join(f"{{{name}}}" for name in FIELDS)
        raise BadRequest("not a template for names", where=where, hint=f"it may hold {fields}, {{number:05}}")
    check_node_name(bare)


class Adopted(msgspec.Struct):
    """What became of some machines."""

    created: int = 0
    updated: int = 0
    refused: list[NotAdopted] = msgspec.field(default_factory=list)

    def refuse(self, machine: Machine, why: str) -> None:
        """Note a machine that is no node."""
        self.refused.append(NotAdopted(machine=machine.address, why=why))


class Adopter:
    """Makes nodes for one author, named by one template."""

    def __init__(self, edits: Edits, nodes: NodesByBmc, inventory: Inventory, author: str, template: str) -> None:
        self._edits = edits
        self._nodes = nodes
        self._inventory = inventory
        self._author = author
        self._template = template
        self._number = 0
        self._macs: dict[str, str] = {}

    async def adopt(self, machines: Sequence[tuple[Known, Machine, Place]], given: Mapping[str, Candidate]) -> Adopted:
        """Create or update the nodes of some machines; ``given``: what came with addresses (without
        what they speak)."""
        result = Adopted()
        wanted: list[tuple[Machine, NodeSpec]] = []
        names: set[str] = set()
        for known, machine, place in machines:
            if machine.type in NOT_NODES:
                continue
            if why := self._doubt(known, machine, place):
                result.refuse(machine, why)
                continue
            candidate = given.get(bare(machine.address))
            name = self._nodes.of_machine(known, machine) or self._nodes.with_serial(machine.serial)
            if name:
                await self._update(self._edits.registry.node(name), known, machine, place, result)
                continue
            try:
                spec = self._spec(machine, place, candidate, names)
                names.add(spec.name)
                wanted.append((machine, spec))
            except BadRequest as wrong:
                result.refuse(machine, str(wrong))
        if wanted:
            outcomes = await self._edits.create_nodes([spec for _, spec in wanted], self._author)
            for (machine, _), outcome in zip(wanted, outcomes, strict=True):
                if outcome.ok:
                    result.created += 1
                else:
                    result.refuse(machine, outcome.error)
        return result

    def _doubt(self, known: Known, machine: Machine, place: Place) -> str:
        if place.doubt:
            return place.doubt
        if known.stranger is not None:
            return f"another BMC answers there now (strata hardware discover --accept {known.address})"
        for mark, value in (("serial", machine.serial), ("uuid", machine.uuid)):
            holders = self._inventory.holders(mark, value) if value else ()  # type: ignore[arg-type]
            if len(holders) > 1:
                return f"{mark} {value} is also claimed by {next(h for h in holders if h != known.address)}"
        return ""

    async def _update(self, node: Node, known: Known, machine: Machine, place: Place, result: Adopted) -> None:
        labels = dict(node.labels)
        if machine.serial and _is_label(SERIAL, machine.serial):
            before = labels.setdefault(SERIAL, machine.serial)
            if before != machine.serial:
                result.refuse(machine, f"node {node.name} is labelled with serial {before}, this is {machine.serial}")
                return
        if place.name and place.name != node.name:
            result.refuse(machine, f"is node {node.name} already, but the file calls it {place.name}")
            return
        own = {machine.address, known.address, known.address + machine.id}
        bmc = node.bmc if node.bmc.rstrip("/") in own else machine.address
        if bmc != node.bmc and node.bmc and self._inventory.get(node.bmc) is not None:
            result.refuse(machine, f"has the serial of node {node.name}, whose BMC is {node.bmc}")
            return
        changed = msgspec.structs.replace(
            node,
            bmc=bmc,
            labels=labels,
            location=place.location or node.location,
            nid=place.nid if place.nid is not None else node.nid,
            interfaces=node.interfaces or self._interfaces(machine),
        )
        if changed == node:
            return
        try:
            await self._edits.replace_node(node.name, changed, self._author)
            result.updated += 1
        except StrataError as wrong:
            result.refuse(machine, str(wrong))

    def _spec(self, machine: Machine, place: Place, candidate: Candidate | None, taken: set[str]) -> NodeSpec:
        labels = dict(candidate.labels) if candidate else {}
        if machine.serial and _is_label(SERIAL, machine.serial):
            labels.setdefault(SERIAL, machine.serial)
        return NodeSpec(
            name=place.name or self._name(machine, place, taken),
            location=place.location,
            nid=place.nid,
            role=(candidate.role if candidate else "") or "compute",
            architecture=machine.architecture or "x86_64",
            labels=labels,
            bmc=machine.address,
            interfaces=tuple(InterfaceSpec(mac=one.mac) for one in self._interfaces(machine)),
        )

    def _interfaces(self, machine: Machine) -> tuple[Interface, ...]:
        """Those whose MAC nobody else has: some BMCs give every host a port to themselves, of one MAC."""
        mine = []
        for mac in list(filter(is_mac, machine.macs))[:MOST]:
            first = self._macs.setdefault(mac, machine.address)
            if first == machine.address and self._edits.registry.claimant(mac) < 0:
                mine.append(Interface(mac=mac))
        return tuple(mine)

    def _name(self, machine: Machine, place: Place, taken: set[str]) -> str:
        values = {"serial": machine.serial, "location": place.location, "hostname": machine.name.partition(".")[0]}
        for name in FIELDS[1:]:
            if f"{{{name}" in self._template and not values[name]:
                raise BadRequest(f"has no {name} to be named after", where=machine.address)
        if "{number" not in self._template:
            name = _FIELD.sub(lambda found: values[found[1]], self._template)
            check_node_name(name)
            return name
        while True:
            number = self._number = self._number + 1
            name = self._template.format(number=number, **values)
            check_node_name(name)
            if name not in taken and self._edits.registry.find(name) < 0:
                return name


def _is_label(key: str, value: str) -> bool:
    try:
        check_label(key, value)
    except BadRequest:
        return False
    return True
