"""Requests about how things are cabled. The graph is made from the inventory, in a thread, and kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strata.core.errors import Unavailable
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.hardware.fabric.build import Row, build, read_rows
from strata.hardware.fabric.records import FabricView, LinkView, SwitchNodes, SwitchView
from strata.hardware.fabric.topology import End, Topology
from strata.hardware.inventory.records import Found, Known, Parts

if TYPE_CHECKING:
    from strata.hardware.inventory.store import Inventory

KEEP = 30.0
"""Seconds that a graph is used before it is made anew."""

_BREATH = 1000  # BMCs that are looked at before others get a turn

Founds = Callable[[], AsyncIterator[Found]]
"""What BMCs told, as far as cables are concerned."""


class FabricService:
    """How things are cabled. ``file``: how it should be cabled, where there is one."""

    def __init__(
        self, service: Fleet, founds: Founds, node_of: Callable[[str], str], *, file: Path | None = None
    ) -> None:
        """``node_of``: the name of the node whose BMC (or system) is at an address; empty: none's."""
        self._service = service
        self._founds = founds
        self._file = file
        self._node_of = node_of
        self._made: tuple[float, Topology] | None = None
        self._making = asyncio.Lock()

    async def graph(self, who: Principal) -> FabricView:
        """Switches, links, and what does not fit together."""
        topology = await self.topology()
        sees = self._sight(who)
        # With a scope: the switches that one's own nodes are on.
        shown = {
            switch.id: on
            for switch in topology.switches.values()
            if (on := list(filter(sees, topology.nodes_on.get(switch.id, ())))) or not who.scope
        }

        def seen(end: End) -> bool:
            return end.owner in shown if end.kind == "switch" else sees(end.owner)

        return FabricView(
            switches=tuple(
                SwitchView.of(switch, nodes=fold(shown[switch.id]))
                for switch in map(topology.switches.__getitem__, sorted(shown))
            ),
            links=tuple(
                LinkView.of(link, a=str(link.a), b=str(link.b))
                for link in topology.links
                if seen(link.a) and seen(link.b)
            ),
            # A conflict names nodes; it is for those who may see all of them.
            conflicts=() if who.scope else tuple(topology.conflicts),
        )

    async def near(self, who: Principal, select: str = "*") -> Sequence[SwitchNodes]:
        """Which of the selected nodes share a switch."""
        names = self._service.view.names(self._service.seen(who, select))
        topology = await self.topology()
        return [
            SwitchNodes(switch=switch, nodes=fold(nodes), count=len(nodes)) for switch, nodes in topology.near(names)
        ]

    def _sight(self, who: Principal) -> Callable[[str], bool]:
        fleet = self._service.visible(who)
        return (lambda name: True) if not who.scope else (lambda name: fleet.find(name) >= 0)

    async def topology(self) -> Topology:
        """The graph itself, for placement."""
        async with self._making:
            if self._made is None or time.monotonic() - self._made[0] > KEEP:
                founds = [found async for found in self._founds()]
                # Names before the thread begins: the registry is the loop's.
                names = {one.address: self._node_of(one.address) for found in founds for one in found.machines}
                rows = await asyncio.to_thread(_read, self._file) if self._file else []
                self._made = time.monotonic(), await asyncio.to_thread(build, founds, names.__getitem__, rows)
            return self._made[1]


async def cabling(inventory: Inventory) -> AsyncIterator[Found]:
    """What the inventory knows of cables: the ports of switches, who has which MAC, and the ports of machines that no
    switch hears. So the parts of a hundred thousand nodes need not be read to draw a thousand switches."""
    heard: set[str] = set()
    rest: list[Known] = []
    for number, address in enumerate(list(inventory.addresses()), 1):
        known = inventory.get(address)
        if known is not None and known.counts.get("switch"):
            parts = await inventory.parts(address)
            heard.update(_words(parts))
            yield _found(known, parts)
        elif known is not None and known.machines:
            rest.append(known)
        if number % _BREATH == 0:
            await asyncio.sleep(0)
    for number, known in enumerate(rest, 1):
        macs = {mac.lower() for machine in known.machines for mac in machine.macs}
        lonely = known.ports and not heard & macs
        yield _found(known, await inventory.parts(known.address) if lonely else Parts())
        if number % _BREATH == 0:
            await asyncio.sleep(0)


def _words(parts: Parts) -> set[str]:
    return {
        text.lower()
        for port in parts.ports
        if port.neighbour is not None
        for text in (port.neighbour.mac, port.neighbour.port, port.neighbour.chassis)
        if text
    }


def _found(known: Known, parts: Parts) -> Found:
    wanted = tuple(part for part in parts.components if part.kind in ("switch", "nic", "system"))
    return Found(
        address=known.address,
        identity=known.identity,
        time=known.seen,
        machines=known.machines,
        components=wanted,
        ports=parts.ports,
        fabric=parts.fabric,
    )


def _read(path: Path) -> list[Row]:
    try:
        return read_rows(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as wrong:
        raise Unavailable(
            f"the topology file cannot be read ({type(wrong).__name__})", where=str(path), hint="see that it is there"
        ) from wrong
