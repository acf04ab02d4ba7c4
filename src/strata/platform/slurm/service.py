"""Requests about Slurm clusters: what the site says of each, and the files that come of it and of the inventory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from strata.core.errors import BadRequest
from strata.core.nodeset import expand, fold
from strata.core.printable import shortened
from strata.fleet.access.principal import Principal
from strata.fleet.desires.records import DesireChange
from strata.fleet.desires.service import DesireService
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Operation
from strata.hardware.bmc.service import BmcService
from strata.hardware.fabric.service import FabricService
from strata.hardware.inventory.records import Component
from strata.hardware.inventory.service import InventoryService
from strata.platform.slurm import hardware, tree
from strata.platform.slurm.records import (
    NodesSpec,
    PartitionSpec,
    SlurmCluster,
    SlurmFiles,
    SlurmPower,
    SlurmPowered,
    SlurmRefused,
    SlurmSpec,
    SlurmView,
)
from strata.platform.workload.cluster import Look, jobs_in_words
from strata.platform.workload.service import WorkloadService
from strata.provisioning.agents.service import AgentService
from strata.schedulers.slurm import conf

_SHOWN = 200
_COUNTED = frozenset(("cpus", "procs", "boards", "sockets"))
"""Settings by which the site says itself how many processors a node has."""
_PARTITIONS = (PartitionSpec(name="compute", select="role:compute", settings={"Default": "YES"}),)
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class _Node(NamedTuple):
    name: str
    """What Slurm calls it."""
    address: str
    location: str


class SlurmService:
    """Described clusters. Writes no file: what the files say is for whoever asks."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._records = fleet.records(SlurmCluster, kind="slurm", called="Slurm cluster", listed_by="strata slurm list")
        self.start = self._records.start
        self.stop = self._records.stop

    # -- descriptions

    async def all(self, who: Principal) -> Sequence[SlurmView]:
        """All Slurm clusters that are described here."""
        return [SlurmView.of(record, name=name) for name, record in self._records.sorted]

    async def one(self, who: Principal, name: str) -> SlurmView:
        """One of them, as its site describes it."""
        return SlurmView.of(self._records.get(name), name=name)

    async def put(self, who: Principal, name: str, spec: SlurmSpec) -> SlurmView:
        """Describe a Slurm cluster, or describe it otherwise. Refused if Slurm could not read what comes of it. Nothing
        is written anywhere by that: its files are made when they are asked for."""
        self._fleet.need_whole_fleet(who, "a Slurm cluster")
        await self._made(who, name, spec)
        record = SlurmCluster(spec=spec, author=who.name, time=self._fleet.controller.clock.wall())
        await self._records.put(who.name, name, record)
        return SlurmView.of(record, name=name)

    async def delete(self, who: Principal, name: str) -> None:
        """Forget the description. Files that were written stay where they are."""
        self._fleet.need_whole_fleet(who, "a Slurm cluster")
        await self._records.delete(who.name, name)

    # -- power saving

    async def power(self, who: Principal, name: str, request: SlurmPower) -> SlurmPowered:
        """What Slurm's power saving wants: nodes on, or off, or started anew. ``name`` is the connected workload
        manager. Only what Slurm itself says is off, or rebooted, and has no job, is. Doing it twice is the same as
        once. On and off are desires, a reboot is done at once."""
        cluster = self._fleet.of(WorkloadService).cluster(name)
        if cluster.kind != "slurm":
            raise BadRequest(f"{name} is a {cluster.kind}", where=f"workload {name}")
        refused: dict[str, list[str]] = {}
        visible = self._fleet.visible(who)
        known = []
        for theirs in expand(request.nodes):
            ours = cluster.own(theirs)
            if visible.find(ours) < 0:
                refused.setdefault("no such node", []).append(theirs)
            else:
                known.append((ours, theirs))
        if request.action != "resume" and known:
            known = _allowed(known, await cluster.now(), request.action, refused)
        names = [ours for ours, _ in known]
        if names:
            failed = await self._switch(who, fold(names), request.action)
            for node, why in failed.items():
                refused.setdefault(why, []).append(node)
            names = [name for name in names if name not in failed]
        return SlurmPowered(
            done=fold(names),
            refused=tuple(SlurmRefused(nodes=fold(nodes), reason=why) for why, nodes in refused.items()),
        )

    async def _switch(self, who: Principal, select: str, action: str) -> dict[str, str]:
        """Why it could not be done, by node."""
        if action == "reboot":
            done = await self._fleet.of(BmcService).power(who, select, "cycle")
            failed = () if isinstance(done, Operation) else done.failed
            return {name: one.reason for one in failed for name in expand(one.nodes)}
        change = DesireChange(select=select, set={"power": "on" if action == "resume" else "off"})
        result = await self._fleet.of(DesireService).set_desires(who, change, asynchronous=False)
        if isinstance(result, Operation):
            return {}
        return {one.node: one.error or "refused" for one in result.results if not one.ok}

    # -- files

    async def files(self, who: Principal, name: str) -> SlurmFiles:
        """Its configuration, made from what is known now: slurm.conf, topology.conf, gres.conf, cgroup.conf."""
        return await self._made(who, name, self._records.get(name).spec)

    async def _made(self, who: Principal, name: str, spec: SlurmSpec) -> SlurmFiles:
        warnings: list[str] = []
        wanted = spec.partitions or _PARTITIONS
        partitions = {one.name: self._chosen(who, one.select) for one in wanted}
        warnings += [f"partition {name} has no nodes" for name, members in partitions.items() if not members]
        names = list(dict.fromkeys(name for members in partitions.values() for name in members))
        nodes = self._described(name, names)
        found = await self.hardware(names)
        told = self._told(who, spec.nodes)
        classes, missing = await asyncio.to_thread(_classes, nodes, found, told)
        if missing:
            warnings.append(
                f"left out, as nothing is known of their processors and memory: {shortened(fold(missing), _SHOWN)}; "
                "have them discovered, or say CPUs and RealMemory of them in 'nodes'"
            )
        there = {node for one in classes for node in one.names}
        unreachable = [node for one in classes if not one.addresses for node in one.names]
        if unreachable and len(unreachable) < len(there):
            nameless = shortened(fold(unreachable), _SHOWN)
            warnings.append(f"have no address here, so that slurmctld has to know their names: {nameless}")

        def called(members: Sequence[str]) -> tuple[str, ...]:
            return tuple(name for member in members if (name := nodes[member].name) in there)

        cluster = conf.Cluster(
            name=name,
            controllers=spec.controllers,
            nodes=tuple(classes),
            partitions=tuple(
                conf.Partition(name=one.name, names=called(partitions[one.name]), settings=one.settings)
                for one in wanted
            ),
            switches=await self._switches(who, spec, nodes, there),
            saving=self._saving(who, spec, nodes, there),
            accounting=spec.accounting,
            programs=spec.programs,
            settings=spec.settings,
            cgroup=spec.cgroup,
        )
        texts = await asyncio.to_thread(conf.files, cluster)
        return SlurmFiles(name=name, nodes=len(there), files=texts, warnings=tuple(warnings))

    def _chosen(self, who: Principal, select: str) -> list[str]:
        names = self._fleet.registry.names
        return [names[index] for index in self._fleet.seen(who, select).tolist()]

    def _described(self, cluster: str, names: Sequence[str]) -> dict[str, _Node]:
        """By our names. A workload manager of the same name may call nodes otherwise."""
        workloads = self._fleet.services.find(WorkloadService)
        called = workloads.called(cluster) if workloads is not None else {}
        found = {}
        for name in names:
            node = self._fleet.registry.node(name)
            address = node.interfaces[0].address if node.interfaces else ""
            found[name] = _Node(called.get(name, name), address, node.location)
        return found

    async def hardware(self, names: Sequence[str]) -> dict[str, conf.Hardware]:
        """What is known of nodes' hardware, by our names."""
        wanted = frozenset(names)
        agents, inventory = self._fleet.services.find(AgentService), self._fleet.services.find(InventoryService)
        hosts = await agents.hardware() if agents is not None else {}
        parts: dict[str, list[Component]] = {}
        if inventory is not None:
            async for node, part in inventory.parts_of_nodes(hardware.KINDS):
                if node in wanted:
                    parts.setdefault(node, []).append(part)

        def both() -> dict[str, conf.Hardware]:
            found = {}
            for name in names:
                host = hardware.of_host(hosts[name]) if name in hosts else None
                has = hardware.together(host, hardware.of_parts(parts.get(name, ())))
                if has is not None:
                    found[name] = has
            return found

        return await asyncio.to_thread(both)

    def _told(self, who: Principal, specs: Sequence[NodesSpec]) -> dict[str, Mapping[str, str]]:
        """What the site says of nodes, by our names; the same for those that it says the same of."""
        found: dict[str, Mapping[str, str]] = {}
        for spec in specs:
            joined: dict[int, Mapping[str, str]] = {}
            for name in self._chosen(who, spec.select):
                before = found.get(name, {})
                found[name] = joined.setdefault(id(before) if before else 0, {**before, **spec.settings})
        return found

    async def _switches(
        self, who: Principal, spec: SlurmSpec, nodes: Mapping[str, _Node], there: set[str]
    ) -> tuple[conf.Switch, ...]:
        known = {node.name: node for node in nodes.values() if node.name in there}
        if spec.topology == "location":
            return await asyncio.to_thread(tree.by_location, {name: node.location for name, node in known.items()})
        if spec.topology == "fabric":
            topology = await self._fleet.of(FabricService).topology()
            on: dict[str, list[str]] = {}
            for switch, members in topology.nodes_on.items():
                called = _NOT_A_NAME.sub("_", topology.switches[switch].name or switch).strip("_.-")[:60]
                on.setdefault(called or "switch", []).extend(nodes[name].name for name in members if name in nodes)
            return await asyncio.to_thread(tree.by_fabric, on, there)
        if spec.topology == "declared":
            said = [
                conf.Switch(
                    name=one.name,
                    names=tuple(nodes[name].name for name in self._chosen(who, one.select) if name in nodes)
                    if one.select
                    else (),
                    switches=one.switches,
                )
                for one in spec.switches
            ]
            return await asyncio.to_thread(tree.declared, said, there)
        return ()

    def _saving(
        self, who: Principal, spec: SlurmSpec, nodes: Mapping[str, _Node], there: set[str]
    ) -> conf.Saving | None:
        if spec.saving is None:
            return None
        never = self._chosen(who, spec.saving.never) if spec.saving.never else []
        kept = tuple(nodes[name].name for name in never if name in nodes and nodes[name].name in there)
        return conf.Saving(after=spec.saving.after, off=spec.saving.off, on=spec.saving.on, never=kept)


