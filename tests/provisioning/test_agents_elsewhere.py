"""Agents that are attached to another controller: commands, views and boots through the one that was asked.

The controllers' hubs are real; between them is no network, but what it does to requests.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from strata.core.errors import DeviceError, NotFound, OutcomeUnknown, Unavailable
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.peers.leaders import ByLeader, LeaderClient
from strata.fleet.peers.peers import Peer
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.peer_answers import Handler, LimitsWanted, agent_routes
from strata.provisioning.agents.records import AgentView, InventoryView
from strata.provisioning.agents.service import AgentService
from strata.provisioning.agents.unknown import UnknownMachines
from strata.provisioning.agents.wire import Exchange, Hello, Result
from strata.provisioning.boot import peers as peer_boot
from strata.provisioning.boot.peers import BootElsewhere
from strata.provisioning.exec.records import ExecRequest, ExecView
from strata.provisioning.exec.service import ExecService

SHARDS = 2
NODES = [f"n{number}" for number in range(8)]
A = [name for number, name in enumerate(NODES) if number % SHARDS == 0]
B = [name for number, name in enumerate(NODES) if number % SHARDS == 1]


class Wire:
    """The network: all controllers by name, and what is wrong with it."""

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self.cut: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        self.lines_most = 10**9

    def handler(self, peer: Peer, route: str) -> Handler:
        self.calls.append((peer.controller, route))
        if peer.controller in self.cut:
            raise Unavailable(f"controller {peer.controller} is away: no connection", where=peer.url)
        return self.sites[peer.controller].routes[route]

    async def call(self, peer: Peer, route: str, body: bytes = b"", *, timeout: float = 30.0) -> bytes:
        answer = await self.handler(peer, route)("test", body)
        assert isinstance(answer, bytes)
        return answer

    async def lines(self, peer: Peer, route: str, body: bytes, *, silence: float = 60.0) -> AsyncIterator[bytes]:
        answer = await self.handler(peer, route)("test", body)
        assert not isinstance(answer, bytes)
        count = 0
        try:
            async for piece in answer:
                for line in piece.split(b"\n"):
                    if count >= self.lines_most:
                        raise OutcomeUnknown(f"controller {peer.controller} broke off", where=peer.url)
                    if line:
                        count += 1
                        yield line
        finally:
            await answer.aclose()  # type: ignore[attr-defined]


class Power:
    """What a controller knows of its nodes' power: what the test says, each time that it is asked."""

    def __init__(self) -> None:
        self.known: dict[str, list[bool | None]] = {}
        self.asked: list[str] = []

    def off(self, name: str) -> bool | None:
        self.asked.append(name)
        told = self.known.get(name, [False])
        return told.pop(0) if len(told) > 1 else told[0]

    async def looked(self, name: str) -> bool | None:
        return self.off(name)


