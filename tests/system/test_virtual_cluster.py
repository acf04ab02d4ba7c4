"""Two real (emulated) machines, one with BIOS and one with UEFI, from power-off to a running image, and what happens to
them afterwards. One cluster for all; the tests are in an order, and each leaves both nodes ready."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from docs.docs_support import taken_from_pages
from strata.core.host import process as ps
from support import virtual_cluster
from support.bridge_visitor import Visitor, boot_data, signing_request, visitor
from support.virtual_cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(600)]

BIOS, UEFI = "n0001", "n0002"
BOTH = (BIOS, UEFI)
BOOT = 240.0
"""Seconds that a boot may take where other tests run beside it; alone it takes 30 to 90."""
CHANGE = 300.0
"""Seconds that a change of the image on both may take beside other tests; alone at most 30."""
AWAY = 60.0
"""Seconds that nodes are left to themselves."""
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
PAYLOAD = 60 * 2**20


@pytest.fixture(scope="module")
def up() -> Iterator[tuple[Cluster, str]]:
    (command,) = taken_from_pages(
        "tests/system/test_virtual_cluster.py::test_both_machines_become_ready_and_say_how_they_got_there"
    )
    with virtual_cluster.virtual_cluster(command) as (cluster, said):
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
    """What was done to the node since then, each thing once. An agent that comes too late to be heard did nothing."""
    found = dict.fromkeys(one["cause"] for one in cluster.history(node, since) if one["cause"])
    return [cause for cause in found if not cause.startswith("not seen for ")]


# -- as it came up


def test_both_machines_become_ready_and_say_how_they_got_there(up: tuple[Cluster, str]):
    cluster, said = up

    assert {node["name"]: node["state"] for node in cluster.json("node", "list")} == dict.fromkeys(BOTH, "ready")
    assert [node["labels"]["firmware"] for node in cluster.json("node", "list")] == ["bios", "uefi"]
    for node in BOTH:
        for words in ("has power", "runs minOS", "has its image", "is ready"):
            assert f"{node}  {words}" in said
    assert "strata virtual login n0001" in said
    assert "2 ready" in said
    kept = cluster.strata("console", BIOS, "--lines", "10000", "--no-follow").out.splitlines()
    assert "SeaBIOS" in kept[0], "what the firmware printed first is kept"


def test_a_command_runs_on_all_of_them_and_a_person_can_log_in(cluster: Cluster):
    said = cluster.typed(
        taken_from_pages(
            "tests/system/test_virtual_cluster.py::test_a_command_runs_on_all_of_them_and_a_person_can_log_in"
        )
    )
    assert "Linux" in said and BIOS in said.split()
    assert {found["exit"] for found in cluster.json("node", "exec", "@compute", "--", "uname", "-a")} == {0}

    for node in BOTH:
        assert cluster.strata("virtual", "login", node, "--", "hostname").out.strip() == node


def test_nodes_run_what_the_pages_say_they_shall(cluster: Cluster):
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    said = ""
    for command in taken_from_pages(
        "tests/system/test_virtual_cluster.py::test_nodes_run_what_the_pages_say_they_shall"
    ):
        said += cluster.strata(*shlex.split(command)[1:], limit=CHANGE).out
    assert "system" in said, "its agent says what runs"
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots, "they ran it already"
    wanted = ("power", "os", "identity", "image", "personality")
    cluster.strata("node", "set", "@compute", *(word for name in wanted for word in ("--unset", name)))


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
    return Trouble(began, generations, boots, killed)


def wait_booted(cluster: Cluster, node: str, generation: int) -> None:
    """Until this boot of the node has begun and arrived, and no other."""
    cluster.eventually(f"{node} boots", lambda: cluster.generation(node) >= generation, BOOT)
    cluster.eventually(f"{node} arrives", lambda: cluster.agent(node)["generation"] >= generation, BOOT)
    cluster.wait_ready(node, limit=BOOT)
    assert cluster.generation(node) == generation


def wait_story(cluster: Cluster, node: str, since: float, steps: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What became of the node since then, once the last of the steps is told: the history is written after the fact."""

    def told() -> list[tuple[str, str]]:
        story = [(one["variable"], one["new"]) for one in cluster.history(node, since)]
        return story if steps[-1] in story else []

    found: list[tuple[str, str]] = cluster.eventually(f"the story of {node} is told", told, CHANGE)
    return found


