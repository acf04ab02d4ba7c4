"""What one caller may see of the inventory: the controllers of its nodes, and of these the parts that are theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from strata.control.inventory_nodes import NodesByBmc
from strata.control.machine_views.inventory import ComponentView, ControllerSummary
from strata.hardware.inventory.changes import machine_of
from strata.hardware.inventory.found import Change, Component, Known, Parts
from strata.hardware.inventory.store import Inventory


class Sight:
    """``sees``: whether the caller may see the node of a name. Without it: all, and what is no node's."""

    def __init__(self, inventory: Inventory, nodes: NodesByBmc, sees: Callable[[str], bool] | None = None) -> None:
        self._inventory = inventory
        self._nodes = nodes
        self._sees = sees

    @property
    def everything(self) -> bool:
        """Whether there is nothing that it does not see."""
        return self._sees is None

    def controller(self, known: Known) -> bool:
        """Whether it sees a controller."""
        return self._sees is None or bool(self.nodes(known))

    def nodes(self, known: Known) -> tuple[str, ...]:
        """The nodes of a controller that it sees."""
        return tuple(name for name in self._nodes.of(known) if self._sees is None or self._sees(name))

    def summary(self, known: Known) -> ControllerSummary:
        """A controller in short."""
        nodes = self.nodes(known)
        # Several machines may share a controller: what is counted of all is for those who may see all.
        whole = self._sees is None or len(nodes) == max(1, len(known.machines))
        return ControllerSummary(
            address=known.address,
            identity=known.identity,
            seen=known.seen,
            nodes=nodes,
            machines=len(known.machines) if whole else len(nodes),
            components=known.counts if whole else {},
            trouble=known.trouble if whole else (),
        )

    def components(self, known: Known, parts: Parts) -> Iterator[ComponentView]:
        """The parts of a controller that it sees, by id."""
        names = {machine.address: self._nodes.of_machine(known, machine) for machine in known.machines}
        own = {part.id: part for part in parts.components}
        for part in sorted(parts.components, key=lambda part: part.id):
            node = names.get(machine_of(part, own, known.machines), "")
            if self._sees is None or (node and self._sees(node)):
                yield _component(part, known.address, node)

    def change(self, change: Change) -> Change:
        """A change without the address of another controller, unless it sees that one."""
        if self._sees is None or change.what != "moved" or change.new != change.controller:
            return change
        origin = self._inventory.get(change.old)
        return change if origin is not None and self.controller(origin) else replace(change, old="")


def _component(part: Component, controller: str, node: str) -> ComponentView:
    return ComponentView(
        controller=controller,
        node=node,
        id=part.id,
        kind=part.kind,
        name=part.name,
        parent=part.parent,
        slot=part.slot,
        vendor=part.vendor,
        model=part.model,
        part=part.part,
        serial=part.serial,
        firmware=part.firmware,
        health=part.health,
        macs=part.macs,
        facts=part.facts,
        shape=part.shape,
    )
