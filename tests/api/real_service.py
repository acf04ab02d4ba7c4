"""The API over the real service: a controller, a store and simulated nodes, on an event loop of their own.

Clients that bring their own event loop (Schemathesis) reach it through ``Bridge``; tests on the same loop use
``RealService`` directly. No processes but those that make images, and no sockets but those of the simulated controllers
and the boot server on loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from api_support import Impatient, Message, Receive, Send, Service, made_fleet
from loopback_reach import ANN, loopback_layers, write_networks
from route_table import Clock

from strata.api.services import Limits
from strata.api.web_account import web_account
from strata.core.node import Interface, Node
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.nodes.records import NodeSpec
from strata.fleet.selectors.language import parse
from strata.fleet.settings import LeadershipSettings, StoreSettings
from strata.hardware.consoles.service import ConsoleService
from strata.hardware.credentials.records import BmcCredentialSpec
from strata.hardware.credentials.service import BmcCredentialService
from strata.hardware.events.hub import EventHub
from strata.hardware.events.records import HardwareEvent
from strata.hardware.settings import HardwareSettings
from strata.jobs.submission.records import Job, JobDocument, Task
from strata.jobs.submission.service import JobService
from strata.provisioning.directory import Directory
from strata.provisioning.settings import ProvisioningSettings, minos_dir
from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_groups, simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.plant.plant import Plant
from support.rooms import OpenFleet
from support.signed_builds import a_manifest, digest_of, put_build

_T = TypeVar("_T")

NODES = 20
RAN = "4711"
"""A job of the workload manager's."""
SPARE = 2
"""Machines with controllers that nobody has made nodes of."""
KEY = BmcCredentialSpec(pattern="default", user=SIMULATED_ACCOUNT.user, password=SIMULATED_ACCOUNT.password)
"""What opens the simulated controllers."""
BUILD = digest_of(a_manifest())
"""The build of the minimal OS that is there."""
CROWDED = ("n00004", "n00010")
"""Nodes that are said to be in one place."""


class RealService(Service):
    """Everything that answers a request, and a small fleet that things have been said about."""

    def __init__(self, fleet: OpenFleet, clock: Clock, bmcs: BmcServer) -> None:
        super().__init__(fleet, clock, bmcs.nodes)
        self.hub = fleet.of(EventHub)
        self.bmcs = bmcs
        self.job = ""
        """The id of a job that is over."""
        self.user_job = "4k2j9x0qv7m1"
        """The id of somebody's job that has ended."""
        self.discovery = ""
        """The id of a discovery that is over, once there was one."""
        self.dump = ""
        """What is kept of the console of the first node, once something is."""

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that it began with."""
        return [node.name for node in simulated_nodes(NODES)]

    @property
    def spare(self) -> list[str]:
        """Addresses of controllers whose machines are no nodes."""
        return [self.bmcs.url(name) for name in self.bmcs.nodes.names[NODES:]]

    def learn(self) -> None:
        """Let the boot server know the nodes of now at once."""
        self.of(Directory).update(node for node in self.service.registry.nodes if node is not None)

    async def still(self) -> int:
        """Wait until nobody writes any more; the store's revision."""
        async with asyncio.timeout(60):
            while True:
                before = await self.store.revision()
                await asyncio.sleep(0.6)  # several turns of the controller's housekeeping
                await self.service.controller.intents.sweep()  # which it does now and then only
                if before == await self.store.revision():
                    return before


def write_build(minos: Path) -> None:
    """A build of the minimal OS that nobody will boot."""
    put_build(minos, minos.parent / "signing")


@contextlib.asynccontextmanager
async def real_service(
    directory: Path, store_url: str = "memory:", *, limits: Limits | None = None
) -> AsyncIterator[RealService]:
    """A running controller with 20 nodes, groups, documents, a job, a hold, a freeze and tokens."""
    settings = Settings(
        state_dir=directory,
        controller_id="test",
        store=StoreSettings(url=store_url),
        leadership=LeadershipSettings(shards=2),
        hardware=HardwareSettings(poll=False, consoles=False),
        provisioning=ProvisioningSettings(networks=write_networks(directory)),
    )
    write_build(minos_dir(settings.state_dir))
    async with contextlib.AsyncExitStack() as parts:
        nodes = SimNodes(NODES + SPARE, timing=Timing(scale=0))
        bmcs = BmcServer(nodes, plant=Plant(nodes, on=True), clock=time.monotonic)
        await bmcs.start()
        parts.push_async_callback(bmcs.stop)
        fleet, clock = await parts.enter_async_context(made_fleet(settings, limits=limits))
        fleet.web = web_account(settings.listen.account)
        await parts.enter_async_context(loopback_layers(fleet, bmcs.address))
        for driver in sim_drivers(nodes, time.monotonic).values():  # the layers' would need agents
            fleet.drive(driver)
        real = RealService(fleet, clock, bmcs)
        await _furnish(real)
        yield real


def _described(real: RealService) -> list[Node]:
    """The nodes as they began: each with a controller, and a machine on the boot network."""
    return [
        msgspec.structs.replace(node, interfaces=(_interface(number),))
        for number, node in enumerate(simulated_nodes(NODES, bmc_base=real.bmcs.address), 1)
    ]


def _interface(number: int) -> Interface:
    return Interface(mac=f"52:54:00:00:00:{number:02x}", address=f"127.1.0.{number}", name="boot")


def _spec(node: Node) -> NodeSpec:
    return NodeSpec(**{field: getattr(node, field) for field in NodeSpec.__struct_fields__})


