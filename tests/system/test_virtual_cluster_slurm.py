"""Two emulated machines that run a Slurm's jobs, as ``strata up`` makes them: real slurmctld here, real slurmd on the
nodes. One cluster for all; the tests are in an order, and each leaves both nodes ready and idle."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.docs_support import ROOT, taken_from_pages
from strata.cli.up import slurm as up_slurm
from support import virtual_cluster
from support.virtual_cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.timeout(900)]

ONE, TWO = "n0001", "n0002"
BOTH = (ONE, TWO)
CHANGE = 400.0
"""Seconds that a change of both nodes may take beside other tests; alone it takes a fifth of that."""
KEEP_PROCPS = (
    "{ dpkg -L procps | while read -r one; do test ! -f $one || echo $one; done; echo /var/lib/dpkg; }"
    " | tar -cPf /root/procps.tar -T -"
)
"""Remembers a package of a node and what dpkg knows of it."""
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@pytest.fixture(scope="module")
def up() -> Iterator[tuple[Cluster, str]]:
    (command,) = taken_from_pages(
        "tests/system/test_virtual_cluster_slurm.py::test_up_ends_with_a_job_on_all_nodes_and_says_so"
    )
    with virtual_cluster.virtual_cluster(command) as (cluster, said):
        yield cluster, said.out


@pytest.fixture(scope="module")
def cluster(up: tuple[Cluster, str]) -> Cluster:
    return up[0]


class Jobs:
    """The cluster's Slurm, as somebody on this machine uses it."""

    def __init__(self, cluster: Cluster) -> None:
        self._environment = up_slurm.environment(cluster.state)
        self._log = cluster.state / up_slurm.FOLDER / up_slurm.JOBS
        self._cluster = cluster
        self._submitted = 0

    def go_on(self) -> None:
        """Have the queue never be empty: short jobs, one after the other on each node."""
        if len(self._said(["squeue", "-h", "-r", "-t", "pending", "-o", "%i"]).split()) < 4:
            self.submit("--array=1-8", "--wrap", "sleep 1")
            self._submitted += 8

    def submit(self, *arguments: str) -> str:
        """A job that keeps nothing of what it prints: its number."""
        return self._said(["sbatch", "--parsable", "-o", "/dev/null", *arguments]).strip()

    def ended(self) -> dict[str, str]:
        """Job → how it ended, as slurmctld wrote it down."""
        text = self._log.read_text() if self._log.exists() else ""
        return dict(re.findall(r"^JobId=(\d+) .*?JobState=(\S+)", text, re.MULTILINE))

    def states(self) -> dict[str, str]:
        """Node → what Slurm says of it."""
        lines = self._said(["sinfo", "-h", "-N", "-o", "%N %T"]).splitlines()
        return dict(line.split() for line in lines)  # type: ignore[misc]

    def accounts(self) -> dict[str, str]:
        """Job → how it ended, as slurmdbd keeps it."""
        said = self._said(["sacct", "-n", "-X", "-P", "-o", "jobidraw,state"])
        return dict(line.split("|") for line in said.splitlines())  # type: ignore[misc]

    def reason(self, node: str) -> str:
        """Why it is drained."""
        return self._said(["sinfo", "-h", "-n", node, "-o", "%E"]).strip()

    def typed(self, commands: list[str], folder: Path | None = None) -> str:
        """What commands of a page print, with this Slurm's where they are typed."""
        return self._cluster.typed(commands, folder, SLURM_CONF=self._environment["SLURM_CONF"])

    def _said(self, command: list[str]) -> str:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (command, done, self._logs())
        return done.stdout

    def _logs(self) -> list[str]:
        """What its daemons said last: for whoever wonders why a test failed."""
        folder = self._cluster.state / up_slurm.FOLDER
        return [path.read_text(errors="replace")[-1000:] for path in folder.glob("*d.log")]

    @contextlib.contextmanager
    def none_lost(self) -> Iterator[list[set[str]]]:
        """Jobs run, and all that were submitted come to their end. Which nodes are drained, looked at over and over."""
        before, seen, over = self.ended(), list[set[str]](), threading.Event()

        def look() -> None:
            while not over.wait(0.5):
                seen.append({node for node, state in self.states().items() if "drain" in state})

        thread = threading.Thread(target=look)
        thread.start()
        try:
            self.go_on()
            yield seen
        finally:
            over.set()
            thread.join()

        def ended() -> dict[str, str]:
            return {job: how for job, how in self.ended().items() if job not in before}

        self._cluster.eventually("all jobs ended", lambda: len(ended()) == self._submitted, CHANGE)
        assert set(ended().values()) == {"COMPLETED"}


