"""Requests about workload managers, and the poll that tells the engine what they say of nodes."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from strata.core.column import Column
from strata.core.errors import BadRequest, Conflict, Refused, StrataError
from strata.core.node import Node
from strata.core.nodeset import fold
from strata.core.printable import shortened
from strata.fleet.access.principal import Principal
from strata.fleet.alarm import Alarm
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.platform.no_workload import NoWorkload, Played
from strata.platform.settings import PlatformSettings
from strata.platform.workload.cluster import Cluster, Look, called, jobs_in_words, place
from strata.platform.workload.driver import WorkloadDriver, column, gathered, occupied
from strata.platform.workload.records import Reached, Workload, WorkloadNode, WorkloadSpec, WorkloadView
from strata.schedulers.kinds import check_settings, open_scheduler
from strata.schedulers.runner import Place, Runner, connecting

log = logging.getLogger(__name__)

_SHOWN = 200
"""Characters of folded names that are shown."""


class WorkloadService:
    """The connected workload managers. ``driver`` is the engine's; ``start`` follows the records, ``poll`` begins to
    ask and to tell."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._settings = fleet.section(PlatformSettings)
        self._clusters: dict[str, Cluster] = {}
        self._ended: list[Cluster] = []
        self._alarmed: dict[str, str] = {}
        self.whys: dict[str, Callable[[str], str]] = {}
        """Mutation → who can say of a node what it is for, better than its name does."""
        self.driver = WorkloadDriver(
            lambda: list(self._clusters.values()),
            NoWorkload(required=self._settings.workload == "required"),
            why=self._why,
            clock=fleet.controller.clock.now,
        )
        self._records = fleet.records(
            Workload,
            kind="workload",
            called="workload manager",
            listed_by="strata workload list",
            changed=self._changed,
            cleared=self._cleared,
        )
        self._polling = Recurring(
            "workload managers",
            self._tell,
            lambda: self._settings.workload_poll,
            trouble="workload managers not looked at",
        )
        self.start = self._records.start
        self.poll = self._polling.start

    async def stop(self) -> None:
        """Ask no more. Drains stay as they are."""
        await self._polling.stop()
        await self._records.stop()
        self._cleared()
        await self._close()

    @property
    def connected(self) -> bool:
        """Whether any workload manager is."""
        return bool(self._clusters)

    @property
    def specs(self) -> Mapping[str, WorkloadSpec]:
        """How each that is connected is reached, by name."""
        return {name: record.spec for name, record in self._records.sorted}

    def called(self, name: str) -> Mapping[str, str]:
        """What a workload manager calls nodes of ours that it calls otherwise; empty: none, or it is not connected."""
        record = self._records.find(name)
        return called(record.spec.names) if record is not None else {}

    # -- requests

    async def all(self, who: Principal) -> Sequence[WorkloadView]:
        """All connected workload managers, and whether they answer."""
        return [await self._view(who, name, record) for name, record in self._records.sorted]

    async def one(self, who: Principal, name: str) -> WorkloadView:
        """One of them."""
        return await self._view(who, name, self._records.get(name))

    async def connect(self, who: Principal, name: str, spec: WorkloadSpec) -> WorkloadView:
        """Connect a workload manager, or change how it is reached. It is asked about its nodes at once; if it does not
        answer, nothing is changed."""
        self._fleet.need_whole_fleet(who, "a workload manager")
        if self._fleet.driver(NoWorkload.name) is not self.driver:
            own = Played("a driver of the site's model plays it", "take the driver 'workload' out of the model")
            why, hint = self._fleet.services.find(Played) or own
            raise Conflict(f"no workload manager can be connected here: {why}", where="workload", hint=hint)
        check_settings(spec.kind, spec.env)
        before = self._records.find(name)
        if before is not None and before.spec.kind != spec.kind:
            raise Conflict(f"{name} is a {before.spec.kind}", where=f"workload {name}", hint="give it another name")
        record = Workload(
            spec=spec,
            # What was drained by it stays ours.
            mark=before.mark if before else f"strata/{secrets.token_hex(4)}",
            author=who.name,
            connected=self._fleet.controller.clock.wall(),
        )
        trial = self._open(name, record)
        try:
            with connecting(spec.kind):
                look = await trial.now()
        finally:
            await trial.close()
        registry = self._fleet.registry
        if len(registry) and not any(registry.find(trial.own(theirs)) >= 0 for theirs in look.nodes):
            # Its jobs would be on nodes that are held to have none.
            raise BadRequest(
                f"it knows none of our nodes; its own are {_short(look.nodes) or 'none at all'}",
                where="names",
                hint="say what it calls them: strata workload connect --map OURS=ITS",
            )
        detail = {"kind": spec.kind, "on": spec.on or "here"}
        await self._records.put(who.name, name, record, action="connect", detail=detail)
        cluster = self.cluster(name)
        cluster.last = cluster.last or look
        return await self._view(who, name, record)

    async def disconnect(self, who: Principal, name: str, *, force: bool = False) -> None:
        """Disconnect it. Nodes that Strata drained there would stay so: while there are any, this is refused unless
        forced."""
        self._fleet.need_whole_fleet(who, "a workload manager")
        cluster = self.cluster(name)
        if not force:
            look = await cluster.now()
            ours = [cluster.own(theirs) for theirs, seen in look.nodes.items() if seen.ours]
            if ours:
                raise Refused(
                    f"Strata drained {_short(ours)} in {cluster}, and could not resume them any more",
                    by="drained nodes",
                    where=f"workload {name}",
                    hint="set workload=in on them first, or insist with force",
                )
        await self._records.delete(who.name, name, action="disconnect")

    async def nodes(self, who: Principal, name: str, select: str = "") -> Sequence[WorkloadNode]:
        """Nodes as it sees them: their state in its own words, the jobs on them, who drained them and why."""
        cluster = self.cluster(name)
        names = [self._fleet.registry.names[index] for index in self._fleet.seen(who, select).tolist()]
        look = await cluster.recent()
        return await asyncio.to_thread(_nodes, cluster, look, names)

    async def busy(self, names: Sequence[str]) -> Sequence[bool]:
        """On which nodes a job is, as they say now; where one of them does not answer, a job may be on any."""
        found = [True] * len(names)
        # What was said seconds ago is enough for a no. A job may have begun since, so a yes is asked for once more.
        for ask in (Cluster.recent, Cluster.now):
            looks = await gathered(list(self._clusters.values()), ask)
            if any(isinstance(look, StrataError) for look in looks.values()):
                return [True] * len(names)
            found = await asyncio.to_thread(occupied, looks, names)
            if all(found):
                break
        return found

    def reasons(self, who: Principal, node: Node) -> Sequence[str]:
        """What a workload manager has against a node: that it is down there, or drained by somebody else."""
        said = []
        for cluster in self._clusters.values():
            seen = cluster.last.nodes.get(cluster.called(node.name)) if cluster.last else None
            if seen is None or seen.ours or not (seen.down or seen.drained or not seen.understood):
                continue
            why = f": {seen.reason}" if seen.reason else ""
            jobs = f"; {jobs_in_words(seen.jobs)}" if seen.jobs else ""
            said.append(f"{cluster} says {seen.state}{why}{f' ({seen.by})' if seen.by else ''}{jobs}")
        return said

    # -- tellings

    async def _tell(self) -> None:
        """Tell the engine what all of them say."""
        await self._close()
        asked = await gathered(list(self._clusters.values()), Cluster.recent)
        # One that was disconnected meanwhile is none of our business any more.
        looks = {cluster: look for cluster, look in asked.items() if self._clusters.get(cluster.name) is cluster}
        for cluster in looks:
            self._alarm(cluster)
        began = min((look.began for look in looks.values() if isinstance(look, Look)), default=None)
        if began is None or len(looks) < len(self._clusters):
            return  # nobody answers; or another was connected meanwhile, and is asked next
        registry = self._fleet.registry
        indices = np.flatnonzero(registry.alive)
        names = [registry.names[index] for index in indices.tolist()]
        seen: Column = await asyncio.to_thread(column, looks, names)
        good = seen.codes != 0
        if done := self.driver.told_since(began):
            good &= np.fromiter((name not in done for name in names), dtype=np.bool_, count=len(names))
        source = str(next(iter(looks))) if len(looks) == 1 else NoWorkload.name
        if good.any():
            self._fleet.controller.tell(indices[good], {NoWorkload.name: seen.take(good)}, source)

    def _alarm(self, cluster: Cluster) -> None:
        if self._alarmed.get(cluster.name, "") == cluster.trouble:
            return
        self._alarmed[cluster.name] = cluster.trouble
        if cluster.trouble:
            log.warning("a workload manager does not answer", extra={"who": str(cluster), "error": cluster.trouble})
        self._fleet.alarm(
            Alarm(
                kind="workload-manager",
                severity="warning" if cluster.trouble else "ok",
                message=f"{cluster} does not answer, so that nothing on its nodes is changed: {cluster.trouble}"
                if cluster.trouble
                else f"{cluster} answers",
                about=cluster.name,
            )
        )

    # -- connections

    def cluster(self, name: str) -> Cluster:
        """A connected workload manager, to ask and to tell; ``NotFound``: there is none of that name."""
        self._records.get(name)  # says that it is not there
        return self._clusters[name]

    def _open(self, name: str, record: Workload) -> Cluster:
        spec = record.spec
        scheduler = open_scheduler(spec.kind, runner_of(self._fleet, spec), record.mark)
        return Cluster(name, spec, scheduler, clock=self._fleet.controller.clock.now)

    def _changed(self, name: str, record: Workload | None) -> None:
        if (old := self._clusters.pop(name, None)) is not None:
            self._ended.append(old)
        if record is not None:
            self._clusters[name] = self._open(name, record)
        elif self._alarmed.pop(name, ""):
            gone = Alarm(
                kind="workload-manager", severity="ok", message=f"{name} is not connected any more", about=name
            )
            self._fleet.alarm(gone)
        self._polling.soon()

    def _cleared(self) -> None:
        self._ended += self._clusters.values()
        self._clusters.clear()

    async def _close(self) -> None:
        ended, self._ended = self._ended, []
        for cluster in ended:
            await cluster.close()

    def _why(self, name: str) -> str:
        """What a node is drained for: the next step on its way."""
        index = self._fleet.registry.find(name)
        way = self._fleet.controller.engine.way(index) if index >= 0 else ()
        after = way[way.index("leave-workload") + 1 :] if "leave-workload" in way else ()
        if after and after[0] in self.whys:
            return self.whys[after[0]](name)
        return f"to {after[0]}" if after else "it is set to workload=out"

    async def _view(self, who: Principal, name: str, record: Workload) -> WorkloadView:
        cluster, registry = self.cluster(name), self._fleet.registry
        nodes = [node for index in self._fleet.seen(who, "").tolist() if (node := registry.node_at(index))]
        look = cluster.last
        counted = await asyncio.to_thread(_count, cluster, look, nodes) if look else _Counted(0, 0, 0, "", "")
        if who.scope:
            counted = counted._replace(strangers="")  # nodes of others are strangers to it, too
        return WorkloadView.of(
            record.spec,
            record,
            counted,
            name=name,
            answers=look is not None and not cluster.trouble,
            trouble=cluster.trouble,
            seen=self._fleet.controller.clock.to_wall(look.began) if look else None,
        )


