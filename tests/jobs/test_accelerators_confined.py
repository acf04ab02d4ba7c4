"""Accelerators that a job was not given: the kernel refuses to open them."""

from __future__ import annotations

import os
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
