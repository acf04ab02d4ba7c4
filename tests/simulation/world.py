"""A whole small machine under a seed: controllers, a store, nodes, an operator, and everything that can go wrong.

Two phases. *Safety*: anything may fail; the promises are checked at every act and every second. *Liveness*: all heals;
every node must reach its goal in bounded virtual time. A seed and a commit reproduce a run to the letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np

from simulation.mechanisms import ALL, Mechanisms
from simulation.network import Line, LinkedDriver, LinkedStore, Weather
from strata.core import logs
from strata.core.driver import Batch, Outcomes
from strata.core.errors import StrataError
from strata.core.model import Budget, Layer, Model, Mutation, values
from strata.core.node import Node
from strata.daemon.settings import Settings
from strata.engine.settings import EngineSettings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.controller import driver_calls
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.controller import Controller
from strata.fleet.desires import documents
from strata.fleet.desires.bundles import BundleRequest
from strata.fleet.registry.edits import Edits
from strata.fleet.settings import LeadershipSettings
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.memory import MemoryStore
from strata.virtual.fleet.driver import SimDriver
from strata.virtual.fleet.faults import NO_FAULTS, Faults, Timing
from strata.virtual.fleet.nodes import SimNodes
from support.rooms import OpenFleet

READY = {
    "power": ["on"],
    "os": ["up"],
    "image": ["v1"],
    "personality": ["active"],
    "config": ["r1"],
    "workload": ["in"],
}
WATTS = 500.0
"""What a node may draw at most."""

LIVENESS = 3600.0
"""Virtual seconds within which every node must be at its goal once all has healed."""

AFTERMATH = 120.0
"""The same where a run is for one promise: whether that is broken shows long before every node is at its goal."""

STRAGGLERS = 15.0
"""Virtual seconds after which every message of the bad times has arrived: longer than any clog, there and back."""

NOWHERE = Path("nowhere")
"""The state directory of controllers here: it is not there, and nothing is written to it."""

PATIENCE = EngineSettings(fault_retry=300, stop_cooldown=60, longest_backoff=60, stable_after=120)
"""Quicker to forgive than a real machine, so that liveness is reached in little virtual time."""


DESTRUCTIVE = {m.name: m for layer in (HARDWARE, PROVISIONING) for m in layer.mutations if m.destructive}
"""The steps that can hurt, as they are declared in real life."""


class Plot(msgspec.Struct, kw_only=True):
    """What a seed has in store."""

    nodes: int
    controllers: int
    weather: Weather
    faults: Faults
    crashes: float
    """Mean seconds between two crashes of a controller; 0: none."""
    pauses: float
    job_share: float
    site_nodes: int
    """How many nodes the site's power would carry at once."""
    safety: float = 400.0
    """Virtual seconds in which anything may fail."""

    @classmethod
    def draw(cls, chance: random.Random) -> Plot:
        """Everything from nearly calm to all at once."""
        bad = chance.random()
        nodes = chance.randint(6, 24)
        return cls(
            nodes=nodes,
            controllers=chance.randint(1, 3),
            weather=Weather.draw(chance),
            faults=Faults(
                request_lost=bad * chance.choice((0, 0.3)),
                reply_lost=bad * chance.choice((0, 0.3)),
                duplicated=chance.choice((0, 0.5)),
                refused=bad * chance.choice((0, 0.2)),
                ignored=bad * chance.choice((0, 0.2)),
                boot_fails=bad * chance.choice((0, 0.2)),
                boot_hangs=bad * chance.choice((0, 0.2)),
                personality_fails=bad * chance.choice((0, 0.2)),
                power_null=bad * chance.choice((0, 0.1)),
                agent_silent=bad * chance.choice((0, 0.1)),
                power_losses=bad * chance.choice((0, 4.0)),
                hangs=bad * chance.choice((0, 4.0)),
                panics=bad * chance.choice((0, 4.0)),
                agent_deaths=bad * chance.choice((0, 4.0)),
            ),
            crashes=chance.choice((0, 40, 120)),
            pauses=chance.choice((0, 60, 240)),
            job_share=chance.choice((0.0, 0.5)),
            site_nodes=chance.randint(max(2, nodes // 2), nodes + 4),
            safety=chance.uniform(60, 400),
        )


class Member:
    """One controller and its line. Crashing it loses all that it had not written."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self.line = Line(world.plot.weather, world.chance)
        self.service: OpenFleet | None = None
        self.store: LinkedStore | None = None
        self.wall_offset = 0.0

    async def start(self) -> None:
        """Start it; tried again until the store lets it."""
        world, loop = self._world, asyncio.get_running_loop()
        while True:
            store = LinkedStore(world.store, self.line, world.chance, world.mechanisms)
            drivers = {
                name: Witness(
                    LinkedDriver(SimDriver(name, world.sim, loop.time), self.line, loop.time, world.mechanisms), world
                )
                for name in ("bmc", "node", "workload", "health")
            }
            controller = Controller(
                store,
                world.model,
                drivers,
                name=self.name,
                engine=PATIENCE,
                leadership=LeadershipSettings(shards=4),
                clock=Clock(loop.time, lambda: 1.7e9 + loop.time() + self.wall_offset),
                seed=world.chance.randrange(1, 2**60),
                step_gap=0.1,
            )
            if not world.mechanisms.holds:
                controller.engine.set_brakes = lambda *a, **k: None  # type: ignore[method-assign]
            if not world.mechanisms.intents:
                controller.intents.write = _nothing  # type: ignore[method-assign,assignment]
            try:
                await controller.start()
            except StrataError:
                await _abandon(controller)
                await asyncio.sleep(1.0)
                continue
            self.store = store
            self.service = OpenFleet(controller, Settings(state_dir=NOWHERE))
            return

    async def crash(self) -> None:
        """kill -9."""
        if self.service is not None:
            await _abandon(self.service.controller)
            await self.service.operations.close()
            self.service = None
        if self.store is not None:
            self.store.die()


async def _nothing(*_: object) -> None:
    return None


async def _abandon(controller: Controller) -> None:
    tasks = [*controller._tasks, *controller._dispatcher._beginning, *controller.driver_calls._tasks]
    controller.driver_calls._queues.clear()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Witness:
    """Stands at the driver's door and writes down what was wrong with what passed."""

    def __init__(self, driver: LinkedDriver, world: World) -> None:
        self.name = driver.name
        self._driver = driver
        self._world = world
        self.observe = driver.observe
        self.permits = driver.permits

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        for name in batch.names:
            for check in self._world.at_every_act:
                check(mutation, name)
        return await self._driver.act(mutation, batch)


class World:
    """One run. ``violations`` says which promise was broken, and how."""

    def __init__(self, seed: int, *, mechanisms: Mechanisms = ALL, plot: Plot | None = None) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.mechanisms = mechanisms
        self.plot = plot or Plot.draw(self.chance)
        self.violations: list[tuple[int, str]] = []
        self.at_every_act: list[Callable[[Mutation, str], None]] = []
        self.every_second: list[Callable[[], None]] = []
        self.sim = SimNodes(
            self.plot.nodes,
            seed=seed,
            timing=Timing(scale=0.3, job_share=self.plot.job_share, job_length=120),
            faults=self.plot.faults,
            fencing=mechanisms.fencing,
        )
        self.store: MemoryStore
        self.model = self._model()
        self.members: list[Member] = []
        self.wanted: dict[str, str] = dict.fromkeys(self.sim.names, "v1")
        """Node → the image that was last acknowledged as desired."""
        self.asked: tuple[str, str] | None = None
        """The node and image that the operator is asking for."""
        self.held: set[str] = set()
        """Nodes whose hold was acknowledged."""
        self.crash_count = 0
        self.looked_for: int | None = None
        """The promise that this run is for: it ends as soon as that is seen to be broken. None: it goes to its end."""
        self._found_broken: asyncio.Event
        self.log = io.StringIO()
        self.job: str = ""

    def broken(self, promise: int, how: str) -> None:
        """A promise did not hold."""
        self.violations.append((promise, f"at {asyncio.get_running_loop().time():.1f} s: {how}"))
        if promise == self.looked_for:
            self._found_broken.set()

    def service(self) -> OpenFleet | None:
        """Some controller that runs."""
        running = [m.service for m in self.members if m.service is not None]
        return self.chance.choice(running) if running else None

    async def run(self, after: Sequence[Check], after_in_the_world: Sequence[AsyncCheck]) -> None:
        """Both phases, and what is to be checked when they are over."""
        handler = self._listen()
        self._found_broken = asyncio.Event()
        with self._switched_off():
            self.store = MemoryStore()
            try:
                await self._found()
                await self._safety()
                if self.looked_for is not None:
                    for check in after:
                        check(self)
                if self._found_broken.is_set():
                    return
                await self._liveness()
                for check in after:
                    check(self)
                for look in after_in_the_world:
                    await look(self)
            finally:
                for member in self.members:
                    await member.crash()
                await self.store.close()
                logging.getLogger().removeHandler(handler)

    # ---- phases ----

    async def _found(self) -> None:
        """Nodes, groups and the first desires, in good weather."""
        calm, self.plot.weather = self.plot.weather, Weather()
        self.members = [Member(self, f"c{n}") for n in range(self.plot.controllers)]
        for member in self.members:
            await member.start()
        service = self.service()
        assert service is not None
        nodes = [
            Node(name=name, uid=0, location=f"x{i // 8}c0s{i % 8}b0n0", labels={"watts": str(WATTS)})
            for i, name in enumerate(self.sim.names)
        ]
        await service.edits.create_nodes(nodes, "operator")
        await service.settled(await self.store.revision())
        document = {"name": "ready", "select": "*", "set": READY}
        await service.apply(LOCAL_ADMIN, msgspec.convert({"documents": [document]}, BundleRequest))
        self.plot.weather = calm
        for member in self.members:
            member.line.weather = calm

    async def _safety(self) -> None:
        chores = [self._operate(), self._watch(), self._nature()]
        if self.plot.crashes:
            chores.append(self._crash())
        if self.plot.pauses:
            chores.append(self._pause())
        tasks = [asyncio.create_task(chore) for chore in chores]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.plot.safety):
                await self._found_broken.wait()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _liveness(self) -> None:
        """Everything heals, every brake comes off; then every node must get to its goal."""
        loop = asyncio.get_running_loop()
        self.sim.heal(now=loop.time())
        self.sim.set_faults(NO_FAULTS, now=loop.time())
        for member in self.members:
            member.line.weather = Weather()
            member.line.go_on()
            if member.service is None:
                await member.start()
        watch = asyncio.create_task(self._watch())
        await asyncio.sleep(STRAGGLERS)  # a hold that the operator asked for last may still be on its way
        service = self.service()
        assert service is not None
        await self._until_done(lambda: service.edits.release(service.registry.select("*"), "operator"))
        self.held.clear()
        await self._set_image()
        deadline = loop.time() + (LIVENESS if self.looked_for is None else AFTERMATH)
        while loop.time() < deadline and not self.at_goal():  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(5.0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    def at_goal(self) -> bool:
        """Whether the nodes really are what they should be (as many as the site's power carries)."""
        now = asyncio.get_running_loop().time()
        everyone = self.sim.all
        good = np.ones(len(everyone), dtype=bool)
        for variable, wanted in READY.items():
            column = self.sim.truth(variable, everyone, now).values()
            for at, value in enumerate(column):
                goal = self.wanted[self.sim.names[at]] if variable == "image" else wanted[0]
                good[at] &= value == goal
        return int(good.sum()) >= min(self.plot.nodes, self.plot.site_nodes)

    # ---- what happens ----

    async def _operate(self) -> None:
        """A person who changes images, and takes nodes out for repair and back."""
        count = 1
        while True:
            await asyncio.sleep(self.chance.uniform(5, 60))
            name = self.chance.choice(self.sim.names)
            what = self.chance.choice(("image", "image", "hold", "release"))
            count += 1
            if what == "image":
                self.asked = (name, f"v{count}")
                await self._set_image()
            elif what == "hold":
                await self._until_done(lambda name=name: self._edits().hold(self._nodes(name), "repair", "operator"))
                await self._everybody_knows()
                self.held.add(name)
            else:
                self.held.discard(name)
                await self._until_done(lambda name=name: self._edits().release(self._nodes(name), "operator"))

    async def _set_image(self) -> None:
        """Until it is acknowledged; only then does the operator count on it."""
        if self.asked is not None:
            name, image = self.asked
            await self._until_done(
                lambda: self._edits().set_desires(self._nodes(name), {"image": [image]}, (), "operator")
            )
            self.wanted[name] = image
            self.asked = None

    async def _everybody_knows(self) -> None:
        """A hold counts from when the controllers have heard of it."""
        revision = await self.store.revision()
        for member in self.members:
            while member.service is None or member.service.registry.revision < revision:  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    async def _until_done(self, edit: Callable[[], Any]) -> None:
        while True:
            try:
                await edit()
                return
            except (StrataError, LookupError):
                await asyncio.sleep(0.5)

    def _edits(self) -> Edits:
        service = self.service()
        if service is None:
            raise LookupError("nobody serves")
        if not self.mechanisms.audit:
            service.edits.ledger.commit = self._unrecorded  # type: ignore[method-assign,assignment]
        return service.edits

    async def _unrecorded(self, author: str, action: str, target: str, ops: Any, expect: Any = None, *_: Any) -> int:
        return await self.store.txn(ops, expect=expect)

    def _nodes(self, name: str) -> np.ndarray[Any, Any]:
        service = self.service()
        if service is None or service.registry.find(name) < 0:
            raise LookupError(name)
        return np.array([service.registry.find(name)])

    async def _watch(self) -> None:
        while True:
            for check in self.every_second:
                check()
            await asyncio.sleep(1.0)

    async def _nature(self) -> None:
        """Wall clocks jump."""
        while True:
            await asyncio.sleep(self.chance.uniform(60, 300))
            self.chance.choice(self.members).wall_offset += self.chance.choice((-3600.0, 3600.0))

    async def _crash(self) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / self.plot.crashes))
            member = self.chance.choice(self.members)
            self.crash_count += 1
            await member.crash()
            await asyncio.sleep(self.chance.uniform(0, 20))
            await member.start()

    async def _pause(self) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / self.plot.pauses))
            member = self.chance.choice(self.members)
            member.line.pause()
            await asyncio.sleep(self.chance.uniform(1, 60))
            member.line.go_on()

    # ---- the machine ----

    def _model(self) -> Model:
        budgets = []
        if self.mechanisms.site_budget:
            budgets.append(
                Budget(
                    name="site-power",
                    mutations=("power-on",),
                    limit=self.plot.site_nodes * WATTS,
                    weight="watts",
                    standing=True,
                )
            )
        hardware, platform = HARDWARE, PLATFORM
        # Without the brake nothing is destructive, and there is nothing to be budgeted.
        if not (self.mechanisms.disruption_budget and self.mechanisms.unknown_brake):
            hardware = msgspec.structs.replace(
                hardware, budgets=tuple(b for b in hardware.budgets if b.name != "disruption")
            )
        if not self.mechanisms.unknown_brake:
            platform = msgspec.structs.replace(platform, budgets=())
        layers = [hardware, PROVISIONING, platform, Layer(budgets=tuple(budgets))]
        if not self.mechanisms.unknown_brake:
            layers = [
                msgspec.structs.replace(
                    layer,
                    excludes={},
                    mutations=tuple(
                        msgspec.structs.replace(m, destructive=False, start=m.start | values("unknown"), guards=())
                        if m.destructive
                        else m
                        for m in layer.mutations
                    ),
                )
                for layer in layers
            ]
        return Model.of(*layers)

    @contextlib.contextmanager
    def _switched_off(self) -> Iterator[None]:
        """Without the mechanisms that are plain functions."""
        with contextlib.ExitStack() as patches:
            if not self.mechanisms.redaction:
                patches.enter_context(mock.patch.object(driver_calls, "redact", lambda text: text))
            if not self.mechanisms.validation:
                anything = lambda model, variable, wanted: tuple(wanted)  # noqa: E731
                patches.enter_context(mock.patch.object(documents, "value_set", anything))
                patches.enter_context(mock.patch.object(Model, "check_value", lambda *_: None))
            yield

    def _listen(self) -> logging.Handler:
        handler = logging.StreamHandler(self.log)
        handler.setFormatter(logs.JsonFormatter())
        handler.setLevel(logging.DEBUG)
        logging.getLogger().addHandler(handler)
        logging.getLogger("strata").setLevel(logging.DEBUG)
        return handler


Check = Callable[[World], None]
AsyncCheck = Callable[[World], Awaitable[None]]