def test_a_machine_that_lost_its_power_comes_back_by_itself(cluster: Cluster, trouble: Trouble):
    wait_booted(cluster, BIOS, trouble.generations[BIOS] + 1)

    assert cluster.qemu(BIOS) not in (0, trouble.killed)
    steps = [("power", "off"), ("power", "on"), ("os", "up"), ("image", "demo"), ("personality", "active")]
    story = wait_story(cluster, BIOS, trouble.began, steps)
    assert [step for step in story if step in steps] == steps
    assert causes(cluster, BIOS, trouble.began) == ["power-on", "boot", "load-image", "start-personality"]


def test_a_kernel_that_panics_raises_an_alert_and_boots_again(cluster: Cluster, trouble: Trouble):
    alert = cluster.wait_alert("panic", UEFI, since=trouble.began, limit=60)
    assert alert["severity"] == "critical"

    wait_booted(cluster, UEFI, trouble.generations[UEFI] + 1)
    assert cluster.sh(UEFI, BOOT_ID) != trouble.boots[UEFI]
    steps = [("os", "up"), ("image", "demo"), ("personality", "active")]
    story = wait_story(cluster, UEFI, trouble.began, steps)
    assert [step for step in story if step in steps] == steps
    assert ("os", "down") in story and ("os", "hung") not in story
    assert any("its kernel died: Kernel panic" in new for _, new in story)
    printed = (cluster.folder / "nodes" / UEFI / "console.log").read_text(errors="replace")
    assert "is believed to run" not in printed, "its new boot is not told to wait until it is missed"


def test_a_new_agent_finds_the_containers_of_the_old_one(cluster: Cluster):
    before = {node: containers(cluster, node) for node in BOTH}
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    agent = "pidof python3"
    pids = {node: cluster.sh(node, agent, "--minos").strip() for node in BOTH}
    began = time.time()

    cluster.run("node", "exec", "@compute", "--minos", "--", "sh", "-c", f"kill -9 $({agent})")

    for node in BOTH:
        cluster.eventually(
            f"a new agent on {node}",
            lambda node=node: cluster.agent(node)["attached"] and _said(cluster, node, agent) not in ("", pids[node]),
            60,
        )
        wait_story(
            cluster, node, began, [("event", "its agent was started again: the one before ended without a word")]
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
            60,
        )
    for node in BOTH:
        story = wait_story(cluster, node, began, [("personality", "active")])
        assert ("personality", "error") in story
    cluster.wait_ready(*BOTH, limit=60)
    for node in BOTH:
        assert containers(cluster, node) != before[node]
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots


# -- images


def build(cluster: Cluster, folder: Path, recipe: str, name: str, tag: str) -> None:
    """Put an image into the repository."""
    (folder / "recipe.yaml").write_text(recipe)
    cluster.strata("image", "build", folder / "recipe.yaml", "--name", name, "--tag", tag, limit=240)


def test_another_image_runs_within_seconds_and_without_a_reboot(cluster: Cluster, tmp_path: Path):
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    fill = f"run: ['head -c {PAYLOAD} /dev/urandom > /srv/payload']\n"
    build(cluster, tmp_path, "from: demo:1\n" + fill, "demo", "2")
    size = cluster.json("image", "show", "demo:2")["size"]
    began = time.time()

    cluster.strata("image", "promote", "demo:2", "demo:1")

    for node in BOTH:
        wait_switched(cluster, node, began)
    took = {node: round(last(cluster, node, "image", began)["time"] - began, 1) for node in BOTH}
    print(f"seconds from promote to running, {size / 1e6:.0f} MB: {took}")
    assert {cluster.sh(node, "stat -c %s /srv/payload").strip() for node in BOTH} == {str(PAYLOAD)}
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots
    assert {tuple(causes(cluster, node, began)) for node in BOTH} == {("switch-image",)}


