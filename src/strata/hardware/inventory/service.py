"""Requests about what hardware there is, and was. Components of nodes outside the caller's scope are not there."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence

from msgspec.structs import asdict, replace

from strata.core.errors import BadRequest, NotFound
from strata.fleet.access.principal import Principal, Right
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Operation
from strata.hardware.discovery.adopt import check_template
from strata.hardware.discovery.discover import KIND, DiscoverWork, Plan, candidates_of, load_report, prune, save_plan
from strata.hardware.discovery.records import DiscoverRequest, DiscoveryReport
from strata.hardware.discovery.sources import bare, read_list
from strata.hardware.discovery.sources_dhcp import Sightings
from strata.hardware.discovery.sources_scan import range_of
from strata.hardware.discovery.sweep import Discovery
from strata.hardware.inventory.changes import machine_of
from strata.hardware.inventory.nodes import NodesByBmc
from strata.hardware.inventory.records import (
    BmcHardware,
    BmcPage,
    BmcSummary,
    Change,
    Component,
    ComponentPage,
    ComponentQuery,
    ComponentView,
    HardwareChange,
    HardwareConflict,
    Known,
    NodeHardware,
    Parts,
)
from strata.hardware.inventory.store import Inventory


class VisibleInventory:
    """``sees``: whether the caller may see the node of a name. Without it: all, and what is no node's."""

    def __init__(self, inventory: Inventory, nodes: NodesByBmc, sees: Callable[[str], bool] | None = None) -> None:
        self._inventory = inventory
        self._nodes = nodes
        self._sees = sees

    @property
    def everything(self) -> bool:
        """Whether there is nothing that it does not see."""
        return self._sees is None

    def bmc(self, known: Known) -> bool:
        """Whether it sees a BMC."""
        return self._sees is None or bool(self.nodes(known))

    def nodes(self, known: Known) -> tuple[str, ...]:
        """The nodes of a BMC that it sees."""
        return tuple(name for name in self._nodes.of(known) if self._sees is None or self._sees(name))

    def summary(self, known: Known) -> BmcSummary:
        """A BMC in short."""
        nodes = self.nodes(known)
        # Several machines may share a BMC: what is counted of all is for those who may see all.
        whole = self._sees is None or len(nodes) == max(1, len(known.machines))
        return BmcSummary.of(
            known,
            nodes=nodes,
            machines=len(known.machines) if whole else len(nodes),
            components=_counted(known) if whole else {},
            trouble=known.trouble if whole else (),
        )

    def components(self, known: Known, parts: Parts) -> Iterator[ComponentView]:
        """The parts of a BMC that it sees, ports among them, by id."""
        names = {machine.address: self._nodes.of_machine(known, machine) for machine in known.machines}
        own = {part.id: part for part in parts.components}
        ports = (port.component() for port in parts.ports)
        for part in sorted((*parts.components, *ports), key=lambda part: part.id):
            node = names.get(machine_of(part, own, known.machines), "")
            if self._sees is None or (node and self._sees(node)):
                yield ComponentView(bmc=known.address, node=node, **asdict(part))

    def change(self, change: Change) -> Change:
        """A change without the address of another BMC, unless it sees that one."""
        if self._sees is None or change.what != "moved" or change.new != change.bmc:
            return change
        origin = self._inventory.get(change.old)
        return change if origin is not None and self.bmc(origin) else replace(change, old="")


FEW = 256
"""Up to so many selected nodes have their BMCs looked up one by one; beyond, all are read in order."""
LONGEST = 3.0
"""Seconds after which a search of all components answers with what it has, and where to go on."""
_BREATH = 5000
"""BMCs that are looked at before others get a turn."""

MOST_NAMED = 20

_HINTS = {
    "mac": "look which machine has it; then strata hardware discover both",
    "serial": "one machine at two addresses? strata hardware forget the old address",
    "uuid": "one machine at two addresses? strata hardware forget the old address",
    "location": "two machines are mapped to one place: correct the mapping",
}