class Site:
    """One controller: as much of it as agents need."""

    def __init__(self, wire: Wire, name: str, led: Iterable[str]) -> None:
        wire.sites[name] = self
        self.led = set(led)
        self.leads_for = 1000.0
        self.expects_agents = False
        self.holders = {0: ("alpha", 1), 1: ("beta", 1)}
        self.now = 5000.0
        self.peers = {other: Peer(controller=other, url=f"https://{other}", fingerprint="") for other in wire.sites}
        registry = SimpleNamespace(
            find=lambda node: NODES.index(node) if node in NODES else -1, uids=np.arange(len(NODES))
        )
        controller = SimpleNamespace(
            name=name,
            registry=registry,
            settings=SimpleNamespace(shards=SHARDS),
            leadership=SimpleNamespace(holders=self.holders),
            engine=SimpleNamespace(progress=SimpleNamespace(epoch=_Epochs(self))),
        )
        self.hub = Hub(leads=self.led.__contains__, clock=lambda: self.now)
        known = SimpleNamespace(
            get=lambda wanted: wire.sites.get(wanted) and self._peer(wanted),
            others=lambda: [self._peer(other) for other in sorted(wire.sites) if other != name],
        )
        self.elsewhere = LeaderClient(cast("Any", controller), cast("Any", known), cast("Any", wire))
        service = SimpleNamespace(
            index=lambda who, node: registry.find(node),
            owned=lambda who, select: np.arange(len(NODES)),
            view=SimpleNamespace(names=lambda nodes: [NODES[node] for node in nodes]),
            ledger=SimpleNamespace(commit=self._commit),
            need_whole_fleet=lambda who, what: None,
        )
        self.audit: list[str] = []
        self.inventories: dict[str, Any] = {}
        self.unknown = UnknownMachines(lambda mac: None)
        self.agents = AgentService(
            cast("Any", service),
            self.hub,
            self.unknown,
            cast("Any", SimpleNamespace(get=self._inventory)),
            self.elsewhere,
            expects_agents=lambda: self.expects_agents,
        )
        self.exec = ExecService(cast("Any", service), self.hub, self.elsewhere)
        self.limited: list[LimitsWanted] = []
        self.power = Power()
        self.boot = BootElsewhere(
            self.hub,
            self.elsewhere,
            cast("Any", self.power),
            led_for=lambda node: self.leads_for,
            arrived=lambda node: True,
        )
        self.routes = {**agent_routes(self.hub, self.agents, self._limits), **self.boot.routes()}
        self._tasks: list[asyncio.Task[None]] = []

    def _peer(self, name: str) -> Peer:
        return Peer(controller=name, url=f"https://{name}", fingerprint="")

    async def _commit(self, author: str, action: str, *_: Any, **__: Any) -> int:
        self.audit.append(action)
        return 1

    async def _inventory(self, node: str) -> Any:
        if node not in self.inventories:
            raise NotFound("nothing", where=node)
        return InventoryView(node=node, time=self.inventories[node], inventory={"of": node})

    async def _limits(self, node: str, wanted: Any) -> Any:
        self.limited.append(LimitsWanted(node=node, wanted=dict(wanted)))
        if node == B[0]:
            raise DeviceError("its agent said no", node=node)
        return {"max_khz": 1}

    def attach(self, names: Iterable[str], answer: Callable[[str], bytes] = lambda name: b"same\n") -> None:
        """Agents that carry out what they are told, at once."""
        self._tasks += [asyncio.create_task(self._agent(name, answer)) for name in names]

    async def _agent(self, name: str, answer: Callable[[str], bytes]) -> None:
        results: tuple[Result, ...] = ()
        for seq in range(1, 1000):
            state = msgspec.Raw(b'{"uptime": 7.0}')
            told = await self.hub.exchange(
                name, Exchange(generation=1, boot_id="b", seq=seq, wait=20, state=state, results=results)
            )
            results = tuple(
                Result(id=command["id"], ok=True, exit=0, output=answer(name))
                for command in told.commands
                if command["kind"] == "exec" and command["argv"] != ["sleep"]
            )

    async def run(self, *argv: str) -> str:
        view = await self.exec.begin(LOCAL_ADMIN, ExecRequest(select="*", argv=argv))
        return view.id

    async def result(self, ident: str) -> ExecView:
        deadline = time.monotonic() + 120
        while (view := await self.exec.show(LOCAL_ADMIN, ident, 0, 1.0)).state == "running":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)
        return view

    async def close(self) -> None:
        await self.exec.close()
        await self.boot.close()
        await self.elsewhere.close()
        await self.hub.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Epochs:
    def __init__(self, site: Site) -> None:
        self._site = site

    def __getitem__(self, index: Any) -> Any:
        return np.array([int(name in self._site.led) for name in NODES])[index]


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    made = Wire()
    Site(made, "alpha", A)
    Site(made, "beta", B)
    yield made
    for site in made.sites.values():
        await site.close()


async def until(check: Callable[[], bool]) -> None:
    """Wait for something that other tasks bring about."""
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.005)


async def attached(site: Site, names: Sequence[str]) -> None:
    await until(lambda: all(site.hub.attached(name) for name in names))


async def both_attached(wire: Wire, **more: Any) -> tuple[Site, Site]:
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    alpha.attach(A, **more)
    beta.attach(B, **more)
    await attached(alpha, A)
    await attached(beta, B)
    return alpha, beta