@pytest.fixture
def jobs(cluster: Cluster) -> Jobs:
    return Jobs(cluster)


def wait_idle(cluster: Cluster, jobs: Jobs) -> None:
    idle = dict.fromkeys(BOTH, "idle")
    cluster.eventually("both are idle", lambda: jobs.states() == idle, CHANGE)


def srun(cluster: Cluster) -> list[str]:
    """Where a job on all nodes was."""
    return sorted(cluster.strata("virtual", "run", "--", "srun", "-N2", "hostname").out.split())


def put(cluster: Cluster, folder: Path, name: str, member: dict[str, Any]) -> None:
    """A personality of one member."""
    (folder / f"{name}.yaml").write_text(json.dumps({"name": name, "members": [member]}))
    cluster.strata("personality", "put", folder / f"{name}.yaml")


def steps(cluster: Cluster, node: str, since: float) -> list[str]:
    """What was done to the node since then, each thing once."""
    return list(dict.fromkeys(one["cause"] for one in cluster.history(node, since) if one["cause"]))


# -- as it came up


def test_up_ends_with_a_job_on_all_nodes_and_says_so(up: tuple[Cluster, str], jobs: Jobs):
    cluster, said = up

    assert f"srun -N2 hostname: {ONE} {TWO}" in said
    assert srun(cluster) == list(BOTH)
    wait_idle(cluster, jobs)
    [slurm] = cluster.json("workload", "list")
    assert (slurm["kind"], slurm["answers"], slurm["nodes"]) == ("slurm", True, 2)
    assert {node["facts"]["workload"]["value"] for node in cluster.json("node", "list")} == {"in"}


def test_its_slurm_is_used_as_the_pages_say(cluster: Cluster, jobs: Jobs):
    printed = jobs.typed(
        taken_from_pages("tests/system/test_virtual_cluster_slurm.py::test_its_slurm_is_used_as_the_pages_say")
    )
    for words in (
        f"^{ONE}$",
        f"^{TWO}$",
        "^PARTITION ",
        rf"^{ONE} +in .*(idle|comp|alloc|mix)",
        "^Submitted batch job",
        "^JobID ",
    ):
        assert re.search(words, printed, re.MULTILINE), (words, printed)
    wait_idle(cluster, jobs)


def test_the_cluster_is_what_its_repository_says(cluster: Cluster):
    site = cluster.state / "site"

    commands = taken_from_pages(
        "tests/system/test_virtual_cluster_slurm.py::test_the_cluster_is_what_its_repository_says"
    )
    assert cluster.typed(commands).startswith("nothing would change")
    assert cluster.json("config", "status")["nodes"] == 2
    [shown] = [one for one in cluster.json("config", "show", ONE, site, "--explain") if one["field"] == "nid"]
    assert (str(shown["value"]), shown["layer"]) == ("1", "system")


