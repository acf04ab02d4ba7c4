"""Accelerators that a job was not given: the kernel refuses to open them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strata.core.errors import NotFound
from strata.jobs.accelerators import confinement
from strata.jobs.accelerators.assignment import Assigned
from strata.jobs.accelerators.confinement import confine
from strata.jobs.accelerators.records import Accelerator, Found
from strata.jobs.accounts import LocalAccounts
from strata.jobs.local.cgroups import open_groups
from strata.jobs.local.executor import LocalExecutor
from strata.jobs.local.slots import Slots
from strata.schedulers.jobs import Accelerators, Resources
from support.grid_engine import grid_engine
from support.job_scheduler_contract import Site
from support.native import AS_USER, give

ZERO, FULL = (
    Accelerator(address=f"0:{at}", make="nvidia", kind="gpu", index=at, devices=(path,))
    for at, path in enumerate(("/dev/zero", "/dev/full"))
)
BOTH = Found(accelerators=(ZERO, FULL))
OPENS = """
import sys
for _ in sys.stdin:
    for path in ("/dev/zero", "/dev/full", "/dev/null"):
        try:
            open(path, "rb").close()
            print("open", end=" ")
        except OSError as error:
            print(error.strerror, end=" ")
    print(flush=True)
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    """A process that says of each device whether it can open it, for every line that it is sent."""
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def looked(job: subprocess.Popen[str]) -> str:
    assert job.stdin is not None and job.stdout is not None
    job.stdin.write("look\n")
    return job.stdout.readline().strip()


@pytest.mark.parametrize("hierarchy", ["devices", "unified"])
def test_a_process_opens_what_it_was_given_and_no_other_accelerator(
    job: subprocess.Popen[str], hierarchy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = Path("/sys/fs/cgroup") / ("devices" if hierarchy == "devices" else "")
    if hierarchy == "unified":
        top = top / "unified" if (top / "unified").is_dir() else top
    if os.geteuid() or not (top / "cgroup.procs").exists() or not os.access(top, os.W_OK):
        pytest.skip(f"no {hierarchy} cgroup that can be written to")
    mine = confinement._groups_of(job.pid)
    only = {"devices": mine["devices"]} if hierarchy == "devices" else {"": mine.get("", "/")}
    monkeypatch.setattr(confinement, "_groups_of", lambda pid: only)
    assert looked(job) == "open open open"
    group = confine(job.pid, BOTH, Assigned((FULL,)))
    try:
        assert looked(job) == "Operation not permitted open open"
    finally:
        job.kill()
        job.wait()
        group.rmdir()


def test_the_kernel_s_program_says_no_to_those_that_are_named_only() -> None:
    words = confinement.program([confinement.Device(195, 1)])
    assert len(words) == 8 * (2 + 4 + 2), "two looks, four words for each device, and yes to all others"
    assert confinement.program([]) == words[:16] + words[-16:]


def test_a_process_that_is_not_there_is_said_so() -> None:
    with pytest.raises(NotFound, match="no such process"):
        confine(2**22 + 1, BOTH, Assigned())


PROLOG = """#!{python}
import os
from strata.jobs.accelerators.assignment import Assigned
from strata.jobs.accelerators.confinement import confine
from strata.jobs.accelerators.records import Accelerator, Found

card = Accelerator(address="0:0", make="nvidia", kind="gpu", devices=("/dev/full",))
confine(os.getppid(), Found(accelerators=(card,)), Assigned())
"""


@pytest.mark.server
async def test_a_prolog_of_grid_engine_keeps_a_job_from_what_it_was_not_given(open_dir: Path) -> None:
    if os.geteuid() or not os.access("/sys/fs/cgroup", os.W_OK):
        pytest.skip("only root can run a Grid Engine, and make cgroups")
    daemons, prolog, out = open_dir / "daemons", open_dir / "prolog", open_dir / "out"
    daemons.mkdir()
    out.mkdir()
    give(out)
    prolog.write_text(PROLOG.format(python=sys.executable))
    prolog.chmod(0o755)
    async with grid_engine(daemons) as engine:
        text = re.sub(r"(?m)^prolog .*", f"prolog root@{prolog}", await engine.config("-sq", "main.q"))
        (daemons / "queue").write_text(text)
        assert "modified" in await engine.config("-Mq", str(daemons / "queue"))
        look = "for one in full zero; do true </dev/$one && echo $one opens; done"
        job = ("qsub", "-q", "main.q", "-sync", "y", "-b", "y", "-shell", "n", "-j", "y", "-o", f"{out}/said")
        await engine.run(*AS_USER, *job, "-wd", "/", "/bin/sh", "-c", look)
    for group in Path("/sys/fs/cgroup").glob("*/strata-accelerators-*"):
        with contextlib.suppress(OSError):  # another test's, with somebody in it
            group.rmdir()
    said = (out / "said").read_text()
    assert "zero opens" in said and "full opens" not in said, said
    assert "Operation not permitted" in said


async def said_by_jobs(directory: Path, found: Found) -> tuple[str, list[str]]:
    """How this machine, with two accelerators, says that it holds jobs to theirs; and what a job with one of them and
    one without any say of ``OPENS``'s devices."""
    executor = LocalExecutor(
        directory / "jobs", Slots(cores=2, memory=100, accelerators=(0, 1)), LocalAccounts({}, 1), look=lambda: found
    )
    folder = give(made(directory / "of the account's"))
    await executor.start()
    try:
        site, said = Site(executor, "nobody", folder), []
        for number, wanted in enumerate((Resources(accelerators=Accelerators(count=1)), Resources())):
            look = f"for one in zero full null; do true </dev/$one && echo $one; done > {number}"
            work = site.work(f"#!/bin/sh\n{look}\n", resources=wanted)
            await executor.submit(work)
            await site.ended(work)
            said.append((folder / str(number)).read_text().replace("\n", " ").strip())
        return executor.groups.told, said
    finally:
        await executor.stop()


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.server
async def test_a_job_of_this_machine_opens_its_own_accelerators_and_no_others(open_dir: Path) -> None:
    if os.geteuid() or open_groups(open_dir).folder is None:
        pytest.skip("it takes root, and cgroups of version 2 that can be written to")
    told, said = await said_by_jobs(open_dir, BOTH)
    assert told.endswith("; accelerators by the kernel")
    assert said == ["zero null", "null"]


@pytest.mark.server
async def test_where_the_kernel_holds_no_job_to_its_accelerators_it_is_said(open_dir: Path) -> None:
    if os.geteuid():
        pytest.skip("only root runs jobs as somebody else")
    told, said = await said_by_jobs(open_dir, Found())
    assert told.endswith("; accelerators by variables, which a program can change (no accelerator was found)")
    assert said == ["zero full null"] * 2
