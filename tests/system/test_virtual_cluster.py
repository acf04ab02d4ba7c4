"""Two real (emulated) machines, one with BIOS and one with UEFI, from power-off to a running image, and what happens to
them afterwards. One cluster for all; the tests are in an order, and each leaves both nodes ready."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support import virtual_cluster
from support.virtual_cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(600)]

BIOS, UEFI = "n0001", "n0002"
BOTH = (BIOS, UEFI)
BOOT = 240.0
"""Seconds that a boot may take where other tests run beside it; alone it takes 30 to 90."""
CHANGE = 60.0
"""Seconds that a change of the image may take beside other tests; alone at most 15."""
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
PAYLOAD = 60 * 2**20


@pytest.fixture(scope="module")
def up() -> Iterator[tuple[Cluster, str]]:
    with virtual_cluster.virtual_cluster("--nodes", "2", "--timeout", "8m") as (cluster, said):
        yield cluster, said.out + said.err


@pytest.fixture(scope="module")
def cluster(up: tuple[Cluster, str]) -> Cluster:
    return up[0]


def containers(cluster: Cluster, node: str) -> str:
    """Which containers run there, and since when: another answer, another container."""
    line = 'for pid in $(pidof dropbear); do echo $pid $(cut -d" " -f22 /proc/$pid/stat); done'
    found = cluster.sh(node, line, "--minos").strip()
    assert found, cluster.story()
    return found


def causes(cluster: Cluster, node: str, since: float) -> list[str]:
    """What was done to the node since then, each thing once."""
    return list(dict.fromkeys(one["cause"] for one in cluster.history(node, since) if one["cause"]))


# -- as it came up


def test_both_machines_become_ready_and_say_how_they_got_there(up: tuple[Cluster, str]):
    cluster, said = up

    assert {node["name"]: node["state"] for node in cluster.json("node", "list")} == dict.fromkeys(BOTH, "ready")
    assert [node["labels"]["firmware"] for node in cluster.json("node", "list")] == ["bios", "uefi"]
    for node in BOTH:
        assert [stage for stage in ("powered", "enrolled", "image", "ready") if f"{node}  {stage}" not in said] == []
    assert "strata virtual login n0001" in said
    assert "2 ready" in said


def test_a_command_runs_on_all_of_them_and_a_person_can_log_in(cluster: Cluster):
    said = cluster.strata("node", "exec", "@compute", "--", "uname", "-s").out
    assert "Linux" in said
    assert {found["exit"] for found in cluster.json("node", "exec", "@compute", "--", "uname", "-a")} == {0}

    for node in BOTH:
        assert cluster.strata("virtual", "login", node, "--", "hostname").out.strip() == node


# -- self-healing


class Trouble(NamedTuple):
    """What was done to the nodes, and how they were before."""

    began: float
    generations: dict[str, int]
    boots: dict[str, str]
    killed: int


@pytest.fixture(scope="module")
def trouble(cluster: Cluster) -> Trouble:
    """One machine loses its power while the kernel of the other one panics: they are waited for together."""
    generations = {node: cluster.generation(node) for node in BOTH}
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    began, killed = time.time(), cluster.qemu(BIOS)
    cluster.strata("virtual", "kill", BIOS)
    panic = "echo 1 > /proc/sys/kernel/sysrq; (sleep 1; echo c > /proc/sysrq-trigger) > /dev/null 2>&1 &"
    cluster.sh(UEFI, panic, "--minos")
    cluster.eventually("both are missed", lambda: not cluster.is_ready(*BOTH), 120)
    return Trouble(began, generations, boots, killed)


def test_a_machine_that_lost_its_power_comes_back_by_itself(cluster: Cluster, trouble: Trouble):
    cluster.wait_ready(BIOS, limit=BOOT)

    assert cluster.qemu(BIOS) not in (0, trouble.killed)
    assert cluster.generation(BIOS) == trouble.generations[BIOS] + 1
    story = [(one["variable"], one["new"]) for one in cluster.history(BIOS, trouble.began)]
    steps = [("power", "off"), ("power", "on"), ("os", "up"), ("image", "demo"), ("personality", "active")]
    assert [step for step in story if step in steps] == steps
    assert causes(cluster, BIOS, trouble.began) == ["power-on", "boot", "load-image", "start-personality"]


def test_a_kernel_that_panics_raises_an_alert_and_boots_again(cluster: Cluster, trouble: Trouble):
    alert = cluster.wait_alert("panic", UEFI, since=trouble.began, limit=60)
    assert alert["severity"] == "critical"

    cluster.wait_ready(UEFI, limit=BOOT)
    assert cluster.generation(UEFI) == trouble.generations[UEFI] + 1
    assert cluster.sh(UEFI, BOOT_ID) != trouble.boots[UEFI]
    story = [(one["variable"], one["new"]) for one in cluster.history(UEFI, trouble.began)]
    steps = [("os", "up"), ("image", "demo"), ("personality", "active")]
    assert [step for step in story if step in steps] == steps
    assert ("os", "down") in story or ("os", "hung") in story


def test_a_new_agent_finds_the_containers_of_the_old_one(cluster: Cluster):
    before = {node: containers(cluster, node) for node in BOTH}
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    agent = "pgrep -f 'python3.*strata_agent' | head -n 1"
    pids = {node: cluster.sh(node, agent, "--minos").strip() for node in BOTH}

    cluster.run("node", "exec", "@compute", "--minos", "--", "sh", "-c", f"kill -9 $({agent})")

    for node in BOTH:
        cluster.eventually(
            f"a new agent on {node}",
            lambda node=node: cluster.agent(node)["attached"] and _said(cluster, node, agent) not in ("", pids[node]),
            60,
        )
    cluster.wait_ready(*BOTH, limit=60)
    assert {node: containers(cluster, node) for node in BOTH} == before
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots


def _said(cluster: Cluster, node: str, line: str) -> str:
    (found,) = cluster.run("node", "exec", "--json", "--minos", node, "--", "sh", "-c", line).json
    return str(found["output"]).strip()


def test_a_personality_that_is_killed_runs_again(cluster: Cluster):
    before = {node: containers(cluster, node) for node in BOTH}
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    began = time.time()

    for node in BOTH:
        cluster.sh(node, "kill -9 $(pidof dropbear)", "--minos")

    for node in BOTH:
        cluster.eventually(
            f"its member was started again on {node}",
            lambda node=node: cluster.agent(node)["members"][0]["restarts"] == 1,
            30,
        )
    cluster.wait_ready(*BOTH, limit=60)
    for node in BOTH:
        assert containers(cluster, node) != before[node]
        story = [one["new"] for one in cluster.history(node, began) if one["variable"] == "personality"]
        assert story[-1] == "active"
        assert "error" in story
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots


# -- images


def test_another_image_runs_within_seconds_and_without_a_reboot(cluster: Cluster, tmp_path: Path):
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    (tmp_path / "recipe.yaml").write_text(
        "from: demo:1\n"
        f"run: ['head -c {PAYLOAD} /dev/urandom > /srv/payload']\n"
        "files:\n  - {path: /etc/release, content: 'second\n'}\n"
    )
    cluster.strata("image", "build", tmp_path / "recipe.yaml", "--name", "demo", "--tag", "2", limit=240)
    began = time.time()

    cluster.strata("image", "promote", "demo:2", "demo:1")

    found: dict[str, float] = {}
    for node in BOTH:
        cluster.eventually(f"the new image on {node}", lambda node=node: "second" in _release(cluster, node), CHANGE)
        cluster.wait_ready(node, limit=CHANGE)
        changes = cluster.history(node, began)
        found[node] = max(one["time"] for one in changes if one["variable"] == "image") - began
    print("seconds from promote to running:", found)
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots
    assert int(cluster.sh(BIOS, "stat -c %s /srv/payload")) == PAYLOAD


def _release(cluster: Cluster, node: str) -> str:
    done = cluster.run("node", "exec", "--json", node, "--", "cat", "/etc/release")
    return str(done.json[0]["output"]) if done.out else ""