def last(cluster: Cluster, node: str, variable: str, since: float) -> dict[str, Any]:
    """The last change of a variable since then."""
    return [one for one in cluster.history(node, since) if one["variable"] == variable][-1]


def wait_switched(cluster: Cluster, node: str, since: float) -> None:
    """Until the node has changed its image since then, and is ready with it."""

    def switched() -> bool:
        changes = [one["new"] for one in cluster.history(node, since) if one["variable"] == "image"]
        return "demo" in changes and cluster.is_ready(node)

    cluster.eventually(f"{node} changes its image", switched, CHANGE)


def test_an_image_that_does_not_start_gives_way_to_the_one_before(cluster: Cluster, tmp_path: Path):
    good = cluster.json("image", "show", "demo:1")["serial"]
    build(cluster, tmp_path, "from: demo:2\nargv: [/bin/false]\n", "broken", "1")
    began = time.time()

    cluster.strata("image", "promote", "broken:1", "demo:1")

    def refusing() -> list[str]:
        return [node for node in BOTH if cluster.agent(node)["failure"]]

    [canary] = cluster.eventually("one refuses", refusing, CHANGE)
    assert "system" in cluster.agent(canary)["failure"]
    cluster.eventually("the old image", lambda: cluster.agent(canary)["state"] == "active", CHANGE)
    other = next(node for node in BOTH if node != canary)
    assert f"it waits for canary {canary}" in cluster.json("node", "why", other)["items"][0]["summary"]
    assert cluster.json("status")["canaries"] == [{"node": canary, "waiting": 1}]
    for node in BOTH:  # the canary tries it again, and is away for a moment
        login = ("virtual", "login", node, "--", "hostname")
        cluster.eventually(
            f"the old image on {node}",
            lambda login=login, node=node: cluster.run(*login).out.strip() == node,
            CHANGE,
        )
    cluster.strata("image", "promote", f"demo@{good}", "demo:1")
    cluster.strata("node", "retry", "@compute")
    cluster.wait_ready(*BOTH, limit=CHANGE)
    assert {cluster.sh(node, "stat -c %s /srv/payload").strip() for node in BOTH} == {str(PAYLOAD)}
    failed = {
        node: any("switch-image failed: member system" in one["new"] for one in cluster.history(node, began))
        for node in BOTH
    }
    assert failed == {canary: True, other: False}, "nobody else has tried it"


def test_an_image_that_is_fetched_as_it_is_read(cluster: Cluster, tmp_path: Path):
    member = cluster.json("personality", "show", "demo")["members"][0]
    (tmp_path / "lazy.yaml").write_text(json.dumps({"name": "lazy", "members": [member | {"mode": "demand"}]}))
    cluster.strata("personality", "put", tmp_path / "lazy.yaml")

    cluster.strata("node", "set", BIOS, "image=lazy")

    cluster.eventually("it has the set", lambda: cluster.agent(BIOS)["set"] == "lazy", CHANGE)
    cluster.wait_ready(BIOS, limit=CHANGE)
    some = "head -c 4194304 /srv/payload | sha256sum"
    assert cluster.sh(BIOS, some) == cluster.sh(UEFI, some)
    assert "/dev/nbd" in cluster.sh(BIOS, "grep squashfs /proc/mounts", "--minos")
    cluster.strata("node", "set", BIOS, "--unset", "image")
    cluster.eventually("it has the other set", lambda: cluster.agent(BIOS)["set"] == "demo", CHANGE)
    cluster.wait_ready(BIOS, limit=CHANGE)


# -- without the service


