"""The agents of one controller, put together: who is attached, what nodes run, and the driver that the engine uses.

Comes before the controller, which needs the driver; ``start`` when there is a service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from strata.api.agents import AgentDoor
from strata.api.services import Agents
from strata.control.elsewhere import Elsewhere
from strata.control.node_driver import BootWay, Ground, NodeDriver
from strata.control.peer_answers import LimitsWanted
from strata.control.service import Service
from strata.control.service_agents import AgentService
from strata.control.service_alerts import agent_restarted, led_here, look_soon
from strata.control.service_exec import ExecService
from strata.control.service_image_sets import VARIABLE, ImageSetService
from strata.core.decoding import UNREADABLE
from strata.core.driver import Batch
from strata.core.errors import DeviceError
from strata.core.node import Node
from strata.hardware.bmc import Boot, Controller
from strata.provisioning.agents.hub import SILENT_AFTER, Hub
from strata.provisioning.agents.inventories import Inventories
from strata.provisioning.agents.unknown import UnknownMachines
from strata.provisioning.alarm import AlarmSink
from strata.provisioning.identity.identity import Identity
from strata.provisioning.images.release import Releases
from strata.provisioning.personality.sets import ImageSets
from strata.store.protocol import Store

INVENTORY_FILE = "agent-inventories.db"
LIMITS_TIMEOUT = 20.0
"""Seconds that an agent gets to set limits."""


class AgentLayer:
    """Everything about agents. ``start``, then ``stop``."""

    def __init__(
        self,
        store: Store,
        identity: Identity,
        releases: Releases,
        state_dir: Path,
        *,
        open_controller: Callable[[str], Controller],
        asked: Callable[[str], float],
        profile: Callable[[str, str], str],
        cannot_boot: Callable[[str], str],
        way: Callable[[str], Awaitable[BootWay]],
        by_itself: Callable[[str], bool],
        override: Callable[[str], Boot | None],
        owner: Callable[[str], str | None],
        measured: Callable[[str, Mapping[str, Any]], None],
        damaged: Callable[[str, Mapping[str, str]], None],
        alarm: AlarmSink,
        logged: Callable[[str, Sequence[tuple[float, str, str]]], None],
        hold_most: int,
    ) -> None:
        """``asked``: when a node last asked for something to boot (Unix seconds). ``profile``: a boot profile's name as
        agents of an architecture report it, with its digest. ``cannot_boot``: why a node has nothing to boot.
        ``owner``: the node that has a MAC address. ``measured`` and ``logged`` take what agents measure and what is
        written on nodes, ``damaged`` the images that came to them otherwise than signed, ``alarm`` what agents say that
        cannot be. ``hold_most``: requests of
        agents that are held open."""
        self._identity = identity
        self._logged = logged
        self._service: Service | None = None
        self._elsewhere: Elsewhere | None = None
        self._exec: ExecService | None = None
        self._set_service: ImageSetService | None = None
        self.hub = Hub(
            known=lambda name: self._index(name) >= 0,
            leads=self._leads,
            changed=self._changed,
            measured=measured,
            restarted=self._restarted,
            damaged=damaged,
            issued=lambda name: identity.record(name).generation,
            alarm=alarm,
            hold_most=hold_most,
        )
        self.sets = ImageSets(store, releases, changed=self._set_changed)
        self.unknown = UnknownMachines(owner)
        self.inventories = Inventories(state_dir / INVENTORY_FILE)
        ground = Ground(
            node=self._node,
            open=open_controller,
            asked=asked,
            profile=profile,
            cannot_boot=cannot_boot,
            desired=self._desired,
            way=way,
            may_lose=self._may_lose,
            by_itself=by_itself,
            ahead=lambda name: override(name) if self._boots_next(name) else None,
        )
        self.driver = NodeDriver(self.hub, identity, self.sets, ground)

    async def start(self, service: Service, elsewhere: Elsewhere) -> Agents:
        """Begin to listen; what the API needs. ``elsewhere``: the way to the agents of other controllers."""
        self._service = service
        self._elsewhere = elsewhere
        self._set_service = ImageSetService(service, self.sets)
        self._exec = ExecService(service, self.hub, elsewhere)
        await self.sets.start()
        await self.hub.start()
        service.registry.departed.append(self.driver.forget)
        return Agents(
            door=AgentDoor(
                hub=self.hub,
                identity=self._identity,
                unknown=self.unknown,
                inventoried=self.inventories.put,
                logged=self._logged,
                controllers=elsewhere.peers.urls,
            ),
            agents=AgentService(
                service, self.hub, self.unknown, self.inventories, elsewhere, expects_agents=self._expects_agents
            ),
            exec=self._exec,
            sets=self._set_service,
        )

    async def stop(self) -> None:
        """Send the agents away; they go on by themselves."""
        if self._exec is not None:
            await self._exec.close()
        await self.hub.stop()
        await self.sets.stop()
        await self.inventories.close()

    async def limits(self, node: str, wanted: Mapping[str, int]) -> Mapping[str, Any]:
        """Have a node's agent set limits of its processors, wherever it is attached; what is in force afterwards."""
        peer = self._elsewhere.leader(node) if self._elsewhere is not None else None
        if self._elsewhere is None or peer is None:
            return await self.limits_here(node, wanted)
        asked = LimitsWanted(node=node, wanted=dict(wanted))
        told: dict[str, Any] = await self._elsewhere.ask(
            peer, "limits", asked, dict[str, Any], patience=3 * LIMITS_TIMEOUT
        )
        return told

    async def limits_here(self, node: str, wanted: Mapping[str, int]) -> Mapping[str, Any]:
        """The same, by an agent that is attached to this controller."""
        result = await self.hub.send(node, "limits", wanted, timeout=LIMITS_TIMEOUT).result
        if result is None or not result.ok:
            raise DeviceError(result.error if result else "its agent gave no answer", node=node, request="limits")
        try:
            told: dict[str, Any] = msgspec.json.decode(result.output, type=dict[str, Any])
        except UNREADABLE:
            raise DeviceError("its agent's answer makes no sense", node=node, request="limits") from None
        return told

    # what the parts ask

    def _index(self, name: str) -> int:
        return self._service.registry.find(name) if self._service is not None else -1

    def _node(self, name: str) -> Node | None:
        index = self._index(name)
        return self._service.registry.node_at(index) if self._service is not None and index >= 0 else None

    def _leads(self, name: str) -> bool:
        return self._service is not None and led_here(self._service.controller)(name)

    def _expects_agents(self) -> bool:
        """Whether nodes came to be led here just now that have booted, and whose agents have not spoken here yet."""
        if self._service is None:
            return True
        controller = self._service.controller
        now = controller.clock.now()
        if not any(now - since < SILENT_AFTER for since in controller.leadership.since.values()):
            return False
        names = [node.name for node in controller.registry.roster.nodes if node is not None]
        missing = (name for name in names if self._identity.record(name).redeemed and self.hub.get(name) is None)
        return any(self._leads(name) for name in missing)

    def _desired(self, name: str) -> str:
        index = self._index(name)
        if self._service is None or index < 0 or VARIABLE not in self._service.controller.model.variables:
            return ""
        goals = self._service.registry.desires.goals(VARIABLE)
        wanted = goals.table[int(goals.codes[index])]
        return wanted[0] if wanted else ""

    def _boots_next(self, name: str) -> bool:
        """Whether a boot is on the node's way to what its owners want: who only wants power gets what the node has."""
        index = self._index(name)
        return self._service is not None and index >= 0 and "boot" in self._service.controller.engine.way(index)

    async def _may_lose(self, batch: Batch) -> Sequence[str]:
        if self._service is None:
            return ["the service is still starting"] * len(batch)
        return await self._service.controller.permits("no-running-job", batch)

    def _changed(self, names: Collection[str]) -> None:
        if self._service is not None:
            look_soon(self._service.controller)(list(names))

    def _restarted(self, name: str) -> None:
        if self._service is not None:
            agent_restarted(self._service.controller)(name)

    def _set_changed(self, name: str) -> None:
        if self._set_service is not None:
            self._set_service.changed(name)
