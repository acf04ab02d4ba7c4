"""What holds a job of this machine to what it asked for: control groups of the kernel, or what is done without them."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.core.host.process import find, load
from strata.jobs.accounts import LocalAccounts
from strata.jobs.local import supervisor
from strata.jobs.local.cgroups import Groups, open_groups
from strata.jobs.local.executor import LocalExecutor
from strata.jobs.local.slots import Slots
from strata.provisioning.minos.tree import pack, regular
from strata.schedulers.jobs import Accelerators, Resources
from support.job_scheduler_contract import Site
from support.job_site import ROOT, own_name, until
from support.minos import LATEST, Machine, built

ACCOUNT = "nobody" if ROOT else own_name()


@asynccontextmanager
async def site(directory: Path, slots: Slots, groups: Groups | None = None) -> AsyncIterator[Site]:
    folder = directory / "of the account's"
    folder.mkdir(exist_ok=True)
    if ROOT:
        shutil.chown(folder, ACCOUNT)
    opened = open_groups if groups is None else lambda _: groups
    made = LocalExecutor(directory / "jobs", slots, LocalAccounts({}, 1), grace=1.0, groups=opened)
    await made.start()
    try:
        yield Site(made, ACCOUNT, folder)
    finally:
        await made.stop()


@pytest.mark.slow
@pytest.mark.server
async def test_jobs_keep_their_accelerators_when_the_service_is_restarted(open_dir: Path) -> None:
    wait = "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES > given.$STRATA_JOB_ID\nuntil [ -e $GATE ]; do sleep 0.05; done\n"
    one = Resources(accelerators=Accelerators(count=1))
    async with site(open_dir, Slots(cores=4, memory=100, accelerators=(0, 1))) as found:
        first = found.work(wait, resources=one, env={"GATE": "first"})
        second = found.work(wait, resources=one, env={"GATE": "second"})
        for work in (first, second):
            await found.scheduler.submit(work)
            await until(lambda work=work: (found.folder / f"given.{work.key}").exists())  # type: ignore[misc]
        (found.folder / "first").touch()
        await found.ended(first)
    async with site(open_dir, Slots(cores=4, memory=100, accelerators=(0, 1))) as again:
        again._began = found._began
        third = again.work(wait, resources=one, env={"GATE": "second"})
        await again.scheduler.submit(third)
        given = again.folder / f"given.{third.key}"
        await until(lambda: given.exists() and given.read_text())
        assert (again.folder / f"given.{second.key}").read_text() == "1\n"
        assert given.read_text() == "0\n", "the other is still the second job's"
        (again.folder / "second").touch()
        for work in (second, third):
            await again.ended(work)


@pytest.mark.slow
@pytest.mark.server
async def test_without_control_groups_jobs_are_bound_to_cores_of_their_own(open_dir: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core")
    tell = "#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status\nuntil [ -e go ]; do sleep 0.05; done\n"
    async with site(open_dir, Slots(cores=2, memory=100), Groups()) as found:
        works = [found.work(tell), found.work(tell)]
        for work in works:
            await found.scheduler.submit(work)
        for work in works:
            await found.until(work, lambda seen: seen[0].state == "running", "both run")
        (found.folder / "go").touch()
        for work in works:
            await found.ended(work)
        said = {found.out(work).split()[1] for work in works}
        assert said == {str(cpu) for cpu in sorted(os.sched_getaffinity(0))[:2]}


@pytest.mark.slow
@pytest.mark.server
async def test_whatever_a_job_started_ends_with_it_also_when_its_supervisor_is_killed(open_dir: Path) -> None:
    groups = open_groups(open_dir / "jobs")
    if groups.folder is None:
        pytest.skip(f"no control groups here: {groups.why}")
    # In sessions of their own, and their parents gone: children of nobody.
    begin = "#!/bin/sh\nfor n in 1 2 3; do (setsid sh -c 'echo $$ >> pids; exec sleep 600' &); done\nsleep 600\n"
    async with site(open_dir, Slots(cores=2, memory=100)) as found:
        work = found.work(begin)
        await found.scheduler.submit(work)
        told = found.folder / "pids"
        await until(lambda: told.exists() and len(told.read_text().split()) == 3)
        process = load(open_dir / "jobs" / work.key / "job.pid")
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        (seen,) = await found.ended(work)
        assert seen.outcome == "lost"
        for pid in told.read_text().split():
            await until(lambda pid=pid: find(int(pid)) is None)  # type: ignore[misc]
    assert not groups.folder.exists(), "and nothing of the groups is left behind"


def test_what_the_kernel_cannot_hold_a_job_to_is_told(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("20 1 8:1 / / rw - ext4 /dev/sda rw\n")
    found = open_groups(tmp_path, mounts)
    assert found.folder is None and found.of("a", "job") == ""
    assert found.told == (
        "memory by a look every half second; cores by affinity, which a program can change "
        "(this machine has no cgroup v2)"
    )
    assert Groups(folder=tmp_path, memory=True, cpu=True).told == "memory by the kernel; cores by the kernel"
    mounts.write_text(f"30 20 0:25 / {tmp_path}/gone rw,nosuid - cgroup2 cgroup2 rw\n")
    assert "no group can be made below" in open_groups(tmp_path, mounts).told


def test_the_service_s_own_unit_lets_it_make_groups_and_leaves_jobs_running() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(Path(__file__).parents[2] / "deploy" / "strata.service")
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Service"].get("ProtectControlGroups", "no") == "no"


ORDER = {
    "folder": "/jobs/a",
    "name": "job",
    "env": {},
    "given": {},
    "bind": [],
    "group": "/cgroup/jobs/a.job",
    "devices": "",
}
WORK = {
    "uid": 1000,
    "gid": 1000,
    "groups": [1000],
    "env": {},
    "workdir": "/",
    "stdin": None,
    "stdout": "/tmp/out",
    "stderr": None,
    "time": None,
    "memory": 30,
    "array": False,
    "grace": 5.0,
}
BEGIN = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /cgroup /jobs/a /tmp
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t devtmpfs dev /dev; mount -t cgroup2 cgroup2 /cgroup; chmod 1777 /tmp
echo +memory > /cgroup/cgroup.subtree_control; echo +cpu > /cgroup/cgroup.subtree_control
mkdir /cgroup/jobs
echo +memory > /cgroup/jobs/cgroup.subtree_control; echo +cpu > /cgroup/jobs/cgroup.subtree_control
cp /work.json /jobs/a/work.json
/usr/bin/python3.11 -I -S /supervisor.py < /order > /answer
until [ -e /jobs/a/job.end ]; do sleep 1; done
echo; echo "LIMITS $(cat /tmp/out)"; echo "ENDED $(cat /jobs/a/job.end)"
echo "LEFT $(ls -d /cgroup/jobs/* | grep -c job$)"
while :; do sleep 60; done
"""
HUNGRY = """#!/bin/sh
cat /cgroup/jobs/a.job/memory.max /cgroup/jobs/a.job/cpu.max | tr '\\n' ' '
(setsid sleep 600 &)
x=0123456789abcdef
while :; do x=$x$x; done
"""