def test_the_key_of_munge_is_with_munged_and_on_nodes_and_nowhere_else(cluster: Cluster):
    mine = cluster.state / up_slurm.FOLDER / up_slurm.KEY
    key = mine.read_bytes()
    found = []
    for path in cluster.state.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # what is written anew takes another's place
            if path.is_file() and path != mine and key in path.read_bytes():
                found.append(str(path))
    for process in Path("/proc").iterdir():
        for name in ("cmdline", "environ") if process.name.isdigit() else ():
            with contextlib.suppress(OSError):
                found += [str(process / name)] if key in (process / name).read_bytes() else []

    assert found == []
    assert cluster.sh(ONE, "stat -c %a:%U /etc/munge/munge.key").strip() == "400:munge"
    assert cluster.json("secret", "status", up_slurm.SECRET)["counts"]["current"] == 2
    assert key.decode() not in cluster.sh(ONE, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' ' '")


# -- containers and accelerators

RULE = [{"make": "tpu", "kind": "tpu", "pci": ["1af4:1005"], "name": "Virtual TPU", "devices": ["/dev/hwrng"]}]
"""Takes the random number generator that every virtual node has for an accelerator."""
NUMBER = 64101 + os.getpid() % 800  # of nobody else: what a killed run has left does no harm
SOMEBODY = f"tester-{NUMBER}"


@pytest.fixture
def somebody(cluster: Cluster) -> Iterator[str]:
    """An account with a home, here and on both nodes; their homes are not the same, as this cluster shares no disk. A
    site's Slurm is everybody's; this one's files are root's, and opened for a while."""
    home = f"/home/{SOMEBODY}"
    told = ("--create-home", "--home-dir", home, "--user-group", "--uid", str(NUMBER), "--key", f"UID_MAX={NUMBER}")
    subprocess.run(["useradd", *told, SOMEBODY], check=True)
    conf = cluster.state / up_slurm.FOLDER / up_slurm.CONF
    closed = [path for path in (conf, *conf.parents) if path.stat().st_mode & 0o077 == 0]
    try:
        for path in closed:
            path.chmod(0o711 if path.is_dir() else 0o644)
        for node in BOTH:
            line = f"{SOMEBODY}:x:{NUMBER}:{NUMBER}::{home}:/bin/sh"
            cluster.sh(node, f"echo {line} >>/etc/passwd; install -d -o {NUMBER} -g {NUMBER} {home}")
        yield SOMEBODY
    finally:
        for path in closed:
            path.chmod(0o700 if path.is_dir() else 0o600)
        subprocess.run(["userdel", "--remove", SOMEBODY], check=True, capture_output=True)


def test_a_job_runs_in_a_container_on_a_node_that_has_the_runner_alone(
    cluster: Cluster, jobs: Jobs, somebody: str, tmp_path: Path
):
    (tmp_path / "busybox").write_bytes(Path("/bin/busybox").read_bytes())
    files = [
        {"path": "/bin/sh", "source": "busybox", "mode": "0755"},
        {"path": "/bin/cat", "source": "busybox", "mode": "0755"},
        {"path": "/etc/mark", "content": "in the image\n"},
    ]
    (tmp_path / "small.yaml").write_text(json.dumps({"from": "scratch", "files": files}))
    cluster.strata("image", "build", tmp_path / "small.yaml", "--name", "small", "--tag", "1", limit=240)
    images = tmp_path / "images"
    root = Path(cluster.json("container", "pull", "small:1", "--cache", images)["root"])
    mark = images / "used" / root.parent.name
    # What nodes of a site have by a shared disk; theirs is made of what they have.
    copies = "for file in $(ldd /bin/busybox | grep -o '/[^ ]*'); do install -D $file .$file; done"
    for node in BOTH:
        cluster.sh(
            node, f"mkdir -p {root}/bin {root}/etc {mark.parent}; echo in the image >{root}/etc/mark; touch {mark}"
        )
        cluster.sh(node, f"cd {root}; cp /bin/busybox bin/cat; {copies}")
    reached = ("--env", f"SLURM_CONF={cluster.state / up_slurm.FOLDER / up_slurm.CONF}")
    cluster.strata("workload", "connect", "slurm", "--name", up_slurm.NAME, *reached, "--images", images)

    asked = ("--account", somebody, "--image", "small:1", "--target", up_slurm.NAME, "--time", "5m")
    out = f"/home/{somebody}/out"
    more = ("-N", 2, "--launch", "tasks", "--stdout", out)
    job = cluster.strata("job", "submit", *asked, *more, "--", "/bin/cat", "/etc/mark").out.strip()
    cluster.eventually("it has ended", lambda: cluster.json("job", "show", job)["state"] == "ended", CHANGE)
    done = cluster.json("job", "show", job)

    printed = cluster.sh(min(done["nodes"]), f"cat {out}")
    assert (done["outcome"], sorted(done["nodes"])) == ("done", list(BOTH)), (done["reason"], printed)
    assert printed.splitlines() == ["in the image"] * 2
    wait_idle(cluster, jobs)


# -- changes under load


def test_a_new_image_rolls_through_while_jobs_run_and_none_is_lost(cluster: Cluster, jobs: Jobs, tmp_path: Path):
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    (tmp_path / "second.yaml").write_text('from: slurm:1\nfiles: [{path: /etc/motd, content: "second"}]\n')
    build, promote, look = taken_from_pages(
        "tests/system/test_virtual_cluster_slurm.py::test_a_new_image_rolls_through_while_jobs_run_and_none_is_lost"
    )
    cluster.typed([build], tmp_path)
    old, began = cluster.json("personality", "show", "slurm")["digest"], time.time()
    assert cluster.json("accelerator", "nodes") == []
    rules = shlex.quote(json.dumps(RULE))
    cluster.sh(ONE, f"mkdir -p /etc/strata; echo {rules} >/etc/strata/accelerators.json", "--minos")

    with jobs.none_lost() as drained:
        cluster.typed([promote, look])

        def rolled() -> bool:
            jobs.go_on()
            now = cluster.json("personality", "show", "slurm")
            return now["digest"] != old and now["running"] == 2 and cluster.is_ready(*BOTH)

        cluster.eventually("both have the new image", rolled, CHANGE)

    assert set().union(*drained) == set(BOTH), "both were drained"
    assert max(map(len, drained)) == 1, "one at a time, as the budget of the fleet says"
    for node in BOTH:
        assert cluster.sh(node, "cat /etc/motd").strip() == "second"
        assert steps(cluster, node, began) == ["leave-workload", "switch-image", "join-workload"]
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots


def test_accelerators_are_looked_for_again_when_a_node_runs_something_else(cluster: Cluster):
    def known() -> list[tuple[str, str, str, bool]]:
        found = cluster.json("accelerator", "nodes")
        return [(one["make"], one["name"], one["nodes"], one["running"]) for one in found]

    cluster.eventually("it is told of", lambda: known() == [("tpu", "Virtual TPU", ONE, True)], CHANGE)


def test_the_former_image_comes_back_as_the_page_says(cluster: Cluster, jobs: Jobs):
    latest = cluster.json("personality", "show", "slurm")["digest"]

    cluster.typed(
        taken_from_pages(
            "tests/system/test_virtual_cluster_slurm.py::test_the_former_image_comes_back_as_the_page_says"
        )
    )

    def back() -> bool:
        now = cluster.json("personality", "show", "slurm")
        return now["digest"] != latest and now["running"] == 2 and cluster.is_ready(*BOTH)

    cluster.eventually("both have the former image", back, CHANGE)
    assert all("second" not in cluster.sh(node, "cat /etc/motd") for node in BOTH)
    wait_idle(cluster, jobs)


# -- accounts


def test_sacct_knows_what_became_of_every_job(cluster: Cluster, jobs: Jobs):
    before = jobs.ended()
    assert srun(cluster) == list(BOTH)
    jobs.submit("--array=1-2", "--wrap", "true")
    cluster.eventually("they ended", lambda: len(jobs.ended()) >= len(before) + 3, CHANGE)
    ended = jobs.ended()

    cluster.eventually("all are there", lambda: {*ended.items()} <= {*jobs.accounts().items()}, CHANGE)


def test_what_sacct_prints_is_put_down_to_jobs_as_the_page_says(cluster: Cluster, jobs: Jobs):
    commands = taken_from_pages(
        "tests/system/test_virtual_cluster_slurm.py::test_what_sacct_prints_is_put_down_to_jobs_as_the_page_says"
    )
    submitted = jobs.submit("--wrap", "true")
    cluster.eventually("it has ended", lambda: jobs.accounts().get(submitted) == "COMPLETED", CHANGE)
    before = {job["job"] for job in cluster.json("energy", "jobs")}
    for command in commands:
        print(jobs.typed([command]))
    known = {job["job"] for job in cluster.json("energy", "jobs")}
    assert submitted in known - before and known >= set(jobs.accounts()), (before, known)


def test_a_broken_image_stops_at_the_canary_and_is_taken_back_while_jobs_run(
    cluster: Cluster, jobs: Jobs, tmp_path: Path
):
    (tmp_path / "broken.yaml").write_text("from: slurm:1\nargv: [/bin/false]\n")
    cluster.strata("image", "build", tmp_path / "broken.yaml", "--name", "broken", "--tag", "1", limit=240)
    [member] = cluster.json("personality", "show", "slurm")["members"]
    put(cluster, tmp_path, "broken", member | {"release": "broken:1"})
    boots, began = {node: cluster.sh(node, BOOT_ID) for node in BOTH}, time.time()
    limits = ("--waves", "1,100%", "--max-unavailable", "1", "--max-failures", "0", "--soak", "1s")

    with jobs.none_lost() as drained:
        cluster.strata("rollout", "start", "bad", "@compute", "image=broken", *limits)

        def over() -> dict[str, Any] | None:
            jobs.go_on()
            found: dict[str, Any] = cluster.json("rollout", "status", "bad")
            return found if found["ended"] and cluster.is_ready(*BOTH) else None

        found = cluster.eventually("it has gone back", over, CHANGE)

    canary = found["counts"]["failed_nodes"]
    assert (found["state"], found["counts"]["ready"], found["counts"]["begun"]) == ("rolled-back", 0, 1)
    assert "1 of 1 nodes failed by wave 1" in found["reason"]
    assert set().union(*drained) == {canary}, "nobody but the canary was disturbed"
    [other] = {*BOTH} - {canary}
    assert [one for one in cluster.history(other, began) if one["variable"] in ("want", "image", "workload")] == []
    failures = [one["new"] for one in cluster.history(canary, began) if one["variable"] == "event"]
    assert any("switch-image failed: member system" in one for one in failures)
    assert cluster.wait_alert("bad: 1 of 1 nodes failed", since=began)["severity"] == "critical"
    assert {_personality(cluster, node) for node in BOTH} == {"slurm"}
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots
    assert srun(cluster) == list(BOTH)


COMPUTE = """
import socket, sys
from distributed import Client

client = Client(sys.argv[1], timeout=120)
client.wait_for_workers(2, timeout=300)
squares = client.gather(client.map(lambda number: number * number, range(100)))
print(sum(squares), *sorted(client.run(socket.gethostname).values()))
"""


@contextlib.contextmanager
def dask_scheduler(cluster: Cluster, command: str) -> Iterator[str]:
    """Where it is: beside the service."""
    words = shlex.split(command, comments=True)
    address = f"tcp://{cluster.described.server}:8786"
    assert words[:5] == ["strata", "virtual", "run", "--", "dask-scheduler"] and address in words
    with subprocess.Popen(cluster.command(*words[1:]), env=cluster.environment, stderr=subprocess.DEVNULL) as process:
        try:
            yield address
        finally:
            process.terminate()


def test_nodes_move_from_slurm_to_dask_and_back_without_a_reboot(cluster: Cluster, jobs: Jobs):
    build, put_there, scheduler, there, back_again = taken_from_pages(
        "tests/system/test_virtual_cluster_slurm.py::test_nodes_move_from_slurm_to_dask_and_back_without_a_reboot"
    )
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    cluster.typed([build, put_there], ROOT)

    with dask_scheduler(cluster, scheduler) as address:
        jobs.typed([there])

        moved = {"image": "dask", "workload": "out"}
        cluster.eventually("both are Dask's", lambda: all(_has(cluster, node, moved) for node in BOTH), CHANGE)
        assert all("drain" in state for state in jobs.states().values())
        computed = cluster.inside("/usr/bin/python3", "-c", COMPUTE, address, limit=CHANGE)
        assert computed.out.split() == ["328350", *BOTH], computed

        jobs.typed([back_again])

        back = {"image": "slurm", "workload": "in"}
        cluster.eventually("both are Slurm's again", lambda: all(_has(cluster, node, back) for node in BOTH), CHANGE)
    wait_idle(cluster, jobs)
    assert srun(cluster) == list(BOTH)
    assert {node: cluster.sh(node, BOOT_ID) for node in BOTH} == boots


# -- what nodes have, and how they are


def test_a_file_that_is_edited_and_a_package_that_is_removed_on_a_node_are_seen_and_handled_by_policy(
    cluster: Cluster, jobs: Jobs
):
    site = cluster.state / "site"
    files = [
        {"path": "/etc/where", "template": "on {{ node.name }}\n", "drift": "correct"},
        {"path": "/etc/kept", "content": "ours\n", "drift": "report"},
    ]
    overlay = {"kind": "overlay", "name": "where", "files": files, "packages": [{"name": "procps"}]}
    (site / "site/overlay.yaml").write_text(json.dumps(overlay))
    desires = site / "site/desires.yaml"
    desires.write_text(desires.read_text().replace("personality: active", "personality: active, config: current"))
    for words in (("add", "--all"), ("-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "Deliver")):
        subprocess.run(["git", "-C", site, *words], check=True, timeout=60)

    cluster.strata("config", "apply", site)

    cluster.eventually(
        "both have it", lambda: all(_file(cluster, node, "where") == f"on {node}" for node in BOTH), CHANGE
    )
    cluster.eventually("all is as wanted", lambda: cluster.is_ready(*BOTH), CHANGE)
    began = time.time()

    cluster.sh(ONE, "echo mine >/etc/where; echo mine >/etc/kept")
    cluster.sh(ONE, f"{KEEP_PROCPS} && dpkg --remove --force-depends procps")

    cluster.eventually("it is corrected", lambda: _file(cluster, ONE, "where") == f"on {ONE}", CHANGE)
    cluster.wait_alert("/etc/kept", node=ONE, since=began, limit=CHANGE)
    cluster.wait_alert("procps", node=ONE, since=began, limit=CHANGE)
    assert _file(cluster, ONE, "kept") == "mine", "what is only reported is left alone"
    drifted = [(one["node"], one["where"], one["corrected"]) for one in cluster.json("config", "drift")]
    assert sorted(drifted) == [(ONE, "/etc/kept", False), (ONE, "/etc/where", True), (ONE, "procps", False)]
    cluster.sh(ONE, "echo ours >/etc/kept; tar -xPf /root/procps.tar")
    cluster.eventually(
        "nothing differs", lambda: all(one["corrected"] for one in cluster.json("config", "drift")), CHANGE
    )
    wait_idle(cluster, jobs)


def test_a_secret_is_on_its_node_alone_and_a_new_value_gets_there(cluster: Cluster, tmp_path: Path):
    def give(command: str, value: str, *options: str) -> None:
        (tmp_path / value).write_text(value)
        cluster.strata("secret", command, "canary", "--file", tmp_path / value, *options)

    def on(node: str) -> str:
        return cluster.sh(node, "cat /run/secrets/canary 2>/dev/null || true")

    give("put", "first-value", "--select", ONE)
    cluster.eventually("it has it", lambda: on(ONE) == "first-value", CHANGE)
    give("rotate", "second-value")
    cluster.eventually("it has the new one", lambda: on(ONE) == "second-value", CHANGE)
    cluster.eventually(
        "that is known", lambda: cluster.json("secret", "status", "canary")["counts"]["current"] == 1, CHANGE
    )
    assert on(TWO) == ""
    for path in ("serve.log", "slurm/slurmctld.log"):
        assert "-value" not in (cluster.state / path).read_text(errors="replace")
    cluster.strata("secret", "delete", "canary")
    cluster.eventually("it is gone", lambda: on(ONE) == "", CHANGE)


def test_a_node_that_fails_a_check_is_drained_in_slurm_and_returned_when_it_passes(
    cluster: Cluster, jobs: Jobs, tmp_path: Path
):
    check = {
        "name": "scratch",
        "kind": "script",
        "script": "test ! -e /tmp/broken || { echo the scratch is broken; exit 1; }",
        "select": "@compute",
        "every": "15s",
        "timeout": "15s",
        "tries": 1,
        "passes": 1,
    }
    (tmp_path / "check.yaml").write_text(json.dumps(check))
    cluster.strata("health", "put", tmp_path / "check.yaml")
    cluster.strata("health", "policy", "--repair", "none", "--most", "60")
    cluster.strata("node", "set", "@compute", "health=ok")
    wait_idle(cluster, jobs)

    cluster.sh(ONE, "touch /tmp/broken")

    cluster.eventually("it is drained", lambda: jobs.states() == {ONE: "drained", TWO: "idle"}, CHANGE)
    assert "the scratch is broken" in jobs.reason(ONE)
    assert cluster.strata("virtual", "run", "--", "srun", "-N1", "hostname").out.split() == [TWO]

    cluster.sh(ONE, "rm /tmp/broken")

    wait_idle(cluster, jobs)
    assert srun(cluster) == list(BOTH)
    cluster.strata("node", "set", "@compute", "--unset", "health")
    cluster.strata("health", "delete", "scratch")


# -- power


def test_idle_nodes_go_off_and_a_job_brings_them_back_through_capmc_and_through_our_programs(
    cluster: Cluster, jobs: Jobs
):
    programs = cluster.state / up_slurm.FOLDER / up_slurm.PROGRAMS
    commands = taken_from_pages(
        "tests/system/test_virtual_cluster_slurm.py::"
        "test_idle_nodes_go_off_and_a_job_brings_them_back_through_capmc_and_through_our_programs"
    )
    cluster.typed(commands[::-1])  # the one about idle nodes last: they go off at once
    by_capmc(cluster, programs / "strata-slurm-suspend", "node_off")
    by_capmc(cluster, programs / "strata-slurm-resume", "node_reinit")

    cluster.eventually("both are off", lambda: {cluster.qemu(node) for node in BOTH} == {0}, CHANGE)
    cluster.eventually("Slurm knows", lambda: set(jobs.states().values()) == {"idle~"}, CHANGE)
    log = cluster.state / up_slurm.FOLDER / "programs.log"
    assert f"suspend {TWO}: {TWO}" in log.read_text() and ONE not in log.read_text()

    began = time.time()
    found = cluster.strata("virtual", "run", "--", "srun", "-N2", "hostname", limit=CHANGE).out.split()

    assert sorted(found) == list(BOTH)
    assert f"resume {TWO}: {TWO}" in log.read_text()
    assert {"power-on", "boot"} <= set(steps(cluster, ONE, began)) & set(steps(cluster, TWO, began))
    cluster.strata("up", "--idle-off", "0s")
    cluster.eventually("both stay", lambda: cluster.is_ready(*BOTH), CHANGE)
    wait_idle(cluster, jobs)


def test_slurm_reboots_a_node_as_the_page_says(cluster: Cluster, jobs: Jobs):
    boots = {node: cluster.sh(node, BOOT_ID) for node in BOTH}
    generation = cluster.generation(ONE)

    jobs.typed(
        taken_from_pages("tests/system/test_virtual_cluster_slurm.py::test_slurm_reboots_a_node_as_the_page_says")
    )

    cluster.eventually("it boots anew", lambda: cluster.generation(ONE) > generation, CHANGE)
    cluster.eventually("both are ready", lambda: cluster.is_ready(*BOTH), CHANGE)
    wait_idle(cluster, jobs)
    assert cluster.sh(ONE, BOOT_ID) != boots[ONE]
    assert cluster.sh(TWO, BOOT_ID) == boots[TWO]


# -- what a person does to it


def test_what_the_page_breaks_comes_back(cluster: Cluster, jobs: Jobs):
    kill, start, kill_agent, kill_slurmd, panic, history, alerts = taken_from_pages(
        "tests/system/test_virtual_cluster_slurm.py::test_what_the_page_breaks_comes_back"
    )
    generations, began = {node: cluster.generation(node) for node in BOTH}, time.time()

    def restarts() -> int:
        return int(cluster.agent(TWO)["members"][0]["restarts"])

    before = restarts()

    def told(node: str, words: str) -> bool:
        return any(words in one["new"] for one in cluster.history(node, began))

    def in_vain(command: str) -> None:
        """Nobody is left to say how it ended."""
        cluster.typed([f"! {command}"])

    assert "killed n0001" in cluster.typed([kill])
    cluster.typed([start])
    in_vain(kill_agent)
    cluster.eventually("it has a new agent", lambda: told(TWO, "its agent was started again"), CHANGE)
    cluster.wait_ready(TWO, limit=CHANGE)
    assert restarts() == before, "what it runs has not died"
    cluster.typed([kill_slurmd])
    cluster.eventually("it runs again", lambda: restarts() == before + 1, CHANGE)
    cluster.wait_ready(TWO, limit=CHANGE)
    in_vain(panic)
    shown = rf"critical +open +{TWO} .*panic"
    cluster.eventually("it is listed", lambda: re.search(shown, cluster.typed([alerts])), CHANGE)

    for node in BOTH:
        cluster.eventually(f"{node} boots", lambda node=node: cluster.generation(node) > generations[node], CHANGE)
    cluster.wait_ready(*BOTH, limit=CHANGE)
    wait_idle(cluster, jobs)
    printed = cluster.typed([history])
    assert {node: cluster.generation(node) - generations[node] for node in BOTH} == dict.fromkeys(BOTH, 1)
    for words in (rf"{ONE} +power +on +off", rf"{ONE} +power +off +on"):
        assert re.search(words, printed), (words, printed)


def test_machines_are_added_as_the_page_says(cluster: Cluster, jobs: Jobs):
    one_more, as_many = taken_from_pages(
        "tests/system/test_virtual_cluster_slurm.py::test_machines_are_added_as_the_page_says"
    )
    (cluster.state / "site/mine.yaml").write_text("kind: group\nname: mine\nmembers: n0001\n")

    cluster.typed([one_more])
    cluster.eventually("it runs jobs", lambda: jobs.states() == dict.fromkeys((*BOTH, "n0003"), "idle"), CHANGE)

    cluster.typed([as_many])

    there = (*BOTH, "n0003", "n0004")
    cluster.eventually("all run jobs", lambda: jobs.states() == dict.fromkeys(there, "idle"), CHANGE)
    assert [node["name"] for node in cluster.json("node", "list", "@compute")] == list(there)
    assert cluster.json("config", "status")["nodes"] == 2, "somebody has changed the repository: it is left alone"


def by_capmc(cluster: Cluster, program: Path, call: str) -> None:
    """Have the first node switched as Slurm's own programs for CAPMC do, and the other by the program that is there."""
    ours = program.with_suffix(".ours")
    program.rename(ours)
    capmc = shlex.join([sys.executable, "-c", "from strata.capmc_cli.capmc import main; main()", call, "-n", "1"])
    conf = up_slurm.environment(cluster.state)["SLURM_CONF"]
    program.write_text(
        f"""#!/bin/sh
for node in $(SLURM_CONF={conf} scontrol show hostnames "$1"); do
  if [ "$node" = "{ONE}" ]; then OS_SERVICE_URL=unix:{cluster.state}/admin.sock {capmc}; else {ours} "$node"; fi
done
"""
    )
    program.chmod(0o700)


def _file(cluster: Cluster, node: str, name: str) -> str:
    """A file in /etc of a node; empty: it has none."""
    return cluster.sh(node, f"cat /etc/{name} 2>/dev/null || true").strip()


def _personality(cluster: Cluster, node: str) -> str:
    """Which one it runs."""
    return str(cluster.agent(node)["set"])


def _has(cluster: Cluster, node: str, wanted: dict[str, str]) -> bool:
    """Whether a node is ready, and this."""
    found = cluster.node(node)
    return found["state"] == "ready" and all(found["facts"][name]["value"] == value for name, value in wanted.items())