def test_nodes_do_not_notice_that_the_service_is_away(cluster: Cluster):
    service = cluster.service
    command = Path("/proc", str(service.pid), "cmdline").read_text().rstrip("\0").split("\0")
    before = {node: (containers(cluster, node), cluster.sh(node, BOOT_ID), cluster.qemu(node)) for node in BOTH}
    generations = {node: cluster.generation(node) for node in BOTH}
    began = time.time()

    ps.stop(service, grace=30)
    while time.time() < began + AWAY:  # nothing can be waited for: nothing may happen
        assert all(cluster.qemu(node) for node in BOTH)
        time.sleep(5)
    # Everything that it says from now on is searched for secrets later.
    again = ps.spawn([*command, "--log-level", "debug"], cluster.environment, cluster.state / "serve.log")
    again.save(cluster.state / "serve.json")

    cluster.eventually("the service is back", lambda: cluster.run("node", "list").code == 0, 60)
    cluster.eventually("agents are back", lambda: all(cluster.agent(node)["attached"] for node in BOTH), 90)
    cluster.wait_ready(*BOTH, limit=60)
    assert {node: (containers(cluster, node), cluster.sh(node, BOOT_ID), cluster.qemu(node)) for node in BOTH} == before
    assert {node: cluster.generation(node) for node in BOTH} == generations
    for node in BOTH:
        assert [one for one in cluster.history(node, began) if one["variable"] == "power"] == []
        assert not {"power-on", "power-off"} & set(causes(cluster, node, began))


def test_up_again_changes_nothing(cluster: Cluster):
    before = {node: containers(cluster, node) for node in BOTH}

    assert "2 ready" in cluster.strata("up", limit=120).out

    assert {node: containers(cluster, node) for node in BOTH} == before


# -- those who have no business here


GHOST, GHOST_MAC, GHOST_ADDRESS = "ghost", "52:54:00:00:be:ef", "10.77.0.99"


@pytest.fixture(scope="module")
def secrets(cluster: Cluster) -> list[str]:
    """What must not be found anywhere. Tests add what they were given."""
    return [(cluster.folder / "bmc.password").read_text().strip()]


@pytest.fixture
def stranger(cluster: Cluster, tmp_path: Path) -> Iterator[Visitor]:
    """A machine on the nodes' network that nobody knows."""
    chassis = cluster.described
    with visitor(chassis.namespace, chassis.bridge, tmp_path, "52:54:00:00:ba:d0") as found:
        yield found


@pytest.fixture
def ghost(cluster: Cluster, tmp_path: Path) -> Iterator[Visitor]:
    """A machine that is a node, and boots as its owner pleases: it has no controller and is wanted to be nothing."""
    chassis = cluster.described
    cluster.strata("node", "add", GHOST, "--interface", f"mac={GHOST_MAC},address={GHOST_ADDRESS}")
    with visitor(chassis.namespace, chassis.bridge, tmp_path, GHOST_MAC) as found:
        found.take_address(GHOST_ADDRESS)
        yield found
    cluster.strata("node", "delete", GHOST, "--yes")


def boot_url(cluster: Cluster, rest: str) -> str:
    return f"http://{cluster.described.server}:4280/boot/{rest}"


def agent_url(cluster: Cluster, rest: str) -> str:
    return f"https://{cluster.described.server}:8443/{rest}"


def trust(cluster: Cluster) -> tuple[str, str]:
    return ("--cacert", str(cluster.state / "ca" / "ca.crt"))


def begin_boot(cluster: Cluster, machine: Visitor, secrets: list[str]) -> dict[str, Any]:
    """Boot as far as the fragment, as the ghost: what is in it."""
    where = boot_url(cluster, f"script?mac={GHOST_MAC}")
    known = f"/boot/fragment/{GHOST}/"
    # After its start the service waits a while before it believes that a node which ran is down.
    cluster.eventually("the ghost is known", lambda: known in machine.get(where).text, 75)
    script = machine.get(where)
    generation = cluster.generation(GHOST) + 1
    assert f"{known}{generation}" in script.text
    fragment = machine.get(boot_url(cluster, f"fragment/{GHOST}/{generation}"))
    assert fragment.status == 200
    found = boot_data(fragment.body)
    secrets.append(found["token"].split(".")[1])
    assert secrets[-1] not in script.text
    return found


