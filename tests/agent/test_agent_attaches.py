"""The real agent and the real service, with nginx between them: what each of their tests assumes of the other."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, agent_process, make_image
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from strata.api.nginx import Nginx, free_port
from strata.api.nginx_config import FrontDoor
from strata.fleet.access.authority import Authority
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.alarm import Alarm
from strata.provisioning.agents.wire import Exchange, Reply
from strata.provisioning.exec.records import ExecRequest, ExecResult
from strata.provisioning.exec.service import ExecService
from strata.provisioning.identity.identity import Identity
from strata.provisioning.images.release import CHUNK, Release, signed
from strata.provisioning.personalities.records import File, Member, PersonalitySpec, Ready
from strata.provisioning.personalities.service import PersonalityService
from strata.provisioning.signing import Signer
from strata.store.memory import MemoryStore
from support.agent_site import AgentSite, FakeReleases, agent_site
from support.fake_agents import FRONT_SECRET

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODE = "n00001"
SERVICE = "while [ ! -e /etc/greeting ]; do /bin/sleep 0.1; done\n/bin/touch /run/ready\nexec /bin/sleep 1000\n"


class Site:
    """A state directory, the authority and the store in it; services come and go."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = MemoryStore()
        self.authority = Authority.open(directory / "ca")
        self.authority.renew_server(["localhost", "127.0.0.1"])
        self.signer = Signer.open(directory / "signing")
        self.alarms: list[Alarm] = []
        """Of troubles, not of their ends."""
        self.identity = Identity(self.store, self._sign, self._alarm)
        self.releases = FakeReleases()
        self.images = directory / "images"
        certificate, key = self.authority.server_paths
        self.door = FrontDoor(
            directory=directory / "nginx",
            host="127.0.0.1",
            port=free_port("127.0.0.1"),
            upstream=directory / "s" / "front.sock",
            secret=FRONT_SECRET,
            certificate=certificate,
            key=key,
            ca=self.authority.certificate_path,
            images=self.images,
            workers=1,
            connections=512,
        )

    def _alarm(self, alarm: Alarm) -> None:
        if alarm.severity != "ok":
            self.alarms.append(alarm)

    def _sign(self, csr: bytes, node: str) -> Any:
        return self.authority.sign_csr(csr, node, "node", (), 3600)

    def publish(self, reference: str, image: Path, serial: int) -> None:
        """Put an image where nginx serves it, and let the tag stand for it."""
        data = image.read_bytes()
        chunks = b"".join(hashlib.sha256(data[at : at + CHUNK]).digest() for at in range(0, len(data), CHUNK))
        name, _, tag = reference.partition(":")
        digest, listed = hashlib.sha256(data).hexdigest(), hashlib.sha256(chunks).hexdigest()
        for folder, file, content in (("squashfs", f"{digest}.squashfs", data), ("chunks", listed, chunks)):
            (self.images / folder).mkdir(parents=True, exist_ok=True)
            (self.images / folder / file).write_bytes(content)
        release = Release(
            name=name,
            tag=tag,
            serial=serial,
            image=f"sha256:{digest}",
            squashfs=f"sha256:{digest}",
            size=len(data),
            chunks=f"sha256:{listed}",
        )
        self.releases.put(reference, signed(release, self.signer))

    async def boot(self, node: str = NODE, port: int = 0) -> dict[str, Any]:
        """What a fragment would hold for the next boot."""
        generation = self.identity.record(node).generation + 1
        return {
            "node": node,
            "generation": generation,
            "controllers": [f"https://127.0.0.1:{port or self.door.port}"],
            "ca": self.authority.pem.decode(),
            "token": await self.identity.open_boot(node, generation),
            "release_keys": [self.signer.public_pem],
            "profile": "default@abc",
        }

    @contextlib.asynccontextmanager
    async def serving(self, nodes: int = 1, hold_most: int = 100) -> AsyncIterator[AgentSite]:
        """The service, for the length of the block."""
        async with agent_site(
            self.directory / "s",
            nodes=nodes,
            hold_most=hold_most,
            store=self.store,
            identity=self.identity,  # type: ignore[arg-type]
            releases=self.releases,
        ) as served:
            yield served


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.identity.start()
    nginx = Nginx(made.door)
    await nginx.start()
    yield made
    await nginx.stop()
    await made.identity.stop()
    await made.store.close()


@pytest.fixture
def node(tmp_path: Path) -> Any:
    with agent_process(tmp_path / "node") as process:
        yield process