async def describe(real: RealService) -> None:
    """Put the nodes, groups and what opens controllers there. Groups that are there already stay; nodes become what
    they were."""
    service, nodes = real.service, _described(real)
    wanted = {node.name: _spec(node) for node in nodes}
    there = {node.name: _spec(node) for node in service.registry.nodes if node is not None}
    changed = [name for name, spec in there.items() if wanted.get(name) != spec]
    for name in changed:  # what is another's must be free before that other can have it back
        bare = msgspec.structs.replace(there[name], location="", nid=None, interfaces=())
        await service.replace_node(LOCAL_ADMIN, name, bare, None)
    await service.edits.create_nodes([node for node in nodes if node.name not in there], "test")
    await service.settled(await real.store.revision())
    for name in changed:
        if name in wanted:
            await service.replace_node(LOCAL_ADMIN, name, wanted[name], None)
    for group in simulated_groups(nodes):
        if group.name in service.registry.groups:
            continue
        names = [nodes[uid - 1].name for first, last in group.members for uid in range(first, last + 1)]
        members = parse(",".join(names)).indices(service.registry, strict=False)
        await service.edits.put_group(group.name, members, "test", description=group.description)
    await service.settled(await real.store.revision())
    real.learn()
    await real.of(BmcCredentialService).put(LOCAL_ADMIN, KEY)


async def _furnish(real: RealService) -> None:
    await describe(real)
    nodes = real.nodes
    await real.token("viewer")
    async with real.client() as client:
        requests: list[tuple[str, str, dict[str, Any]]] = [
            ("PUT", "/v1/documents/base", {"name": "base", "select": "@compute", "set": {"power": "on", "os": "up"}}),
            ("PUT", "/v1/documents/gpu", {"name": "gpu", "select": "@gpu", "set": {"image": ["v1", "v2"]}}),
            ("POST", "/v1/desires", {"select": "@login", "set": {"power": "on"}}),
            ("POST", "/v1/holds", {"select": nodes[-1], "reason": "a bad fan"}),
            ("POST", "/v1/freezes", {"scope": "group:service", "reason": "maintenance"}),
            ("POST", "/v1/power/jobs", {"events": [{"what": "start", "job": RAN, "user": "ann", "nodes": nodes[0]}]}),
        ]
        for method, path, body in requests:
            answer = await client.request(method, path, json=body)
            assert answer.is_success, (path, answer.text)
        job = await client.post(
            "/v1/desires", json={"select": "@gpu", "set": {"power": "on"}}, headers={"Prefer": "respond-async"}
        )
        assert job.status_code == 202, job.text
    real.job = job.json()["id"]
    over = Task(index=None, state="ended", outcome="failed", status=3, began=1.0, ended=2.0)
    ran = Job(
        id=real.user_job,
        document=JobDocument(command="false"),
        owner="ann",
        account=ANN.name,
        submitted=1.0,
        target="local",
        kind="local",
        controller="test",
        there=real.user_job,
        tasks=(over,),
        folder="/nonexistent",
        stdout="/nonexistent/out",
    )
    await real.of(JobService).records.put("ann", ran.id, ran)
    await real.service.operations.wait(real.job)


async def furnish_hardware(real: RealService) -> None:
    """Have the controllers (and switches) discovered, events and alerts of all nodes, something on their consoles, and
    two nodes in one place."""
    assert real.bmcs.plant is not None
    switches = [real.bmcs.url(name) for name in real.bmcs.plant.names if name.startswith(("sw-", "fm-"))]
    first, second = (f"address,location\n{real.bmcs.url(name)},x1009c0s0b0n0\n" for name in CROWDED)
    async with real.client() as client:
        for wanted in (
            {"addresses": [real.bmcs.url(CROWDED[0])], "mapping": first},
            {"known": True, "addresses": switches, "mapping": second},
        ):
            begun = await client.post("/v1/hardware/discover", json=wanted)
            assert begun.status_code == 202, begun.text
            real.discovery = begun.json()["id"]
            await real.service.operations.wait(real.discovery)
    real.hub.take(
        [
            HardwareEvent(
                time=time.time(),
                severity="critical",
                message=f"the fan of {node} stands still",
                source="poll",
                key="sensor/Fan 1",
                node=node,
                bmc=real.bmcs.url(node),
            )
            for node in real.nodes
        ]
    )
    await real.hub.alerts.settled()
    async with contextlib.aclosing(await real.hub.log.follow(0)) as written:  # type: ignore[type-var]
        async for batch in written:
            if batch[-1][1].node == real.nodes[-1]:
                break
    consoles = real.of(ConsoleService)._log
    printed = asyncio.Event()
    consoles.listeners.append(lambda node, _: printed.set() if node == real.nodes[-1] else None)
    for node in real.nodes:
        consoles.append(node, "serial", [f"{node} login:", "no panic: a test"])
    await asyncio.wait_for(printed.wait(), 60)
    real.dump = (await consoles.keep(real.nodes[0], 1, 2)).rpartition(":")[2]


class Bridge:
    """A real service on a thread with its own event loop, as an ASGI application for callers on any other."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="real service", daemon=True)

    def start(self, directory: Path, store_url: str = "memory:") -> RealService:
        """Start the service."""
        self._thread.start()
        self._running = real_service(directory, store_url)
        real = self.run(self._running.__aenter__())
        self._app = Impatient(real.app())
        return real

    def stop(self) -> None:
        """End the service and its thread."""
        self.run(self._running.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do something on the service's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return  # started and stopped by hand
        body = await receive()
        while body.get("more_body"):
            more = await receive()
            body = {**more, "body": body["body"] + more["body"]}
        answer = asyncio.run_coroutine_threadsafe(self._answer(dict(scope), body), self._loop)
        for message in await asyncio.wrap_future(answer):
            await send(message)

    async def _answer(self, scope: Message, body: Message) -> list[Message]:
        messages: list[Message] = []

        async def receive() -> Message:
            return body

        async def send(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, send)
        return messages