def runner_of(fleet: Fleet, reached: Reached) -> Runner:
    """What runs the commands of a scheduler."""
    ssh_config = fleet.section(PlatformSettings).ssh_config
    return Runner(Place(on=reached.on or "", env=reached.env), prefix=fleet.way_out, ssh_config=ssh_config)


class _Counted(NamedTuple):
    nodes: int
    drained: int
    busy: int
    strangers: str
    missing: str


def _count(cluster: Cluster, look: Look, nodes: Sequence[Node]) -> _Counted:
    known = {theirs: look.nodes[theirs] for node in nodes if (theirs := cluster.called(node.name)) in look.nodes}
    strangers = _short(theirs for theirs in look.nodes if theirs not in known)
    missing = _short(node.name for node in nodes if node.role == "compute" and cluster.called(node.name) not in known)
    drained, busy = (sum(bool(getattr(seen, of)) for seen in known.values()) for of in ("drained", "jobs"))
    return _Counted(len(known), drained, busy, strangers, missing)


def _short(names: Iterable[str]) -> str:
    return shortened(fold(names), _SHOWN)


def _nodes(cluster: Cluster, look: Look, names: Sequence[str]) -> list[WorkloadNode]:
    found = []
    for name in names:
        theirs = cluster.called(name)
        if (seen := look.nodes.get(theirs)) is not None:
            found.append(WorkloadNode.of(seen, node=name, called=theirs, workload=place(seen)))
    return found