def _allowed(
    known: Sequence[tuple[str, str]], look: Look, action: str, refused: dict[str, list[str]]
) -> list[tuple[str, str]]:
    """Those that Slurm itself has taken down: whoever else asks for it in Slurm's name is not believed."""
    allowed = []
    for ours, theirs in known:
        seen = look.nodes.get(theirs)
        if seen is None:
            why = "Slurm does not know it"
        elif seen.jobs:
            why = jobs_in_words(seen.jobs)
        elif not seen.boots_first:
            why = f"Slurm says {seen.state}, and not that it is to be {'rebooted' if action == 'reboot' else 'off'}"
        else:
            allowed.append((ours, theirs))
            continue
        refused.setdefault(why, []).append(ours)
    return allowed


def _classes(
    nodes: Mapping[str, _Node], found: Mapping[str, conf.Hardware], told: Mapping[str, Mapping[str, str]]
) -> tuple[list[conf.Nodes], list[str]]:
    """Nodes that are alike, together; and those of which too little is known."""
    alike: dict[tuple[conf.Hardware, tuple[tuple[str, str], ...], bool], list[_Node]] = {}
    missing = []
    for name, node in nodes.items():
        said = tuple(told.get(name, {}).items())
        has = found.get(name)
        if has is None and not any(key.lower() in _COUNTED for key, _ in said):
            missing.append(name)
            continue
        alike.setdefault((_left(has or conf.Hardware(), said), said, bool(node.address)), []).append(node)
    classes = [
        conf.Nodes(
            names=tuple(node.name for node in members),
            hardware=has,
            settings=dict(said),
            addresses=tuple(node.address for node in members) if reachable else (),
        )
        for (has, said, reachable), members in alike.items()
    ]
    return classes, missing


def _left(has: conf.Hardware, said: Sequence[tuple[str, str]]) -> conf.Hardware:
    """What counts of a node's hardware beside what the site says: nodes that differ in nothing else are alike."""
    keys = {key.lower() for key, _ in said}
    none = conf.Hardware()
    counted = none if keys & _COUNTED else has
    return conf.Hardware(
        sockets=counted.sockets,
        cores=counted.cores,
        threads=counted.threads,
        memory=none.memory if "realmemory" in keys else has.memory,
        gpus=() if "gres" in keys else has.gpus,
    )
