"""Two controllers that provision on one store: agents find their leader, anybody can be asked, and one may die."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from system_support import Controller, World, eventually, strata

from agent.agent_process import AgentProcess, agent_process
from strata.fleet.access.authority import Issued
from strata.provisioning.identity.identity import Identity
from strata.provisioning.signing import Signer
from strata.store.open import open_store
from support.etcd_cluster import EtcdCluster

pytestmark = [pytest.mark.server, pytest.mark.slow]

NAMES = ("n1", "n2", "n3", "n4")
SHARDS = 4


def kill_machine(controller: Controller) -> None:
    """As if the machine of a controller lost its power: its front door is gone too."""
    door = int((controller.state / "nginx/nginx.pid").read_text())
    controller.kill()
    with contextlib.suppress(ProcessLookupError):  # it goes with its controller, sooner or later
        os.kill(door, signal.SIGTERM)


def tokens(store_url: str) -> dict[str, str]:
    """A token for the first boot of every node, as a boot service hands them out."""

    def sign(csr: bytes, node: str) -> Issued:
        raise AssertionError("certificates are issued by controllers")

    async def begin() -> dict[str, str]:
        store = open_store(store_url)
        identity = Identity(store, sign, lambda alarm: None)
        await identity.start()
        try:
            return {name: await identity.open_boot(name, 1) for name in NAMES}
        finally:
            await identity.stop()
            await store.close()

    return asyncio.run(begin())


def small_system(path: Path, *more: str) -> None:
    """The files of a system that can run one program, and more folders."""
    with tarfile.open(path, "w") as tar:
        for folder in ("bin", "proc", "sys", "dev", "etc", "tmp", "run", *more):
            header = tarfile.TarInfo(folder)
            header.type, header.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(header)
        program = Path("/bin/busybox").read_bytes()
        header = tarfile.TarInfo("bin/busybox")
        header.size, header.mode = len(program), 0o755
        tar.addfile(header, io.BytesIO(program))


def two_controllers(world: World, store_url: str) -> tuple[Controller, Controller]:
    """Not started yet."""
    more = (
        "provisioning",
        "--set",
        f"leadership.shards={SHARDS}",
        "--set",
        "hardware.consoles=false",
        "--set",
        "hardware.poll=false",
    )
    alpha, beta = (world.controller(name, None, store=store_url, tls=True, more=more) for name in ("alpha", "beta"))
    return alpha, beta


class Site:
    """Both controllers and the agents."""

    def __init__(self, world: World, store_url: str) -> None:
        self.first, self.second = two_controllers(world, store_url)
        self.store_url = store_url
        self.directory = world.directory
        self.agents: dict[str, AgentProcess] = {}

    def start(self) -> None:
        """The second gets what controllers have in common from the first."""
        self.first.start()
        self.first.wait_ready()
        for folder in ("ca", "signing"):
            shutil.copytree(self.first.state / folder, self.second.state / folder)
        shutil.copy(self.first.state / "secrets.key", self.second.state)
        self.second.start()
        self.second.wait_ready()
        half = SHARDS // 2
        eventually("they share", lambda: self.first.leads() == self.second.leads() == {"alpha": half, "beta": half}, 30)
        nodes = [{"name": name} for name in NAMES]
        self.first.client.request("POST", "/v1/nodes", body={"nodes": nodes})
        eventually("both know the nodes", lambda: all(c.status()["nodes"] == len(NAMES) for c in self.both), 30)

    @property
    def both(self) -> tuple[Controller, Controller]:
        return self.first, self.second

    def boot(self, parts: contextlib.ExitStack) -> None:
        """Start the nodes' agents. Each knows of one controller, as if it had booted when there was no other."""
        urls = [(controller.state / "url").read_text().strip() for controller in self.both]
        authority = (self.first.state / "ca/ca.crt").read_text()
        key = Signer.open(self.first.state / "signing").public_pem
        for number, (name, token) in enumerate(tokens(self.store_url).items()):
            agent = parts.enter_context(agent_process(self.directory / name))
            self.agents[name] = agent
            agent.start(
                {
                    "node": name,
                    "generation": 1,
                    "controllers": [urls[number // 2]],
                    "ca": authority,
                    "token": token,
                    "release_keys": [key],
                    "profile": "default@1",
                }
            )

    def attached(self, controller: Controller) -> bool:
        """Whether every node's agent is attached, as this controller tells."""
        return all(controller.client.get(f"/v1/nodes/{name}/agent")["attached"] for name in NAMES)

    def last_words(self) -> str:
        """Of everybody."""
        logs = [agent.folder / "agent.log" for agent in self.agents.values()]
        return "\n".join([*(c.tail() for c in self.both), *(log.read_text()[-1000:] for log in logs)])


@pytest.fixture
def site(world: World, etcd_cluster: EtcdCluster) -> Iterator[Site]:
    found = Site(world, etcd_cluster.url("two"))
    with contextlib.ExitStack() as parts:
        found.start()
        found.boot(parts)
        try:
            yield found
        except BaseException:
            print(found.last_words())
            raise


def leaders(controller: Controller) -> dict[str, str]:
    """Node → who leads it. Nodes have the first uids."""
    of_shard = {shard["shard"]: shard["leader"] for shard in controller.status()["shards"]}
    return {name: of_shard[uid % SHARDS] for uid, name in enumerate(NAMES, 1)}


def ran(controller: Controller, *argv: str) -> dict[str, Any]:
    """Run a command on all nodes, asked of one controller: what each printed."""
    done = strata(controller.state, "node", "exec", "*", "--minos", "--json", "--", *argv)
    assert done.code == 0, done
    return {item["node"]: item["output"] for item in json.loads(done.out)}


@pytest.mark.timeout(240)
def test_agents_of_two_controllers_are_reached_through_either_and_outlive_one_of_them(site: Site) -> None:
    first, second = site.both
    for controller in site.both:
        eventually("all are attached", lambda controller=controller: site.attached(controller), 60)
    assert sorted(leaders(first).values()) == ["alpha", "alpha", "beta", "beta"]
    for controller in site.both:
        assert ran(controller, "echo", "here") == dict.fromkeys(NAMES, "here\n")

    inventory = f"/v1/nodes/{NAMES[0]}/agent/inventory"
    eventually("both tell", lambda: first.client.get(inventory) == second.client.get(inventory), 30)

    small_system(site.directory / "system.tar")
    done = strata(first.state, "image", "import", site.directory / "system.tar", "--name", "small", "--tag", "1")
    assert done.code == 0, done
    eventually(
        "the image is on both",
        lambda: all(c.client.get("/v1/images/small/1")["on"] == ["alpha", "beta"] for c in site.both),
        30,
    )

    kill_machine(first)
    eventually("the other leads all", lambda: second.leads() == {"beta": SHARDS}, 30)
    eventually("all are attached to it", lambda: site.attached(second), 60)
    assert ran(second, "echo", "still") == dict.fromkeys(NAMES, "still\n")

    member = {"name": "system", "release": "small:1", "argv": ["/bin/busybox", "sleep", "1000"]}
    second.client.request("PUT", "/v1/personalities/compute", body={"members": [member]})
    document = {"name": "compute", "select": "*", "set": {"image": ["compute"]}}
    body = {"documents": [document], "prune": False, "dry_run": False}
    second.client.request("POST", "/v1/apply", body=body)

    def loaded() -> bool:
        nodes = second.client.pages("/v1/nodes", {"fields": "name,facts"})
        return all(node["facts"]["image"]["value"] == "compute" for node in nodes)

    eventually("all have loaded the image that the dead one made", loaded, 60)

    assert strata(second.state, "freeze", "--reason", "so that nodes stay as they are").code == 0
    old = second.client.get("/v1/images/small/1")
    small_system(site.directory / "other.tar", "opt")
    done = strata(second.state, "image", "import", site.directory / "other.tar", "--name", "small", "--tag", "1")
    assert done.code == 0, done
    done = strata(second.state, "image", "gc", "--keep", "0s", "--json")
    assert done.code == 0, done
    assert json.loads(done.out)["held"] == [old["image"]]
    assert (second.state / "images/squashfs" / f"{old['squashfs'].removeprefix('sha256:')}.squashfs").exists()


@pytest.mark.timeout(120)
def test_a_controller_with_keys_of_its_own_is_told_of_on_both(world: World, etcd_cluster: EtcdCluster) -> None:
    both = two_controllers(world, etcd_cluster.url("strangers"))
    for controller in both:
        controller.start()
        controller.wait_ready()

    def told(controller: Controller) -> bool:
        alerts = controller.client.get("/v1/alerts")["items"]
        return any("copy ca/, signing/, secrets.key into" in alert["message"] for alert in alerts)

    for controller in both:
        eventually("it is told of", lambda controller=controller: told(controller), 60)
    eventually("they share", lambda: both[0].leads() == {"alpha": SHARDS // 2, "beta": SHARDS // 2}, 30)
    both[0].client.request("POST", "/v1/nodes", body={"nodes": [{"name": name} for name in NAMES]})
    done = strata(both[0].state, "node", "exec", "*", "--minos", "--json", "--", "true")
    errors = [item["error"] for item in json.loads(done.out)]
    assert errors.count("controller beta leads it, and cannot be reached from here") == len(NAMES) // 2