async def test_a_command_reaches_all_nodes_in_one_request_per_controller(wire: Wire) -> None:
    alpha, beta = await both_attached(wire)
    for site, other in ((alpha, "beta"), (beta, "alpha")):
        wire.calls.clear()
        done = await site.result(await site.run("hostname"))
        assert {item.node: item.output for item in done.items} == dict.fromkeys(NODES, "same\n")
        assert (done.state, done.failed) == ("done", 0)
        assert wire.calls == [(other, "exec")]
        assert site.audit == ["exec.run"], "where it was asked for, once"


async def test_every_node_keeps_its_own_output(wire: Wire) -> None:
    alpha, _ = await both_attached(wire, answer=lambda name: b"one" if name in B[:2] else name.encode())
    done = await alpha.result(await alpha.run("hostname"))
    assert {item.node: item.output for item in done.items} == {n: "one" if n in B[:2] else n for n in NODES}


async def test_nodes_of_a_controller_that_is_away_fail_by_its_name_and_the_others_run(wire: Wire) -> None:
    alpha, _ = await both_attached(wire)
    wire.cut.add("beta")
    done = await alpha.result(await alpha.run("hostname"))
    errors = {item.node: item.error for item in done.items if item.error}
    assert errors == dict.fromkeys(B, "controller beta is away: no connection")
    assert done.failed == len(B)


async def test_a_controller_that_dies_half_way_fails_only_the_nodes_that_had_not_answered(wire: Wire) -> None:
    alpha, _ = await both_attached(wire)
    wire.lines_most = 2
    done = await alpha.result(await alpha.run("hostname"))
    errors = [item.error for item in done.items if item.error]
    assert errors == ["controller beta broke off"] * (len(B) - 2)
    assert len(done.items) == len(NODES)