def test_a_token_is_good_once_and_for_its_own_node_only(
    cluster: Cluster, ghost: Visitor, tmp_path: Path, secrets: list[str]
):
    began = time.time()
    redeem = agent_url(cluster, "agent/v1/redeem")
    token = begin_boot(cluster, ghost, secrets)["token"]

    assert ghost.get(boot_url(cluster, f"fragment/{GHOST}/{cluster.generation(GHOST)}")).status == 403
    cluster.wait_alert("boot-data-refused", GHOST, began)

    foreign, _ = signing_request(BIOS, tmp_path)
    assert ghost.post(redeem, {"token": token, "csr": foreign}, *trust(cluster)).status == 403
    cluster.wait_alert("token-foreign", GHOST, began)

    own, key = signing_request(GHOST, tmp_path)
    first = ghost.post(redeem, {"token": token, "csr": own}, *trust(cluster))
    assert first.status == 200
    again = ghost.post(redeem, {"token": token, "csr": own}, *trust(cluster))
    assert (again.status, again.text.count("redeemed before")) == (403, 1)
    cluster.wait_alert("token-replayed", GHOST, began)

    certificate = tmp_path / "ghost.crt"
    certificate.write_text(json.loads(first.body)["certificate"])
    shown = (*trust(cluster), "--cert", str(certificate), "--key", str(key))
    assert ghost.get(agent_url(cluster, "v1/nodes"), *shown).status == 403
    assert ghost.post(agent_url(cluster, "agent/v1/log"), {"lines": []}, *shown).status == 200
    later = begin_boot(cluster, ghost, secrets)["token"]
    newer, _ = signing_request(GHOST, tmp_path)
    assert ghost.post(redeem, {"token": later, "csr": newer}, *trust(cluster)).status == 200
    assert ghost.post(agent_url(cluster, "agent/v1/log"), {"lines": []}, *shown).status == 403
    cluster.wait_alert("certificate-superseded", GHOST, began)
    assert ghost.post(redeem, {"token": token, "csr": own}, *trust(cluster)).status == 403
    cluster.wait_alert("token-stale", GHOST, began)


def test_a_boot_that_does_not_arrive_again_and_again_is_held(cluster: Cluster, ghost: Visitor, secrets: list[str]):
    for _ in range(5):
        begin_boot(cluster, ghost, secrets)

    told = ghost.get(boot_url(cluster, f"script?mac={GHOST_MAC}"))

    assert f"node {GHOST} is held" in told.text
    cluster.eventually("it is held", lambda: cluster.node(GHOST)["hold"], 60)
    assert "5 boots in a row failed: the node never reported" in str(cluster.node(GHOST)["hold"])
    assert ghost.get(boot_url(cluster, f"fragment/{GHOST}/{cluster.generation(GHOST) + 1}")).status == 403
    cluster.wait_alert("boot-failed", GHOST)
    assert cluster.node(GHOST)["state"] == "held"
    assert [one["attempts"] for one in cluster.json("boot", "status", GHOST)] == [5]


def test_a_machine_that_nobody_knows_learns_nothing_but_how_to_introduce_itself(cluster: Cluster, stranger: Visitor):
    began = time.time()

    address, server, boot = stranger.ask_for_address()

    assert server == cluster.described.server
    assert address not in {node.address for node in cluster.described.nodes}
    script = stranger.get(f"{boot}&arch=x86_64")
    assert "/boot/discovery" in script.text
    data = boot_data(stranger.get(boot_url(cluster, "discovery")).body)
    assert set(data) == {"discovery", "controllers", "ca"}
    mac = cluster.described.nodes[0].mac
    assert stranger.get(boot_url(cluster, f"script?mac={mac}")).status == 403
    assert stranger.get(boot_url(cluster, f"fragment/{BIOS}/{cluster.generation(BIOS) + 1}")).status == 403
    cluster.wait_alert("boot-data-refused", BIOS, began)
    for path in ("exchange", "renew", "inventory", "log"):
        assert stranger.post(agent_url(cluster, f"agent/v1/{path}"), {}, *trust(cluster)).status in (401, 403), path
    file = next((cluster.state / "images").rglob("*.squashfs")).name
    for path in (f"images/squashfs/{file}", "v1/nodes", "v1/boot/profiles"):
        assert stranger.get(agent_url(cluster, path), *trust(cluster)).status in (401, 403), path


