"""Requests about agents: what they say of themselves, and the machines that nobody knows yet."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from strata.control import agent_views as a
from strata.control import views as v
from strata.control.principal import Principal
from strata.control.service import Service
from strata.core.errors import BadRequest, Conflict
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.inventories import Inventories
from strata.provisioning.agents.unknown import Machine, UnknownMachines
from strata.provisioning.agents.wire import State

_decode = msgspec.json.Decoder(State).decode


class AgentService:
    """Agents, as people see them."""

    def __init__(
        self,
        service: Service,
        hub: Hub,
        unknown: UnknownMachines,
        inventories: Inventories,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._service = service
        self._hub = hub
        self._unknown = unknown
        self._inventories = inventories
        self._monotonic = monotonic
        self._wall = wall

    async def agent(self, who: Principal, name: str) -> a.AgentView:
        """What a node's agent last said."""
        self._service.index(who, name)
        agent = self._hub.get(name)
        if agent is None or agent.seen is None:
            return _view(name, State())
        state, away = _decode(agent.state), self._wall() - self._monotonic()
        view = _view(name, state)
        return msgspec.structs.replace(
            view,
            attached=self._hub.attached(name),
            contact=agent.contact + away,
            since=agent.since + away,
            generation=agent.seen.generation,
            failure=agent.failure,
            pending=len(agent.outbox),
        )

    async def inventory(self, who: Principal, name: str) -> a.InventoryView:
        """What it said of its hardware."""
        self._service.index(who, name)
        found = await self._inventories.get(name)
        return a.InventoryView(node=name, time=found.time, inventory=found.tree)

    async def unknown(self, who: Principal) -> a.UnknownMachines:
        """The machines that wait to be adopted."""
        self._service.need_whole_fleet(who, "machines that nobody knows")
        return a.UnknownMachines(items=tuple(map(_machine, self._unknown.all())))

    async def adopt(self, who: Principal, mac: str, wanted: a.AdoptMachine) -> v.NodeView:
        """Make a node of one: it boots as that the next time that it says hello."""
        machine = self._unknown.get(mac)
        first = v.InterfaceSpec(mac=machine.mac, address=wanted.address, name="boot")
        others = (v.InterfaceSpec(mac=other) for other in machine.macs if other != machine.mac)
        spec = v.NodeSpec(
            name=wanted.name,
            location=wanted.location,
            role=wanted.role,
            bmc=wanted.bmc,
            interfaces=(first, *others),
        )
        result = (await self._service.create_nodes(who, [spec]))[0]
        if not result.ok:
            raise (Conflict if result.status == 409 else BadRequest)(result.error, where=wanted.name)
        return self._service.view.node(self._service.registry.index_of(wanted.name))

    async def forget(self, who: Principal, mac: str) -> None:
        """Not to be shown any more, until it says hello again."""
        self._service.need_whole_fleet(who, "machines that nobody knows")
        self._unknown.forget(mac)


def _machine(machine: Machine) -> a.UnknownMachine:
    return a.UnknownMachine(
        mac=machine.mac,
        macs=machine.macs,
        uuid=machine.uuid,
        serial=machine.serial,
        peer=machine.peer,
        first=machine.first,
        last=machine.last,
        inventory=machine.inventory,
    )


def _view(name: str, state: State) -> a.AgentView:
    held = state.set
    return a.AgentView(
        node=name,
        attached=False,
        contact=None,
        since=None,
        generation=0,
        version=state.agent.version,
        profile=state.profile,
        uptime=state.uptime,
        cpu_s=state.agent.cpu_s,
        set=held.name,
        set_digest=held.digest,
        state=held.state,
        reason=held.reason,
        members=tuple(
            a.MemberState(
                name=member.name,
                state=member.state,
                ready=member.ready,
                restarts=member.restarts,
                since=member.since,
                reason=member.reason,
            )
            for member in held.members
        ),
        loaded=state.loaded,
        healthy=state.health.ok,
        problems=state.health.problems,
        metrics=state.metrics,
        failure="",
        pending=0,
    )
