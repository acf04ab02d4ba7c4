"""Requests about agents: what they say of themselves, and the machines that nobody knows yet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from strata.core.errors import BadRequest, Conflict, NotFound, StrataError, Unavailable
from strata.core.texts import ListOf
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.records import InterfaceSpec, NodeSpec, NodeView
from strata.fleet.nodes.service import NodeService
from strata.fleet.peers.leaders import LeaderClient
from strata.provisioning.agents import records as a
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.inventories import Inventories
from strata.provisioning.agents.unknown import UnknownMachines
from strata.provisioning.agents.wire import State
from strata.provisioning.images.release import DIGEST

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(State).decode


class _Images(msgspec.Struct, frozen=True):
    """As much of a ``State``."""

    images: tuple[str, ...] = ()


_decode_images = msgspec.json.Decoder(_Images).decode


class AgentService:
    """Agents, as people see them."""

    def __init__(
        self,
        service: Fleet,
        hub: Hub,
        unknown: UnknownMachines,
        inventories: Inventories,
        elsewhere: LeaderClient,
        *,
        expects_agents: Callable[[], bool] = lambda: False,
    ) -> None:
        """``expects_agents``: whether nodes run whose agents will speak to this controller, and have not yet."""
        self._service = service
        self._hub = hub
        self._expects_agents = expects_agents
        self._unknown = unknown
        self.inventories = inventories
        """What nodes said of their hardware to this controller."""
        self._elsewhere = elsewhere

    async def agent(self, who: Principal, name: str) -> a.AgentView:
        """What the node's agent last said, to whichever controller: its personality, each member's state and reason,
        health, metrics."""
        self._service.index(who, name)
        peer = self._elsewhere.leader(name)
        if peer is None:
            return await self.agent_here(name)
        view: a.AgentView = await self._elsewhere.ask(peer, "agent", name, a.AgentView)
        return view

    async def agent_here(self, name: str) -> a.AgentView:
        """What it last said to this controller."""
        agent = self._hub.get(name)
        seen = agent.seen if agent is not None else None
        if agent is None or seen is None:
            return _view(name, State())
        away = time.time() - self._hub.clock()
        return _view(
            name,
            _decode(agent.state),
            attached=self._hub.attached(name),
            contact=agent.contact + away,
            since=agent.since + away,
            generation=seen.generation,
            failure=agent.failure,
            pending=len(agent.outbox),
        )

    async def inventory(self, who: Principal, name: str) -> a.InventoryView:
        """What the node's agent said of its hardware. It says that once a boot, to one controller: the newest is what
        counts."""
        self._service.index(who, name)
        told = [await self.inventory_here(name), *await self._all_others("inventory", name, a.InventoryView | None)]
        found: list[a.InventoryView] = [view for view in told if view is not None]
        if not found:
            raise NotFound("the node's agent has not reported its hardware yet", where=name)
        return max(found, key=lambda view: view.time)

    async def inventory_here(self, name: str) -> a.InventoryView | None:
        """What it said to this controller; None: nothing."""
        with contextlib.suppress(NotFound):
            return await self.inventories.get(name)
        return None

    async def hardware(self) -> dict[str, a.HostHardware]:
        """What all nodes said of their hardware, whichever controller they said it to; the newest is what counts."""
        told = [await self.inventories.hardware(), *await self._all_others("hardware", None, dict[str, a.HostHardware])]
        found: dict[str, a.HostHardware] = {}
        for part in told:
            for name, one in part.items():
                if name not in found or found[name].time < one.time:
                    found[name] = one
        return found

    async def images_held(self) -> frozenset[str]:
        """Digests of the images (squashfs) that nodes hold, whichever controller their agents speak to; what the silent
        last said counts. Raises where not all of it can be known."""
        elsewhere = self._elsewhere
        asked = (elsewhere.ask(peer, "images", None, frozenset[str]) for peer in elsewhere.peers.others())
        return (await self.images_held_here()).union(*await asyncio.gather(*asked))

    async def images_held_here(self) -> frozenset[str]:
        """Those of nodes whose agents spoke to this controller."""
        if self._expects_agents():
            raise Unavailable(
                "not every agent has reported its images yet to this controller, which leads them only now",
                where="agents",
                hint="try again in a minute",
            )
        found: set[str] = set()
        for count, agent in enumerate(self._hub.agents()):
            if count % 1000 == 999:
                await asyncio.sleep(0)
            if agent.state:
                found.update(_decode_images(agent.state).images)
        return frozenset(digest for digest in found if DIGEST.match(digest))

    async def unknown(self, who: Principal) -> ListOf[a.UnknownMachine]:
        """Machines that booted, are no nodes, and wait to be adopted."""
        self._service.need_whole_fleet(who, "machines that nobody knows")
        return ListOf(items=await self._strangers())

    async def unknown_here(self) -> tuple[a.UnknownMachine, ...]:
        """Those that spoke to this controller."""
        return tuple(self._unknown.all())

    async def _strangers(self) -> tuple[a.UnknownMachine, ...]:
        """Those that spoke to any controller, each as it last described itself; the newest first."""
        told = [await self.unknown_here(), *await self._all_others("unknown", None, tuple[a.UnknownMachine, ...])]
        last: dict[str, a.UnknownMachine] = {}
        for machine in sorted((machine for part in told for machine in part), key=lambda machine: machine.last):
            last[machine.mac] = machine
        return tuple(sorted(last.values(), key=lambda machine: -machine.first))

    async def _stranger(self, mac: str) -> a.UnknownMachine:
        try:
            return self._unknown.get(mac)
        except NotFound:
            for machine in await self._strangers():
                if mac.lower() in machine.macs:
                    return machine
            raise

    async def _all_others(self, route: str, question: Any, kind: Any) -> list[Any]:
        """What every other controller answers; one that is away is left out."""
        elsewhere = self._elsewhere
        asked = (elsewhere.ask(peer, route, question, kind) for peer in elsewhere.peers.others())
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, StrataError):
                log.warning("a controller was not heard", extra={"about": route, "reason": str(answer)})
            elif isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def adopt(self, who: Principal, mac: str, wanted: a.AdoptMachine) -> NodeView:
        """Make a node of one. It boots as that node within half a minute."""
        machine = await self._stranger(mac)
        first = InterfaceSpec(mac=machine.mac, address=wanted.address, name="boot")
        others = (InterfaceSpec(mac=other) for other in machine.macs if other != machine.mac)
        spec = NodeSpec(
            name=wanted.name,
            location=wanted.location,
            role=wanted.role,
            bmc=wanted.bmc,
            interfaces=(first, *others),
        )
        result = (await self._service.of(NodeService).create_nodes(who, [spec]))[0]
        if not result.ok:
            raise (Conflict if result.status == 409 else BadRequest)(result.error, where=wanted.name)
        return self._service.view.node(self._service.registry.index_of(wanted.name))

    async def forget(self, who: Principal, mac: str) -> None:
        """Forget one, until it says hello again."""
        self._service.need_whole_fleet(who, "machines that nobody knows")
        elsewhere = await self._all_others("forget", mac, bool)
        if not await self.forget_here(mac) and not any(elsewhere):
            self._unknown.get(mac)  # says that nobody knows it

    async def forget_here(self, mac: str) -> bool:
        """Whether this controller knew it."""
        try:
            self._unknown.forget(mac)
        except NotFound:
            return False
        return True


def _view(name: str, state: State, **known: Any) -> a.AgentView:
    held = state.set
    return a.AgentView(
        node=name,
        version=state.agent.version,
        profile=state.profile,
        uptime=state.uptime,
        cpu_s=state.agent.cpu_s,
        set=held.name,
        set_digest=held.digest,
        state=held.state,
        reason=held.reason,
        members=held.members,
        loaded=state.loaded,
        healthy=state.health.ok,
        problems=state.health.problems,
        metrics=state.metrics,
        **known,
    )