AS_NOBODY = """
import os, socket, ssl
os.setgroups([]); os.setgid(65534); os.setuid(65534)

def ask(port, text, tls=False):
    line = socket.create_connection(("SERVER", port), 60)
    if tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        line = context.wrap_socket(line)
    line.sendall((text + " HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\n{}").encode())
    found = b""
    while more := line.recv(65536):
        found += more
    return found.split(None, 2)[1].decode()

print(ask(4280, "GET /boot/script?mac=MAC"))
print(ask(4280, "GET /boot/fragment/NODE/NEXT"))
print(ask(4280, "GET /boot/fragment/OTHER/1"))
for path in ("redeem", "renew", "exchange", "inventory", "log"):
    print(ask(8443, "POST /agent/v1/" + path, True))
for path in ("/etc/strata/boot.json", "/run/strata/identity.pem"):
    try:
        open(path).read()
        print("read")
    except OSError as error:
        print(type(error).__name__)
for top, _, files in os.walk("/run/strata"):
    print("walked", top, files)
"""


def test_a_user_on_a_node_gets_none_of_its_secrets(cluster: Cluster):
    began = time.time()
    words = {
        "SERVER": cluster.described.server,
        "MAC": cluster.described.nodes[0].mac,
        "NODE": BIOS,
        "NEXT": str(cluster.generation(BIOS) + 1),
        "OTHER": UEFI,
    }
    program = AS_NOBODY
    for word, value in words.items():
        program = program.replace(word, value)

    (found,) = cluster.json("node", "exec", "--minos", BIOS, "--", "python3", "-I", "-S", "-c", program)

    refused = ["403"] * 3
    assert found["output"].split("\n")[:3] == refused, found
    assert set(found["output"].split("\n")[3:8]) <= {"400", "401", "403"}
    assert found["output"].split("\n")[8:] in (
        ["FileNotFoundError", "PermissionError", ""],
        ["FileNotFoundError"] * 2 + [""],
    )
    cluster.wait_alert("boot-data-refused", BIOS, began)
    cluster.wait_alert("boot-data-refused", UEFI, began)
    inside = cluster.run("node", "exec", BIOS, "--", "sh", "-c", "ls /run/strata /etc/strata")
    assert inside.code == 1
    assert "token" not in cluster.sh(BIOS, "cat /proc/cmdline").lower()


def test_secrets_are_nowhere_but_where_they_belong(cluster: Cluster, secrets: list[str]):
    assert len(secrets) > 2
    needles = [secret.encode() for secret in secrets]
    meant = {cluster.folder / "bmc.password"}

    found = []
    for path in cluster.state.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it works on: what it writes anew takes another's place
            if path.is_file() and path not in meant and any(needle in path.read_bytes() for needle in needles):
                found.append(str(path))
    for process in Path("/proc").iterdir():
        for name in ("cmdline", "environ") if process.name.isdigit() else ():
            with contextlib.suppress(OSError):
                text = (process / name).read_bytes()
                found += [str(process / name)] if any(needle in text for needle in needles) else []

    assert found == []
    assert b'"level":"debug"' in (cluster.state / "serve.log").read_bytes()


# -- other ways to boot


class Journeys(NamedTuple):
    """Two machines on their way, each its own."""

    generation: int
    mac: str
    adopts: list[str]
    """What is left to type for the second."""