@pytest.mark.slow
@pytest.mark.server
def test_the_kernel_ends_a_job_that_takes_more_memory_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    order = {**ORDER, "limits": {"memory.max": str(30 << 20), "cpu.max": "50000 100000"}}
    more = pack(
        {
            "init": regular(BEGIN.encode(), executable=True),
            "supervisor.py": regular(Path(supervisor.__file__).read_bytes()),
            "work.json": regular(json.dumps({**WORK, "script": HUNGRY}).encode()),
            "order": regular(json.dumps(order).encode() + b"\n"),
        }
    )
    initrd = tmp_path / "initrd"
    initrd.write_bytes((built() / LATEST / "initrd").read_bytes() + more)
    with Machine(initrd, append="quiet rdinit=/init") as machine:
        limits = machine.wait_for("LIMITS ", within=300)
        ended = json.loads(machine.wait_for("ENDED ", within=60).partition("ENDED ")[2])
        left = machine.wait_for("LEFT ", within=60)
    assert limits.split() == ["LIMITS", str(30 << 20), "50000", "100000"]
    assert (ended["outcome"], ended["signal"]) == ("out-of-memory", signal.SIGKILL)
    assert ended["reason"] == "it used more than 30 MiB, and the kernel ended it"
    assert left.split() == ["LEFT", "0"]