async def until(check: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def _runs(site: AgentSite) -> str:
    """The digest of what the node runs, and all of it is ready."""
    agent = site.hub.get(NODE)
    return agent.seen.set_digest if agent and agent.seen and agent.seen.set_state == "active" else ""


async def run_on(site: AgentSite, *argv: str, where: str = "", node: str = NODE) -> ExecResult:
    execs = site.services.get(ExecService)
    run = await execs.begin(LOCAL_ADMIN, ExecRequest(select=node, argv=argv, where=where, timeout=60))
    return (await execs.show(LOCAL_ADMIN, run.id, 0, 60)).items[0]


async def put_set(site: AgentSite, greeting: str) -> None:
    member = Member(
        name="system",
        release="demo:1",
        argv=("/bin/sh", "/service"),
        ready=Ready(kind="file", path="/run/ready", within=60),
        files=(File(path="/etc/greeting", content=greeting),),
    )
    await site.services.get(PersonalityService).put(LOCAL_ADMIN, "compute", PersonalitySpec(members=(member,)), None)


async def want(site: AgentSite, **wanted: str) -> None:
    nodes = site.service.registry.select(NODE)
    done = await site.service.edits.set_desires(nodes, {name: [value] for name, value in wanted.items()}, (), "test")
    await site.service.settled(done.revision)


async def test_an_agent_enrols_attaches_runs_its_set_changes_it_and_outlives_the_service(
    site: Site, node: AgentProcess, tmp_path: Path
) -> None:
    site.publish("demo:1", make_image(tmp_path / "one", SERVICE), 1)
    async with site.serving() as served:
        node.start(await site.boot())
        await until(lambda: served.hub.attached(NODE))
        assert (await run_on(served, "echo", "from the node", where="minos")).output == "from the node\n"
        await put_set(served, "hello {node}")
        await want(served, power="on", os="up", image="compute", personality="active")
        await until(lambda: served.fact(NODE, "personality") == "active")
        assert (await run_on(served, "/bin/cat", "/etc/greeting")).output == f"hello {NODE}"

        site.publish("demo:1", make_image(tmp_path / "two", SERVICE + "# changed\n"), 2)
        await served.sets.settled()
        await until(lambda: _runs(served) == served.sets.digest("compute"))
        assert "# changed" in (await run_on(served, "/bin/cat", "/service")).output

        node.kill()
        node.start()
        result = await run_on(served, "/bin/ls", "/run")
        assert "ready" in result.output, "the member goes on, and the agent that came back has it"
        past = (await served.service.history(LOCAL_ADMIN, NODE, None, None, 100, "")).items
        told = [one.new for one in past if one.variable == "event" and one.source == "agent"]
        assert told == ["its agent was started again: the one before ended without a word"]
    async with site.serving() as served:
        await until(lambda: served.hub.attached(NODE))
        await until(lambda: bool(served.service.controller.counts()["ready"]))
        assert _runs(served) == served.sets.digest("compute")
    assert site.alarms == []


async def test_an_agent_of_an_earlier_boot_is_refused_with_an_alarm(site: Site, node: AgentProcess) -> None:
    async with site.serving() as served:
        node.start(await site.boot())
        await until(lambda: served.hub.attached(NODE))
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NODE)])
        csr = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
        again = await site.boot()
        await site.identity.redeem(again["token"], csr.public_bytes(serialization.Encoding.PEM))
        await until(lambda: bool(site.alarms), 60)
        assert site.alarms[0].kind == "certificate-superseded" and site.alarms[0].node == NODE


async def test_the_agent_of_a_node_that_was_deleted_is_none_of_another_one_of_that_name(
    site: Site, node: AgentProcess
) -> None:
    async with site.serving() as served:
        edits, first = served.service.edits, served.service.registry.node(NODE)
        node.start(await site.boot())
        await until(lambda: served.fact(NODE, "os") == "up")

        await served.service.settled(await edits.delete_node(NODE, "test"))
        assert [result.ok for result in await edits.create_nodes([first], "test")] == [True]
        await served.service.settled(await site.store.revision())

        assert served.service.registry.node(NODE).uid != first.uid
        assert not served.hub.attached(NODE) and site.identity.record(NODE).generation == 0
        await until(lambda: served.fact(NODE, "os") == "down")  # what it was is over, whatever it still runs
        assert site.alarms == [], "who deleted it knows that"
        past = (await served.service.history(LOCAL_ADMIN, NODE, None, None, 100, "")).items
        assert "up" not in [one.new for one in past if one.variable == "os"], "not even for a moment"

        node.kill()
        shutil.rmtree(node.run)  # as a new boot finds its memory
        node.start(await site.boot())
        await until(lambda: served.fact(NODE, "os") == "up")


class Relay:
    """Stands before the front door and counts the connections that are opened to it."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.opened = 0
        self.port = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Relay]:
        async with asyncio.TaskGroup() as tasks:
            server = await asyncio.start_server(
                lambda reader, writer: tasks.create_task(self._pass_on(reader, writer)), "127.0.0.1", 0
            )
            self.port = server.sockets[0].getsockname()[1]
            yield self
            server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_agents_that_are_too_many_to_be_held_stay_connected_and_get_what_is_for_them(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["n00001", "n00002", "n00003"]
    replies: list[tuple[str, Reply]] = []

    def turned_away(since: int) -> list[str]:
        return [name for name, reply in replies[since:] if reply.pause]

    async with site.serving(nodes=3, hold_most=1) as served, Relay(site.door.port).open() as relay:
        exchange = served.hub.exchange

        async def counted(name: str, request: Exchange) -> Reply:
            reply = await exchange(name, request)
            replies.append((name, reply))
            return reply

        monkeypatch.setattr(served.hub, "exchange", counted)
        with contextlib.ExitStack() as processes:
            for name in names:
                processes.enter_context(agent_process(tmp_path / name)).start(await site.boot(name, relay.port))
            await until(lambda: len(turned_away(0)) >= 8, 120)

            opened, before, states = relay.opened, len(replies), _said(served, names)
            began = time.monotonic()
            await until(lambda: len(turned_away(before)) >= 10, 120)
            took, new = time.monotonic() - began, relay.opened - opened
            later = _said(served, names)
            shares = [(b["cpu_s"] - a["cpu_s"]) / took for a, b in zip(states, later, strict=True)]
            print(f"{len(replies) - before} replies in {took:.1f} s, {new} connections, {max(shares):.2%} of a core")
            assert new <= 2, "a line for the log, say: none for what they ask"
            assert took > 5, "two that are too many, each for most of two seconds"
            assert max(shares) < 0.1, "none of them spins"

            results = await asyncio.gather(*(run_on(served, "echo", name, where="minos", node=name) for name in names))
            assert [result.output for result in results] == [f"{name}\n" for name in names]
    assert site.alarms == []


def _said(site: AgentSite, names: list[str]) -> list[dict[str, Any]]:
    agents = [site.hub.get(name) for name in names]
    return [json.loads(agent.state)["agent"] for agent in agents if agent is not None]
