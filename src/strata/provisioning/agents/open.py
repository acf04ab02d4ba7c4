"""Opens the room of agents: who is attached, what nodes run, the driver that the engine uses, commands on nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from strata.core.driver import Batch
from strata.core.errors import DeviceError, StrataError
from strata.core.input.decoding import UNREADABLE
from strata.core.node import Node
from strata.fleet.alarm import AlarmSink
from strata.fleet.controller.controller import Controller
from strata.fleet.fleet import Fleet
from strata.fleet.peers.leaders import LeaderClient
from strata.hardware.bmc.driver import BmcDriver
from strata.hardware.consoles.panic import PanicWatch
from strata.hardware.layer import Reach
from strata.provisioning.agents.capacity import holdable
from strata.provisioning.agents.driver import NodeDriver, Questions
from strata.provisioning.agents.hub import SILENT_AFTER, Hub
from strata.provisioning.agents.panics import Panics
from strata.provisioning.agents.peer_answers import LimitsWanted
from strata.provisioning.boot.methods import BootWays
from strata.provisioning.identity.identity import Identity
from strata.provisioning.images.release import build_of
from strata.provisioning.images.repository import Images
from strata.provisioning.personalities.resolve import Personalities
from strata.provisioning.personalities.service import VARIABLE
from strata.provisioning.settings import ProvisioningSettings

LIMITS_TIMEOUT = 20.0
"""Seconds that an agent gets to set limits."""


def open_hub(fleet: Fleet, images: Images, identity: Identity, alarms: AlarmSink) -> Hub:
    """Where agents attach."""

    def measured(node: str, metrics: Mapping[str, Any]) -> None:
        for take in fleet.measured:
            take(node, metrics)

    return Hub(
        known=lambda name: fleet.registry.find(name) >= 0,
        leads=fleet.controller.leads,
        measured=measured,
        restarted=fleet.controller.agent_restarted,
        damaged=images.arrived_damaged,
        issued=lambda name: identity.record(name).generation,
        alarm=alarms,
        unwell=fleet.alarm,
        hold_most=fleet.section(ProvisioningSettings).hold_most or holdable(),
    )


def open_sets(fleet: Fleet, images: Images) -> Personalities:
    """What nodes run. Where one stands for something else now, the nodes that should have it are looked at."""

    stood: dict[str, dict[str, str]] = {}  # personality → its images, by member, when it last changed

    def changed(name: str) -> None:
        before, stood[name] = stood.get(name), {member: one.image for member, one in sets.releases(name).items()}
        if VARIABLE not in fleet.controller.model.variables:
            return
        nodes = np.flatnonzero(fleet.registry.wanted(VARIABLE, name))
        if not len(nodes):
            return
        fleet.controller.renew_goal(nodes)
        if before is not None:  # else it is known since now: we have just begun
            what, author = _promotion(sets, images, name, before)
            fleet.controller.record_event(nodes, what, author)

    sets = Personalities(fleet.store, fleet.ledger, images, changed=changed)
    return sets


def _promotion(sets: Personalities, images: Images, name: str, before: Mapping[str, str]) -> tuple[str, str]:
    """What has become of a personality, and who did it."""
    digest = sets.digest(name)
    if not digest:
        return f"{name} cannot be run any more: {sets.problem(name)}", "strata"
    what = f"{name} is build {build_of(digest)} now"
    moved = {member: one for member, one in sets.releases(name).items() if before.get(member) != one.image}
    for release in moved.values():
        with suppress(StrataError):
            reference = f"{release.name}:{release.tag}"
            return f"{what}: {reference} was promoted to {build_of(release.image)}", images.catalogue.tagged(
                reference
            ).author
    return f"{what}: the personality was changed", "strata"


def open_driver(fleet: Fleet, hub: Hub, identity: Identity, sets: Personalities, ways: BootWays) -> NodeDriver:
    """The engine's ``node`` driver, which hears of nodes' power from the one of BMCs."""
    registry, controller = fleet.registry, fleet.controller

    def node_of(name: str) -> Node | None:
        index = registry.find(name)
        return registry.node_at(index) if index >= 0 else None

    def desired(name: str) -> str:
        index = registry.find(name)
        if index < 0 or VARIABLE not in controller.model.variables:
            return ""
        goals = registry.desires.goals(VARIABLE)
        wanted = goals.table[int(goals.codes[index])]
        return wanted[0] if wanted else ""

    def boots_next(name: str) -> bool:
        """Whether a boot is on the node's way to what its owners want: who only wants power gets what the node has."""
        index = registry.find(name)
        return index >= 0 and "boot" in controller.engine.way(index)

    async def may_lose(batch: Batch) -> Sequence[str]:
        return await controller.permits("no-running-job", batch)

    driver = NodeDriver(
        hub,
        identity,
        sets,
        Questions(
            node=node_of,
            open=fleet.of(Reach).bmcs.open,
            asked=ways.asked,
            profile=ways.label,
            cannot_boot=ways.cannot_boot,
            desired=desired,
            way=ways.way,
            may_lose=may_lose,
            by_itself=ways.by_itself,
            ahead=lambda name: ways.override(name) if boots_next(name) else None,
        ),
    )
    hub.changed.append(tells(controller, driver))
    panics = Panics(controller, driver)
    fleet.of(PanicWatch).panicked.append(panics.take)
    fleet.parts.push_async_callback(panics.close)
    fleet.details.append(driver.builds)
    bmc = fleet.of(BmcDriver)
    bmc.dark.append(driver.lost_power)
    bmc.lit.append(driver.got_power)
    bmc.before_on.append(driver.about_to_get_power)
    registry.departed.append(driver.forget)
    fleet.drive(driver)
    return driver


