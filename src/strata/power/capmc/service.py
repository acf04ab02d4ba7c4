"""CAPMC over the running fleet: each caller gets a view of its own, limited to its scope.

What is asked of the whole machine is answered from memory (the registry, the engine's facts, ``PowerColumns``); what
changes something is a tracked operation.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core import intset, xname
from strata.core.distinct import common, distinct
from strata.core.errors import BadRequest, Unavailable
from strata.core.host.local_zone import LOCAL
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal, Right
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.fleet.system.service import SystemService
from strata.hardware.bmc.operations import BmcOrder
from strata.hardware.emergency.records import EmergencyRequest
from strata.hardware.emergency.service import EmergencyService, confirmation
from strata.hardware.feeds.driver import FeedDriver
from strata.hardware.feeds.feeds import CHASSIS, OUTLET
from strata.power.accounting.records import Spans
from strata.power.accounting.service import PowerJobs
from strata.power.capmc.records import CapmcRecords, NodeTable, Switch
from strata.power.capmc.rules import Rules
from strata.power.capmc.states import powered, states_of
from strata.power.capping.operations import FROZEN, CapOperations
from strata.power.capping.sender import CapSender
from strata.power.capping.terms import CapChange
from strata.power.limits.inband import Attribute, Inband
from strata.power.limits.operations import Became, LimitOperations
from strata.power.series.records import Energy
from strata.power.series.series import Series
from strata.power.site.limits import Parameters
from strata.power.site.site import SitePower
from strata.power.telemetry.collector import CollectorSettings
from strata.power.telemetry.columns import Floats, PowerColumns, PowerRows, Uids

_PRESS = Right("create", "emergency")
HELD = "held: a person took it out of automation, and has not given it back"

SYSTEM = ("s0", "all")


class _Known(msgspec.Struct):
    """The nodes with a NID, as they were described at ``stamp``."""

    stamp: tuple[int, int]
    nids: npt.NDArray[np.int64]
    nodes: Indices


class CapmcService:
    """What all callers share. ``sender`` sets caps, as far as ``site`` allows."""

    def __init__(
        self,
        fleet: Fleet,
        columns: PowerColumns,
        sender: CapSender,
        *,
        site: SitePower | None = None,
        series: Series | None = None,
        inband: Inband | None = None,
        jobs: PowerJobs | None = None,
        rules: Rules | None = None,
        zone: dt.tzinfo | None = None,
    ) -> None:
        """``series``: None: there is no telemetry. ``inband``: the kernels of nodes; None: they cannot be reached.
        ``zone``: of the times in requests and replies."""
        self.fleet = fleet
        self.columns = columns
        self.site = site
        self.caps = CapOperations(fleet, sender, columns, site)
        self.kept = CapmcRecords(fleet.controller.store, fleet.ledger)
        self.series = series
        self.inband = inband
        self.limits = LimitOperations(fleet, inband) if inband is not None else None
        self.jobs = jobs
        self.rules = rules or Rules()
        self.zone = zone or LOCAL
        self.feeds = FeedDriver(fleet.registry, fleet.controller.engine, fleet.controller.clock.now)
        self._known = _Known((-1, -1), *(np.empty(0, np.int64),) * 2)

    def of(self, who: Principal) -> CapmcMachine:
        """The machine as ``who`` may see and use it."""
        return CapmcMachine(self, who)

    def known(self) -> _Known:
        """The nodes with a NID; made anew only when a description changed."""
        registry = self.fleet.registry
        stamp = int(registry.revisions.max(initial=0)), len(registry)
        if self._known.stamp != stamp:
            pairs = sorted(
                (node.nid, index)
                for index, node in enumerate(registry.nodes)
                if node is not None and node.nid is not None
            )
            nodes = np.array([index for _, index in pairs], dtype=np.int64)
            nids = np.array([nid for nid, _ in pairs], dtype=np.int64)
            self._known = _Known(stamp, nids, nodes)
        return self._known


class CapmcMachine:
    """The machine as one caller may see and use it: what the applets ask. Nodes outside its scope are not there."""

    def __init__(self, service: CapmcService, who: Principal) -> None:
        self._service = service
        self.fleet = service.fleet
        self.who = who
        self.rules = service.rules
        self.series = service.series
        self.inband = service.inband
        self.zone = service.zone
        self._registry = service.fleet.registry
        self._table: NodeTable | None = None

    @property
    def caller(self) -> str:
        """Who asks, as a part of a key."""
        return self.who.name.encode().hex()

    @property
    def parameters(self) -> Parameters:
        return self._service.site.parameters() if self._service.site is not None else Parameters()

    @property
    def trouble(self) -> str:
        """Why requests cannot be answered as they should; empty: they can."""
        return self.fleet.of(SystemService).not_ready()

    @property
    def fresh(self) -> float:
        """Seconds that a counter may be old to be the latest: three looks at a node, which is 30 s, as CAPMC has it,
        unless the fleet is so large that they are fewer."""
        return 3 * CollectorSettings().interval(len(self._registry))

    def now(self) -> float:
        return self.fleet.controller.clock.wall()

    def nodes(self) -> NodeTable:
        """The caller's nodes that have a NID; the same for the whole of a request."""
        if self._table is None:
            known, mask = self._service.known(), self.fleet.scope(self.who)
            seen = slice(None) if mask is None else mask[known.nodes]
            self._table = self._described(known.nids[seen], known.nodes[seen])
        return self._table

    def those(self, uids: Uids) -> NodeTable:
        """These nodes, with a NID or without."""
        known, nodes = self._service.known(), self._registry.indices_of(uids)
        nids = np.full(self._registry.size, -1, dtype=np.int64)
        nids[known.nodes] = known.nids
        return self._described(nids[nodes], nodes)

    def _described(self, nids: npt.NDArray[np.int64], nodes: Indices) -> NodeTable:
        states, flags = states_of(self.fleet, nodes)
        roles = self._registry.roles
        return NodeTable(
            nids=nids,
            uids=self._registry.uids[nodes],
            states=states,
            hardware=powered(self.fleet, nodes),
            compute=roles.where("compute")[nodes],
            feeds=(roles.where(CHASSIS) | roles.where(OUTLET))[nodes],
            flags=flags,
        )

    def rows(self, uids: Uids) -> PowerRows:
        return self._service.columns.rows(uids)

    def counters(self, uids: Uids) -> tuple[Floats, Floats, Floats]:
        """Energy counters as they stand now: joules, of which time, and when each was read. NaN: not read of late."""
        return self._service.columns.counters.at(uids, self.now(), self.fresh)

    def names(self, uids: Uids) -> Sequence[str]:
        return self.fleet.view.names(self._registry.indices_of(uids))

    def places(self, uids: Uids) -> Sequence[str]:
        """Where they are, or what they are called."""
        nodes = self._registry.nodes
        found = (nodes[index] for index in self._registry.indices_of(uids).tolist())
        return [(node.location or node.name) if node is not None else "" for node in found]

    def cabinets(self, uids: Uids) -> Sequence[str]:
        words = self._registry.location("cabinet")
        return [words.table[code] for code in words.codes[self._registry.indices_of(uids)].tolist()]

    def label(self, uids: Uids, key: str) -> Sequence[str]:
        words = self._registry.label(key)
        return [words.table[code] for code in words.codes[self._registry.indices_of(uids)].tolist()]

    def at_places(self, places: Sequence[str]) -> Sequence[int]:
        """The uid of the node at each place, or with that name; -1: there is none."""
        registry, scope, found = self._registry, self.fleet.scope(self.who), []
        for place in places:
            index = registry.at_location(place)
            index = registry.find(place) if index < 0 else index
            visible = index >= 0 and (scope is None or bool(scope[index]))
            found.append(int(registry.uids[index]) if visible else -1)
        return found

    def below(self, place: str) -> Uids:
        """Every node in a component (a cabinet, a chassis; ``s0`` and ``all``: the system), itself included."""
        scope = self.fleet.scope(self.who)
        mask = self._registry.alive if scope is None else self._registry.alive & scope
        if place not in SYSTEM:
            try:
                where = xname.parse(place)
            except BadRequest:
                return np.empty(0, dtype=np.int64)
            mask = mask & self._registry.location(where.type).where(where.text)
        return np.sort(self._registry.uids[mask])

    def feeders(self, uids: Uids) -> Uids:
        """What gives power to nodes, and what to that, as far as the outlets."""
        known, scope = self._service.feeds.feeds(), self.fleet.scope(self.who)
        nodes, found = self._registry.indices_of(uids), set[int]()
        more = set(distinct(known.kinds[nodes]).tolist()) if len(known.kinds) else set[int]()
        while more:
            fresh = {node for kind in more for node in known.feeders[kind]} - found
            found |= fresh
            more = {int(known.kinds[node]) for node in fresh}
        indices = np.array(sorted(found), dtype=np.int64)
        return np.sort(self._registry.uids[indices if scope is None else indices[scope[indices]]])

    def group(self, name: str) -> Uids | None:
        if name not in self._registry.groups:
            return None
        members, mask = self._registry.groups.mask(name), self.fleet.scope(self.who)
        if mask is not None:
            if name not in self.who.scope and not (members & mask).any():
                return None
            members = members & mask
        return np.sort(self._registry.uids[members])

    def may_press(self) -> bool:
        """Whether the caller has a right to the emergency off."""
        return self.who.may(_PRESS)

    # changing

    async def switch(self, uids: Uids, to: Switch, *, reason: str, force: bool) -> Mapping[int, str]:
        """On and off are desires, which the engine fulfils with all its brakes; a restart is done at once, and ends
        with the node on, whatever was wanted before. Whoever is frozen or held is left as it is, and told."""
        nodes = self._registry.indices_of(uids)
        held, frozen = self._registry.brakes.held[nodes], self._registry.brakes.frozen[nodes]
        braked = dict.fromkeys(uids[held].tolist(), HELD) | dict.fromkeys(uids[frozen].tolist(), FROZEN)
        uids, nodes = uids[~held & ~frozen], nodes[~held & ~frozen]
        if not len(uids):
            return braked
        names = fold(self.fleet.view.names(nodes))
        detail = {"reason": reason[:500], "nodes": len(uids)}
        await self.fleet.ledger.commit(self.who.name, f"capmc.node_{to}", names[:1000], [], None, detail)
        if to == "reinit":
            # First, so that no step towards an earlier off begins any more; who is on its way there is brought back.
            await self.fleet.operations.wait(await self._desire(uids, "on"))
            off = self.fleet.view.fact_mask("power", "off")[nodes]
            if not off.all():
                # Who schedules the jobs knows what it asks for: that one runs there is not held against it.
                insist = force or self.who.role == "workload-manager"
                order = BmcOrder(what="power", action="cycle", force=insist)
                await self._start("bmc", uids[~off], {"order": msgspec.to_builtins(order)})
        else:
            await self._desire(uids, to)
        return braked

    async def _desire(self, uids: Uids, power: str) -> str:
        more = {"set": {"power": (power,)}, "unset": (), "author": self.who.name, "if_match": None}
        return await self._start("set-desires", uids, more)

    async def _start(self, kind: str, uids: Uids, more: Mapping[str, Any]) -> str:
        """Begin an operation; its id."""
        arguments = {"uids": intset.pack(np.sort(uids)), **more}
        return (await self.fleet.operations.start(kind, self.who.name, len(uids), arguments)).id

    def no_room(self, uids: Uids, watts: npt.NDArray[np.float64]) -> str:
        """Why the site cannot have nodes at these caps (0: none), all of them together; empty: it can."""
        return "" if self._service.site is None else self._service.site.no_room(uids, watts)

    async def set_caps(self, changes: Sequence[CapChange]) -> Mapping[int, str]:
        return await self._service.caps.set_caps(self.who.name, changes)

    async def set_limits(self, uids: Uids, changes: Sequence[tuple[Attribute, int]]) -> Mapping[int, Became]:
        """Set limits in their kernels, as a tracked operation."""
        if self._service.limits is None:
            raise Unavailable("the kernels of this service's nodes cannot be reached")
        return await self._service.limits.set_limits(self.who.name, uids, changes)

    async def emergency_off(self, uids: Uids, reason: str) -> Mapping[int, str]:
        names = self.names(uids)
        request = EmergencyRequest(select=fold(names), reason=reason, confirm=confirmation(len(uids)))
        report = await self.fleet.of(EmergencyService).power_off(self.who, request)
        failed: dict[int, str] = {}
        for one in report.outcome.failed:
            for index in self._registry.select(one.nodes).tolist():
                failed[int(self._registry.uids[index])] = one.reason
        return failed

    # kept

    async def records(self, kind: str) -> Mapping[int, Any]:
        return await self._service.kept.read(kind)

    async def keep(self, kind: str, values: Mapping[int, Any]) -> None:
        await self._service.kept.write(self.who.name, kind, values)

    async def stage(self, kind: str, values: Mapping[int, str]) -> None:
        """For nodes whose label ``bios-KIND`` names a firmware setting: stage it there, as a tracked operation."""
        uids = np.fromiter(values, np.int64, len(values))
        wanted: dict[tuple[str, str], list[int]] = {}
        for uid, attribute in zip(uids.tolist(), self.label(uids, f"bios-{kind}"), strict=True):
            if attribute:
                wanted.setdefault((attribute, values[uid]), []).append(uid)
        for (attribute, value), members in wanted.items():
            order = BmcOrder(what="bios", attributes={attribute: value})
            await self._start("bmc", np.array(members, dtype=np.int64), {"order": msgspec.to_builtins(order)})

    async def energy(self, uids: Uids, start: float, end: float) -> Energy:
        if self.series is None:
            raise Unavailable("this service keeps no telemetry")
        return await self.series.energy(np.sort(uids), start, end)

    async def ran(self, *, job: str = "", apid: str = "") -> Spans | None:
        """When and where it ran, as far as the caller may see."""
        found = None if self._service.jobs is None else await self._service.jobs.ran(job, apid)
        if found is None:
            return None
        uids = common(found.uids, self.nodes().uids)
        return Spans(uids=uids, spans=found.spans) if len(uids) else None