@pytest.fixture(scope="module")
def journeys(cluster: Cluster) -> Journeys:
    """One node shall boot from a medium; the other one's machine is forgotten and starts anew. Both at once."""
    generation = cluster.generation(BIOS)
    cluster.typed(
        taken_from_pages(
            "tests/system/test_virtual_cluster.py::test_a_node_boots_from_a_medium_that_its_controller_fetched"
        )
    )
    look, reboots, forgets, *adopts = taken_from_pages(
        "tests/system/test_virtual_cluster.py::test_a_machine_that_nobody_knows_is_adopted_and_becomes_ready"
    )
    listed = cluster.typed([look, reboots, forgets])
    machine = cluster.described.nodes[1]
    assert all(words in listed for words in (machine.mac, machine.address, machine.bmc)), listed
    return Journeys(generation, machine.mac, adopts)


def test_a_node_boots_from_a_medium_that_its_controller_fetched(cluster: Cluster, journeys: Journeys):
    wait_booted(cluster, BIOS, journeys.generation + 1)

    assert cluster.node(BIOS)["facts"]["minos"]["value"] == "sealed"
    console = (cluster.folder / "nodes" / BIOS / "console.log").read_text(errors="replace")
    assert "Strata: booting from a medium" in console
    assert "initrd=fragment" not in cluster.sh(BIOS, "cat /proc/cmdline")


def test_a_machine_that_nobody_knows_is_adopted_and_becomes_ready(cluster: Cluster, journeys: Journeys):
    def waits() -> list[dict[str, Any]]:
        return [one for one in cluster.json("boot", "unknown", "list") if one["mac"] == journeys.mac]

    (found,) = cluster.eventually("it says what it is", waits, BOOT)
    machine = cluster.described.nodes[1]
    assert found["serial"] == machine.serial

    assert journeys.mac in cluster.typed(journeys.adopts, MAC=journeys.mac)

    cluster.wait_ready(UEFI, limit=BOOT)
    assert (cluster.node(UEFI)["bmc"], cluster.node(UEFI)["interfaces"][0]["address"]) == (machine.bmc, machine.address)
    assert cluster.strata("virtual", "login", UEFI, "--", "hostname").out.strip() == UEFI


# -- the end


def test_what_is_stopped_is_kept_and_goes_on(cluster: Cluster):
    began, password = time.time(), (cluster.folder / "bmc.password").read_text()
    audited = cluster.json("audit", "list", "--limit", "1000")
    service = cluster.service

    stop = taken_from_pages("tests/system/test_virtual_cluster.py::test_what_is_stopped_is_kept_and_goes_on")
    assert "strata down --delete" in cluster.typed(stop)
    assert not service.alive

    assert "2 ready" in cluster.strata("up", "--timeout", "8m", limit=540).out
    assert (cluster.folder / "bmc.password").read_text() == password
    assert [one["seq"] for one in cluster.json("audit", "list", "--limit", "1000")][: len(audited)] == [
        one["seq"] for one in audited
    ]
    for node in BOTH:
        assert cluster.history(node, 0.0)[0]["time"] < began


def test_interrupting_up_leaves_the_service_at_work(cluster: Cluster):
    cluster.strata("virtual", "kill", BIOS)
    cluster.eventually("it is missed", lambda: not cluster.is_ready(BIOS), 90)
    with cluster.start("up") as process:
        assert process.stderr is not None
        seen = next(line for line in process.stderr if f"{BIOS}  " in line)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert (process.returncode, said.count("interrupted")) == (130, 1), (seen, said)
    assert cluster.service.alive
    assert cluster.run("node", "list").code == 0


def test_down_leaves_nothing_even_after_everything_was_killed(cluster: Cluster):
    chassis = ps.load(cluster.folder / "chassis.process")
    assert chassis is not None
    for process in (cluster.service, chassis):
        os.kill(process.pid, signal.SIGKILL)
    cluster.eventually("they are gone", lambda: not (cluster.service.alive or chassis.alive), 60)

    cluster.typed(
        taken_from_pages(
            "tests/system/test_virtual_cluster.py::test_down_leaves_nothing_even_after_everything_was_killed"
        )
    )

    assert cluster.traces() == []
    assert "nothing to stop" in cluster.strata("down", "--delete").out