def tells(controller: Controller, driver: NodeDriver) -> Callable[[Collection[str]], None]:
    """Gives the engine what agents report, as facts. Where no agent speaks any more, every driver looks at once."""
    variables = [name for name, variable in controller.model.variables.items() if variable.observer == driver.name]

    def tell(names: Collection[str]) -> None:
        found = {index: name for name in names if (index := controller.registry.find(name)) >= 0}
        nodes = np.array(list(found), dtype=np.int64)
        led = nodes[controller.engine.progress.epoch[nodes] > 0]
        if not len(led):
            return
        columns = driver.facts(variables, [found[index] for index in led.tolist()])
        controller.tell(led, columns, "agent")
        silent = led[[word != "up" for word in columns["os"].values()]] if "os" in columns else led[:0]
        if len(silent):
            controller.look_at(silent)

    return tell


def expects_agents(fleet: Fleet, hub: Hub, identity: Identity) -> Callable[[], bool]:
    """Whether nodes came to be led here just now that have booted, and whose agents have not spoken here yet."""
    controller, leads = fleet.controller, fleet.controller.leads

    def expects() -> bool:
        now = controller.clock.now()
        if not any(now - since < SILENT_AFTER for since in controller.leadership.since.values()):
            return False
        names = [node.name for node in controller.registry.nodes if node is not None]
        missing = (name for name in names if identity.record(name).redeemed and hub.get(name) is None)
        return any(leads(name) for name in missing)

    return expects


class AgentLimits:
    """Sets limits of nodes' processors through their agents."""

    def __init__(self, hub: Hub, elsewhere: LeaderClient) -> None:
        self._hub = hub
        self._elsewhere = elsewhere

    async def set(self, node: str, wanted: Mapping[str, int]) -> Mapping[str, Any]:
        """By the node's agent, wherever it is attached; what is in force afterwards."""
        peer = self._elsewhere.leader(node)
        if peer is None:
            return await self.set_here(node, wanted)
        asked = LimitsWanted(node=node, wanted=dict(wanted))
        told: dict[str, Any] = await self._elsewhere.ask(
            peer, "limits", asked, dict[str, Any], patience=3 * LIMITS_TIMEOUT
        )
        return told

    async def set_here(self, node: str, wanted: Mapping[str, int]) -> Mapping[str, Any]:
        """The same, by an agent that is attached to this controller."""
        result = await self._hub.send(node, "limits", wanted, timeout=LIMITS_TIMEOUT).result
        if result is None or not result.ok:
            raise DeviceError(result.error if result else "its agent gave no answer", node=node, request="limits")
        try:
            told: dict[str, Any] = msgspec.json.decode(result.output, type=dict[str, Any])
        except UNREADABLE:
            raise DeviceError("its agent's answer cannot be read", node=node, request="limits") from None
        return told
