"""CAPMC over the running fleet: each caller gets a view of its own, limited to its scope.

What is asked of the whole machine is answered from memory (the registry, the engine's facts, ``PowerColumns``); what
changes something is a tracked job.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.control.bmc_jobs import Deed
from strata.control.cap_jobs import FROZEN, CapBooks, CapJobs
from strata.control.cap_sender import CapSender
from strata.control.capmc_boots import CapmcBoots
from strata.control.capmc_drives import drives_of
from strata.control.capmc_places import at_places, below, feeders
from strata.control.capmc_records import CapmcRecords
from strata.control.capmc_states import states_of
from strata.control.columns import Indices
from strata.control.feed_driver import FeedDriver
from strata.control.limit_jobs import Became, LimitJobs
from strata.control.machine import Machine
from strata.control.machine_views.emergency import EmergencyRequest
from strata.control.principal import Principal, Right
from strata.control.service import Service
from strata.control.service_emergency import confirmation
from strata.core import intset
from strata.core.errors import Unavailable
from strata.core.local_zone import LOCAL
from strata.core.nodeset import fold
from strata.hardware.feeds import CHASSIS, OUTLET
from strata.power.capmc import staged
from strata.power.capmc.machine import CapChange, Drive, NodeTable, Parameters, Rules, Spans, Switch
from strata.power.collector import CollectorSettings
from strata.power.columns import PowerColumns, PowerRows, Uids
from strata.power.inband import Attribute, Inband
from strata.power.series import Energy, Series

_PRESS = Right("create", "emergency")
_SELF = Principal(name="strata", role="admin")
HELD = "held: a person took it out of automation, and has not given it back"

Ran = Callable[[str, str], Awaitable[Spans | None]]
"""``ran(job, apid)``: when and where it ran."""


class _Known(msgspec.Struct):
    """The nodes with a NID, as they were described at ``stamp``."""

    stamp: tuple[int, int]
    nids: npt.NDArray[np.int64]
    nodes: Indices


class CapmcService:
    """What the API asks. ``sender`` sets caps, as far as ``books`` allow."""

    def __init__(
        self,
        fleet: Service,
        machine: Machine,
        columns: PowerColumns,
        sender: CapSender,
        *,
        books: CapBooks | None = None,
        series: Series | None = None,
        inband: Inband | None = None,
        ran: Ran | None = None,
        rules: Rules | None = None,
        parameters: Callable[[], Parameters] = Parameters,
        zone: dt.tzinfo | None = None,
    ) -> None:
        self.fleet = fleet
        self.machine = machine
        self.columns = columns
        self.books = books
        self.caps = CapJobs(fleet, sender, columns, books)
        self.kept = CapmcRecords(fleet.controller.store, fleet.ledger)
        self.series = series
        self.inband = inband
        self.limits = LimitJobs(fleet, inband) if inband is not None else None
        self.ran = ran
        self.rules = rules or Rules()
        self.parameters = parameters
        self.zone = zone
        self.feeds = FeedDriver(fleet.registry, fleet.controller.engine, fleet.controller.clock.now)
        self._boots = CapmcBoots(fleet, self._booted)
        self._known = _Known((-1, -1), *(np.empty(0, np.int64),) * 2)

    async def start(self) -> None:
        """Note from now on with which settings nodes boot."""
        await self._boots.start()

    async def stop(self) -> None:
        """Note it no more."""
        await self._boots.stop()

    async def _booted(self, uids: Uids) -> None:
        await staged.booted(self.of(_SELF), uids[self.fleet.registry.indices_of(uids) >= 0])

    def of(self, who: Principal) -> CapmcView:
        """The machine as ``who`` may see and use it."""
        return CapmcView(self, who)

    def known(self) -> _Known:
        """The nodes with a NID; made anew only when a description changed."""
        registry = self.fleet.registry
        stamp = int(registry.revisions.max(initial=0)), len(registry)
        if self._known.stamp != stamp:
            pairs = sorted(
                (node.nid, index)
                for index, node in enumerate(registry.roster.nodes)
                if node is not None and node.nid is not None
            )
            nodes = np.array([index for _, index in pairs], dtype=np.int64)
            nids = np.array([nid for nid, _ in pairs], dtype=np.int64)
            self._known = _Known(stamp, nids, nodes)
        return self._known


class CapmcView:
    """Implements ``strata.power.capmc.machine.CapmcMachine`` for one caller."""

    def __init__(self, service: CapmcService, who: Principal) -> None:
        self._service = service
        self._fleet = service.fleet
        self._registry = service.fleet.registry
        self._who = who
        self.rules = service.rules
        self.parameters = service.parameters()
        self.series = service.series
        self.inband = service.inband
        self.zone = service.zone or LOCAL
        self._table: NodeTable | None = None

    @property
    def trouble(self) -> str:
        """Why the controller cannot serve; empty: it can."""
        return self._fleet.not_ready()

    @property
    def fresh(self) -> float:
        """Three looks at a node: 30 s, as CAPMC has it, unless the fleet is so large that they are fewer."""
        return 3 * CollectorSettings().interval(len(self._registry))

    def now(self) -> float:
        """Unix seconds."""
        return self._fleet.controller.clock.wall()

    def nodes(self) -> NodeTable:
        """The caller's nodes that have a NID; the same for the whole of a request."""
        if self._table is None:
            known, mask = self._service.known(), self._fleet.scope(self._who)
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
        states, flags = states_of(self._fleet, nodes)
        roles = self._registry.roles
        return NodeTable(
            nids=nids,
            uids=self._registry.uids[nodes],
            states=states,
            compute=roles.where("compute")[nodes],
            feeds=(roles.where(CHASSIS) | roles.where(OUTLET))[nodes],
            flags=flags,
        )

    def rows(self, uids: Uids) -> PowerRows:
        """What is known of their power."""
        return self._service.columns.rows(uids)

    def names(self, uids: Uids) -> Sequence[str]:
        """What they are called."""
        return self._fleet.view.names(self._registry.indices_of(uids))

    def places(self, uids: Uids) -> Sequence[str]:
        """Where they are, or what they are called."""
        nodes = self._registry.roster.nodes
        found = (nodes[index] for index in self._registry.indices_of(uids).tolist())
        return [(node.location or node.name) if node is not None else "" for node in found]

    def cabinets(self, uids: Uids) -> Sequence[str]:
        """The cabinet of each."""
        words = self._registry.location("cabinet")
        return [words.table[code] for code in words.codes[self._registry.indices_of(uids)].tolist()]

    def label(self, uids: Uids, key: str) -> Sequence[str]:
        """What their label says."""
        words = self._registry.label(key)
        return [words.table[code] for code in words.codes[self._registry.indices_of(uids)].tolist()]

    def at_places(self, places: Sequence[str]) -> Sequence[int]:
        """The uid of the node at each place, or with that name."""
        return at_places(self._registry, self._fleet.scope(self._who), places)

    def below(self, place: str) -> Uids:
        """Every node in a component, itself included."""
        return np.sort(self._registry.uids[below(self._registry, self._fleet.scope(self._who), place)])

    def feeders(self, uids: Uids) -> Uids:
        """What gives power to nodes, up to the outlet."""
        nodes = self._registry.indices_of(uids)
        return np.sort(self._registry.uids[feeders(self._service.feeds, self._fleet.scope(self._who), nodes)])

    def group(self, name: str) -> Uids | None:
        """The members of a group."""
        if name not in self._registry.groups:
            return None
        members, mask = self._registry.groups.mask(name), self._fleet.scope(self._who)
        if mask is not None:
            if name not in self._who.scope and not (members & mask).any():
                return None
            members = members & mask
        return np.sort(self._registry.uids[members])

    def partitions(self) -> Mapping[str, Uids]:
        """One part: the machine is not cut up."""
        return {"p0": self.nodes().uids}

    def may_press(self) -> bool:
        """Whether the caller has a right to the emergency off."""
        return self._who.may(_PRESS)

    # changing

    async def switch(self, uids: Uids, to: Switch, *, reason: str, force: bool) -> Mapping[int, str]:
        """On and off are desires, which the engine fulfils with all its brakes; a restart is done at once. Whoever is
        frozen or held is left as it is, and told."""
        nodes = self._registry.indices_of(uids)
        held, frozen = self._registry.brakes.held[nodes], self._registry.brakes.frozen[nodes]
        braked = dict.fromkeys(uids[held].tolist(), HELD) | dict.fromkeys(uids[frozen].tolist(), FROZEN)
        uids, nodes = uids[~held & ~frozen], nodes[~held & ~frozen]
        if not len(uids):
            return braked
        names = fold(self._fleet.view.names(nodes))
        detail = {"reason": reason[:500], "nodes": len(uids)}
        await self._fleet.ledger.commit(self._who.name, f"capmc.node_{to}", names[:1000], [], None, detail)
        if to == "reinit":
            off = self._fleet.view.fact_mask("power", "off")[nodes]
            if not off.all():
                # Who schedules the jobs knows what it asks for: that one runs there is not held against it.
                insist = force or self._who.role == "workload-manager"
                deed = Deed(what="power", action="cycle", force=insist)
                await self._start("bmc", uids[~off], {"deed": msgspec.to_builtins(deed)})
            if off.any():
                await self._desire(uids[off], "on")
        else:
            await self._desire(uids, to)
        return braked

    async def _desire(self, uids: Uids, power: str) -> None:
        more = {"set": {"power": (power,)}, "unset": (), "author": self._who.name, "if_match": None}
        await self._start("set-desires", uids, more)

    async def _start(self, kind: str, uids: Uids, more: Mapping[str, Any]) -> None:
        arguments = {"uids": intset.pack(np.sort(uids)), **more}
        await self._fleet.jobs_.start(kind, self._who.name, len(uids), arguments)

    def no_room(self, uids: Uids, watts: npt.NDArray[np.float64]) -> str:
        """Why the site cannot have nodes at these caps."""
        return "" if self._service.books is None else self._service.books.no_room(uids, watts)

    async def set_caps(self, changes: Sequence[CapChange]) -> Mapping[int, str]:
        """Set caps, as a tracked job."""
        return await self._service.caps.set_caps(self._who.name, changes)

    async def set_limits(self, uids: Uids, changes: Sequence[tuple[Attribute, int]]) -> Mapping[int, Became]:
        """Set limits in their kernels, as a tracked job."""
        if self._service.limits is None:
            raise Unavailable("the kernels of this service's nodes cannot be reached")
        return await self._service.limits.set_limits(self._who.name, uids, changes)

    async def emergency_off(self, uids: Uids, reason: str) -> Mapping[int, str]:
        """Take power away now."""
        names = self.names(uids)
        request = EmergencyRequest(select=fold(names), reason=reason, confirm=confirmation(len(uids)))
        report = await self._service.machine.emergency.power_off(self._who, request)
        failed: dict[int, str] = {}
        for one in report.outcome.failed:
            for index in self._registry.select(one.nodes).tolist():
                failed[int(self._registry.uids[index])] = one.reason
        return failed

    # kept

    async def records(self, kind: str) -> Mapping[int, Any]:
        """What was kept."""
        return await self._service.kept.read(kind)

    async def keep(self, kind: str, values: Mapping[int, Any]) -> None:
        """Keep it."""
        await self._service.kept.write(self._who.name, kind, values)

    async def stage(self, kind: str, values: Mapping[int, str]) -> None:
        """For nodes whose label ``bios-KIND`` names a setting of their firmware: stage it there, as a tracked job."""
        uids = np.fromiter(values, np.int64, len(values))
        wanted: dict[tuple[str, str], list[int]] = {}
        for uid, attribute in zip(uids.tolist(), self.label(uids, f"bios-{kind}"), strict=True):
            if attribute:
                wanted.setdefault((attribute, values[uid]), []).append(uid)
        for (attribute, value), members in wanted.items():
            deed = Deed(what="bios", attributes={attribute: value})
            await self._start("bmc", np.array(members, dtype=np.int64), {"deed": msgspec.to_builtins(deed)})

    # what is known elsewhere

    async def drives(self, uids: Uids) -> Mapping[int, Sequence[Drive]]:
        """From the inventory."""
        names = self.names(uids)
        found = await drives_of(self._service.machine.inventory, self._who, names)
        return {uid: found[name] for uid, name in zip(uids.tolist(), names, strict=True) if name in found}

    async def energy(self, uids: Uids, start: float, end: float) -> Energy:
        """What they used."""
        if self.series is None:
            raise Unavailable("this service keeps no telemetry")
        return await self.series.energy(np.sort(uids), start, end)

    async def ran(self, *, job: str = "", apid: str = "") -> Spans | None:
        """When and where it ran, as far as the caller may see."""
        found = None if self._service.ran is None else await self._service.ran(job, apid)
        if found is None:
            return None
        uids = np.intersect1d(found.uids, self.nodes().uids)
        return Spans(uids=uids, spans=found.spans) if len(uids) else None