class InventoryService:
    """The inventory, as the API sees it."""

    def __init__(
        self,
        service: Fleet,
        inventory: Inventory,
        discovery: Discovery,
        nodes: NodesByBmc,
    ) -> None:
        self._service = service
        self._store = service.controller.store
        self._inventory = inventory
        self._nodes = nodes
        self.sightings = Sightings()
        """Whoever serves DHCP calls ``sightings.seen``."""
        work = DiscoverWork(self._store, service.edits, nodes, inventory, discovery)
        service.operations.register(KIND, work)

    async def prune(self, before: float) -> None:
        """Forget history, plans and reports from before a time."""
        await self._inventory.prune(before)
        await prune(self._store, before)

    # -- discovery

    async def discover(self, who: Principal, request: DiscoverRequest) -> Operation:
        """Look for BMCs, and record their hardware. An operation: follow it at ``/v1/operations/{operation}``."""
        self._service.need_whole_fleet(who, "discovery")
        if request.adopt:
            who.require(Right("create", "node"))
            who.require(Right("change", "node"))
            check_template(request.name)
        extra = self.sightings.addresses() if request.dhcp else []
        if request.known:
            bmcs = (node.bmc for node in self._service.registry.nodes if node is not None and node.bmc)
            extra += dict.fromkeys((*self._inventory.addresses(), *bmcs))
        candidates = await asyncio.to_thread(candidates_of, request, extra)
        for text in request.ranges:
            range_of(text)
        plan = Plan(
            author=who.name,
            begun=time.time(),
            candidates=tuple(candidates),
            ranges=request.ranges,
            ssdp=request.ssdp,
            mapping=request.mapping,
            accept=frozenset(bare(candidate.address) for candidate in read_list(request.accept)),
            adopt=request.adopt,
            name=request.name,
        )
        if not plan.candidates and not plan.ranges and not plan.ssdp:
            raise BadRequest(
                "nowhere to look", hint="give addresses, csv, ranges, ssdp, leases, dhcp or known (some may be empty)"
            )
        token = await save_plan(self._store, plan)
        if plan.accept:
            detail = {"addresses": sorted(plan.accept)[:100], "count": len(plan.accept)}
            await self._service.ledger.commit(who.name, "hardware.accept", "BMCs", [], detail=detail)
        job = await self._service.operations.start(KIND, who.name, plan.total, {"plan": token})
        return job.shown()

    async def discovery(self, who: Principal, job: str) -> DiscoveryReport:
        """What a discovery has come to so far."""
        try:
            found = await self._service.operations.show(job)
        except NotFound:
            found = None
        if found is None or found.kind != KIND or (who.scope and found.author != who.name):
            raise NotFound(f"no such discovery: {job[:80]}", where="job")
        report = await load_report(self._store, str(found.arguments["plan"]))
        return replace(report, job=job)

    # -- what there is

    async def bmcs(self, who: Principal, limit: int = 1000, after: str = "") -> BmcPage:
        """Discovered BMCs, by address."""
        addresses = self._inventory.addresses()
        sees = self._sight(who)
        items: list[BmcSummary] = []
        at = bisect_right(addresses, after) if after else 0
        following: str | None = None
        for address in addresses[at:]:
            known = self._inventory.get(address)
            if known is None or not sees.bmc(known):
                continue
            if len(items) == limit:
                following = items[-1].address
                break
            items.append(sees.summary(known))
        total = len(addresses)
        if not sees.everything:
            total = 0
            for number, address in enumerate(addresses, 1):
                known = self._inventory.get(address)
                total += known is not None and sees.bmc(known)
                if number % _BREATH == 0:
                    await asyncio.sleep(0)
        return BmcPage(items=tuple(items), next=following, total=total)

    async def bmc(self, who: Principal, address: str) -> BmcHardware:
        """One BMC with all its parts."""
        known, sees = self._inventory.get(address), self._sight(who)
        if known is None or not sees.bmc(known):
            raise NotFound(f"no such BMC: {address[:80]}", where="bmc", hint="strata hardware list")
        parts = await self._inventory.parts(known.address)
        shown = tuple(sees.components(known, parts))
        return BmcHardware(summary=sees.summary(known), components=shown)

    async def of_node(self, who: Principal, node: str) -> NodeHardware:
        """What a node is made of."""
        index = self._service.index(who, node)
        bmc = self._service.registry.node_at(index).bmc
        found = self._inventory.machine(bmc) if bmc else None
        if found is None:
            hint = f"strata hardware discover {bmc}" if bmc else f"strata node set {node} --bmc ADDRESS"
            raise NotFound(f"the hardware of {node} was not discovered", where=f"node {node}", hint=hint)
        known, machine = found
        parts = await self._inventory.parts(known.address)
        own = [c for c in VisibleInventory(self._inventory, self._nodes).components(known, parts) if c.node == node]
        return NodeHardware(
            node=node,
            bmc=known.address,
            identity=known.identity,
            seen=known.seen,
            serial=machine.serial,
            uuid=machine.uuid,
            components=tuple(own),
        )

    async def components(self, who: Principal, query: ComponentQuery) -> ComponentPage:
        """Components of the fleet, filtered."""
        everything = query.select.strip() in ("", "*") and not who.scope
        names = None if everything else self._names(who, query.select)
        text, sees = query.text.casefold(), self._sight(who)
        begin, _, last = query.after.partition("\n")
        items: list[ComponentView] = []
        deadline = time.monotonic() + LONGEST
        async for known, parts in self._parts(names, begin):
            for part in sees.components(known, parts):
                if known.address == begin and part.id <= last:
                    continue
                if (names is not None and part.node not in names) or (query.kind and part.kind != query.kind):
                    continue
                if text and not any(
                    text in word.casefold() for word in (part.name, part.model, part.part, part.serial)
                ):
                    continue
                if len(items) == query.limit:
                    return ComponentPage(items=tuple(items), next=f"{items[-1].bmc}\n{items[-1].id}")
                items.append(part)
            if time.monotonic() > deadline:
                return ComponentPage(items=tuple(items), next=f"{known.address}\n\U0010ffff")
        return ComponentPage(items=tuple(items), next="")

    async def parts_of_nodes(self, kinds: Collection[str]) -> AsyncIterator[tuple[str, Component]]:
        """Every part of these kinds that is in a node, with the node's name; whoever asks sees all of them."""
        async for known, parts in self._parts(None, ""):
            names = {machine.address: self._nodes.of_machine(known, machine) for machine in known.machines}
            own = {part.id: part for part in parts.components}
            for part in parts.components:
                if part.kind in kinds and (node := names.get(machine_of(part, own, known.machines), "")):
                    yield node, part

    async def history(
        self, who: Principal, select: str = "*", since: float | None = None, limit: int = 100
    ) -> Sequence[HardwareChange]:
        """What was added, removed, swapped or moved; newest first."""
        everything = select.strip() in ("", "*") and not who.scope
        names = None if everything else self._names(who, select)
        found = await self._inventory.history(
            since=since, limit=limit, wanted=lambda change: names is None or self._node_then(change) in names
        )
        sees = self._sight(who)
        return [HardwareChange.of(sees.change(change), node=self._node_then(change)) for change in found]

    async def conflicts(self, who: Principal) -> Sequence[HardwareConflict]:
        """What does not fit together, of what the caller may see: duplicates, swapped BMCs, two machines in one
        place."""
        sees = self._sight(who)
        found: list[HardwareConflict] = []
        for known in self._inventory.strangers():
            if sees.bmc(known) and known.stranger is not None:
                hint = f"put the old one back, or: strata hardware discover --accept {known.address}"
                where = (known.address, *sees.nodes(known))
                value = known.stranger.serial or known.stranger.uuid
                found.append(
                    HardwareConflict(
                        what="bmc-swapped", value=value, where=where, since=known.stranger_since, hint=hint
                    )
                )
        for mark, value, holders, since in self._inventory.clashes():
            seen = [h for h in holders if (one := self._inventory.get(h)) is not None and sees.bmc(one)]
            if seen:
                rest = (f"and {len(seen) - MOST_NAMED} more",) if len(seen) > MOST_NAMED else ()
                where = (*seen[:MOST_NAMED], *rest)
                kind = "location-taken" if mark == "location" else f"duplicate-{mark}"
                found.append(
                    HardwareConflict(
                        what=kind,  # type: ignore[arg-type]
                        value=value,
                        where=where,
                        since=since,
                        hint=_HINTS[mark],
                    )
                )
        return found

    async def forget(self, who: Principal, address: str) -> None:
        """Remove a BMC from the inventory. Its history stays; nodes stay."""
        self._service.need_whole_fleet(who, "the inventory")
        await self._inventory.forget(address, who.name, self._service.ledger)

    # -- what they share

    def _node_then(self, change: Change) -> str:
        """The node that a change is about: as it was called then, or (what was found before it was a node) is now."""
        return change.node or self._nodes.at(change.machine or change.bmc)

    def _names(self, who: Principal, select: str) -> frozenset[str]:
        names = self._service.registry.names
        return frozenset(names[index] for index in self._service.seen(who, select).tolist())

    def _sight(self, who: Principal) -> VisibleInventory:
        if not who.scope:
            return VisibleInventory(self._inventory, self._nodes)
        fleet = self._service.visible(who)  # once for all names: it is made from every member of the scope
        return VisibleInventory(self._inventory, self._nodes, lambda name: fleet.find(name) >= 0)

    async def _parts(self, names: frozenset[str] | None, begin: str) -> AsyncIterator[tuple[Known, Parts]]:
        """BMCs with their parts, from ``begin`` on; of these nodes only where they are few."""
        if names is not None and len(names) <= FEW:
            bmcs = (self._service.registry.node(name).bmc for name in names)
            found = {known.address: known for bmc in bmcs if bmc and (known := self._inventory.get(bmc)) is not None}
            for address in sorted(found):
                if address >= begin:
                    yield found[address], await self._inventory.parts(address)
            return
        if begin and (known := self._inventory.get(begin)) is not None:
            yield known, await self._inventory.parts(begin)
        async for some in self._inventory.walk(begin):
            for known, parts in some:
                yield known, parts
            await asyncio.sleep(0)


def _counted(known: Known) -> Mapping[str, int]:
    """How many parts of each kind a BMC has, ports among them."""
    return {**known.counts, "port": known.ports} if known.ports else known.counts