async def test_a_run_that_breaks_off_leaves_no_node_without_an_answer(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    alpha, _ = await both_attached(wire)

    def broken(peer: Peer, route: str) -> Handler:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(wire, "handler", broken)
    done = await alpha.result(await alpha.run("hostname"))
    assert {item.node for item in done.items} == set(NODES)
    assert {item.error for item in done.items if item.node in B} == {"not known: the run broke off"}
    assert "a run broke off" in caplog.text


async def test_an_agent_that_is_not_attached_to_its_leader_is_told_of_with_the_leaders_name(wire: Wire) -> None:
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    alpha.attach(A)
    beta.attach(B[1:])
    await attached(alpha, A)
    await attached(beta, B[1:])
    done = await alpha.result(await alpha.run("hostname"))
    [missing] = [item for item in done.items if item.error]
    assert missing.node == B[0]
    assert missing.error == "its agent is not attached to this controller (controller beta)"


async def test_a_node_that_nobody_leads_fails_at_once(wire: Wire) -> None:
    alpha, _ = await both_attached(wire)
    alpha.holders.pop(1)
    done = await alpha.result(await alpha.run("hostname"))
    assert {item.error for item in done.items if item.node in B} == {"no controller leads this node at the moment"}
    alpha.holders[1] = ("gamma", 2)
    done = await alpha.result(await alpha.run("hostname"))
    told = {item.error for item in done.items if item.node in B}
    assert told == {"controller gamma leads it, and cannot be reached from here"}


async def test_a_run_that_is_cancelled_ends_on_all_controllers(wire: Wire) -> None:
    alpha, beta = await both_attached(wire)

    def outstanding(site: Site, names: Sequence[str]) -> list[str]:
        agents = [site.hub.get(name) for name in names]
        return [command.kind for agent in agents if agent is not None for command in agent.outbox.values()]

    ident = await alpha.run("sleep")
    await until(lambda: outstanding(alpha, A) + outstanding(beta, B) == ["exec"] * len(NODES))
    await alpha.exec.cancel(LOCAL_ADMIN, ident)
    done = await alpha.result(ident)
    assert {item.error for item in done.items} == {"cancelled"}
    assert len(done.items) == len(NODES)
    await until(lambda: "exec" not in outstanding(alpha, A) + outstanding(beta, B))


async def test_what_an_agent_said_is_told_by_any_controller(wire: Wire) -> None:
    alpha, beta = await both_attached(wire)
    here: AgentView = await beta.agents.agent(LOCAL_ADMIN, B[0])
    there: AgentView = await alpha.agents.agent(LOCAL_ADMIN, B[0])
    assert here.attached
    assert there.uptime == 7.0
    assert msgspec.structs.replace(there, contact=here.contact, since=here.since) == here
    wire.cut.add("beta")
    with pytest.raises(Unavailable, match="controller beta is away"):
        await alpha.agents.agent(LOCAL_ADMIN, B[0])


async def says(site: Site, node: str, state: bytes) -> None:
    exchange = Exchange(generation=1, boot_id="b", seq=1, wait=0, state=msgspec.Raw(state))
    await site.hub.exchange(node, exchange)


async def test_images_that_nodes_hold_are_known_to_all_controllers_or_it_is_said_that_they_are_not(wire: Wire) -> None:
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    one, two = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
    await says(alpha, A[0], msgspec.json.encode({"images": [one, "../nonsense"]}))
    await says(alpha, A[1], b"{}")  # an agent that does not tell
    await says(beta, B[0], msgspec.json.encode({"images": [two]}))
    beta.hub.cut_off(B[0])  # it may run on
    assert await alpha.agents.images_held() == await beta.agents.images_held() == {one, two}
    beta.expects_agents = True
    with pytest.raises(Unavailable, match="not every agent has reported"):
        await alpha.agents.images_held()
    wire.cut.add("beta")
    with pytest.raises(Unavailable, match="beta"):
        await alpha.agents.images_held()


async def test_the_newest_inventory_counts_whoever_was_told_it(wire: Wire) -> None:
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    alpha.inventories, beta.inventories = {A[0]: 10.0, B[0]: 5.0}, {A[0]: 20.0}
    assert (await alpha.agents.inventory(LOCAL_ADMIN, A[0])).time == 20.0
    assert (await beta.agents.inventory(LOCAL_ADMIN, B[0])).time == 5.0
    with pytest.raises(NotFound):
        await alpha.agents.inventory(LOCAL_ADMIN, A[1])
    wire.cut.add("beta")
    assert (await alpha.agents.inventory(LOCAL_ADMIN, A[0])).time == 10.0


async def test_strangers_are_shown_and_forgotten_wherever_they_said_hello(wire: Wire) -> None:
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    mac = "52:54:00:00:00:01"
    beta.unknown.hello(Hello(macs=(mac,), serial="S"), "10.0.0.1")
    assert [machine.serial for machine in (await alpha.agents.unknown(LOCAL_ADMIN)).items] == ["S"]
    await alpha.agents.forget(LOCAL_ADMIN, mac)
    assert (await beta.agents.unknown(LOCAL_ADMIN)).items == ()
    with pytest.raises(NotFound):
        await alpha.agents.forget(LOCAL_ADMIN, mac)


async def test_questions_that_are_asked_together_go_together_and_fail_alone(wire: Wire) -> None:
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    peer = alpha.elsewhere.leader(B[0])
    assert peer is not None
    asked = [
        alpha.elsewhere.ask(peer, "limits", LimitsWanted(node=name, wanted={"max_khz": 1}), dict[str, int])
        for name in B
    ]
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert wire.calls == [("beta", "limits")]
    assert [limit.node for limit in beta.limited] == B
    assert isinstance(told[0], Unavailable)
    assert str(told[0]) == "its agent said no (controller beta)"
    assert told[1:] == [{"max_khz": 1}] * (len(B) - 1)


async def test_a_controller_of_another_version_is_told_of_and_spoils_nothing(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, _ = await both_attached(wire)

    async def call(*_: Any, **__: Any) -> bytes:
        return b'[{"value": "something new"}]'

    monkeypatch.setattr(wire, "call", call)
    with pytest.raises(OutcomeUnknown, match="controller beta cannot be read"):
        await alpha.agents.agent(LOCAL_ADMIN, B[0])
    assert (await alpha.agents.unknown(LOCAL_ADMIN)).items == ()
    assert await known(alpha.boot.attached(B[0])) is None, "the node waits"


async def test_nodes_are_sorted_as_one_by_one(wire: Wire) -> None:
    alpha = wire.sites["alpha"]
    found = alpha.elsewhere.sort([*NODES, "nobody"])
    assert sorted(found.here) == A
    assert {peer.controller: sorted(names) for peer, names in found.there.items()} == {"beta": B}
    assert found.nowhere == {"nobody": "no such node"}
    alpha.holders.pop(1)
    assert alpha.elsewhere.sort(NODES).nowhere == dict.fromkeys(B, "no controller leads this node at the moment")
    assert alpha.elsewhere.sort([]) == ByLeader(here=[], there={}, nowhere={})


async def test_whoever_waits_for_an_answer_when_asking_ends_is_told(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.fleet.peers.leaders._MOST_AT_ONCE", 2)
    alpha = wire.sites["alpha"]
    begun = asyncio.Event()

    async def call(*_: Any, **__: Any) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(wire, "call", call)
    peer = alpha.elsewhere.leader(B[0])
    assert peer is not None
    asked = [asyncio.ensure_future(alpha.elsewhere.ask(peer, "agent", name, AgentView)) for name in B]
    await begun.wait()
    await alpha.elsewhere.close()
    async with asyncio.timeout(120):
        told = await asyncio.gather(*asked, return_exceptions=True)
    assert {str(error) for error in told} == {"this controller is stopping"}


# boots


async def known(found: Any) -> bool | None:
    return found if isinstance(found, bool) else await found


async def test_a_running_node_is_known_to_run_wherever_it_asks_for_boot_data(wire: Wire) -> None:
    alpha, beta = await both_attached(wire)
    assert await known(alpha.boot.attached(B[0])) is True
    assert await known(beta.boot.attached(B[0])) is True
    beta.now += 120.0
    assert await known(alpha.boot.attached(B[0])) is False, "it was silent for too long"


async def test_while_nobody_knows_whether_a_node_runs_it_waits(wire: Wire) -> None:
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    assert await known(alpha.boot.attached(B[0])) is False
    beta.leads_for = 5.0
    assert await known(alpha.boot.attached(B[0])) is None, "its leader is new: the agent may not have come yet"
    assert await known(beta.boot.attached(B[0])) is None
    beta.leads_for = 1000.0
    wire.cut.add("beta")
    assert await known(alpha.boot.attached(B[0])) is None, "its leader cannot be asked"
    alpha.holders.pop(1)
    assert await known(alpha.boot.attached(B[0])) is None, "it has no leader"


@pytest.mark.slow
async def test_a_leader_that_is_away_is_told_of_once_however_many_nodes_ask(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    alpha = wire.sites["alpha"]
    wire.cut.add("beta")
    for name in B * 10:
        assert await known(alpha.boot.attached(name)) is None
    assert [record.message for record in caplog.records] == ["not known whether a node runs: it waits"]


async def test_the_leader_learns_what_a_node_asked_another_controller_for(wire: Wire) -> None:
    alpha, beta = await both_attached(wire)
    before = time.time()
    alpha.boot.asked(B[0], "script")
    alpha.boot.asked(B[1], "fragment")
    alpha.boot.begun(B[1])
    await until(lambda: not beta.hub.attached(B[1]))
    assert beta.boot.told(B[0]).script >= before
    assert beta.boot.told(B[0]).fragment == 0.0
    assert beta.boot.told(B[1]).fragment >= before
    assert beta.hub.attached(B[0]), "who only asks is not known to be over"
    assert {call for call in wire.calls if call[1] == "boot/news"} == {("beta", "boot/news")}
    alpha.boot.begun(A[0])
    assert not alpha.hub.attached(A[0])


async def test_whether_a_node_is_switched_off_is_told_by_its_leader_when_it_has_looked(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_boot, "PATIENCE", 0.05)
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    beta.power.known = {B[0]: [True], B[1]: [None, None, False], B[2]: [None]}
    alpha.power.known = {A[0]: [True]}
    assert [await alpha.boot.off(name) for name in (A[0], *B[:3])] == [True, True, False, None]
    wire.cut.add("beta")
    assert await alpha.boot.off(B[0]) is False, "what nobody can tell keeps no node from booting"


async def test_a_node_that_asks_for_something_to_boot_is_looked_at_by_its_leader(wire: Wire) -> None:
    alpha, beta = wire.sites["alpha"], wire.sites["beta"]
    alpha.boot.asked(A[0], "script")
    alpha.boot.asked(B[0], "script")
    deadline = time.monotonic() + 120
    while not beta.power.asked:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    assert (alpha.power.asked, beta.power.asked) == ([A[0]], [B[0]])
