"""A build that is cancelled, or whose service is killed, leaves no mount, no process and no file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from strata.core.host.removal import mounts_below, unmount_below
from strata.provisioning.images.build import steps as commands
from strata.provisioning.images.shelf import Shelf
from support.image_support import Site, a_system, an_image, symlink, tar_of

pytestmark = pytest.mark.slow

MMDEBSTRAP = """#!/bin/sh
# As much of it as matters: mounts below the new system, and processes that leave the group.
for argument; do case $argument in */root) root=$argument; esac; done
mkdir -p "$root/proc" && mount -t proc proc "$root/proc" || exit 1
setsid sleep {mark} &
while sleep 0.01; do : > "$root/$(date +%N)"; [ -n "$said" ] || {{ said=1; echo mounted; }}; done
"""
RUN = """
import asyncio, sys
from pathlib import Path
from strata.provisioning.images.build.steps import run
command = ["sh", "-c", "setsid sleep {mark} & echo mounted; sleep {mark}"]
asyncio.run(run(command, log=Path(sys.argv[1]), contained=True))
"""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.images.start()
    yield made
    await made.images.stop()
    await made.store.close()
    unmount_below(tmp_path)


@pytest.fixture
def mark() -> str:
    """Seconds of sleep by which a process of this test is known."""
    return f"{os.getpid()}.{time.monotonic_ns() % 10**9:09d}"


def asleep(mark: str) -> list[Path]:
    """The processes that sleep for that long."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"sleep\0{mark}\0".encode():
                found.append(path)
    return found


async def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def is_under_way(log: Path, mark: str) -> bool:
    return log.exists() and "mounted" in log.read_text() and bool(asleep(mark))


async def test_a_debian_build_that_is_cancelled_leaves_nothing(
    site: Site, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "mmdebstrap"
    program.parent.mkdir()
    program.write_text(MMDEBSTRAP.format(mark=mark))
    program.chmod(0o755)
    monkeypatch.setattr(commands, "PATH", f"{program.parent}:{commands.PATH}")
    upload = await site.images.uploads.begin()
    await site.images.uploads.write(upload, 0, tar_of([("recipe.yaml", b"from: debian\n")]))
    build = asyncio.create_task(site.images.build("alice", upload, "a:1", site.log))
    await until(lambda: is_under_way(site.log, mark) or build.done())
    assert not build.done()
    assert mounts_below(tmp_path) == []  # they are the build's alone
    build.cancel()
    await asyncio.wait([build])
    assert build.cancelled()
    assert asleep(mark) == []
    assert list((site.images.shelf.root / "work").iterdir()) == []


async def test_a_script_that_is_cancelled_leaves_nothing(site: Site, tmp_path: Path, mark: str) -> None:
    await site.take(an_image(a_system(symlink("bin/sleep", "busybox"))), "base:1")
    script = f"busybox setsid sleep {mark} & echo mounted; sleep {mark}"
    build = asyncio.create_task(site.build("child:1", f"from: base:1\nrun: ['{script}']\n"))
    await until(lambda: is_under_way(site.log, mark) or build.done())
    assert not build.done()
    assert mounts_below(tmp_path) == []
    build.cancel()
    await asyncio.wait([build])
    assert build.cancelled()
    assert asleep(mark) == []
    assert list((site.images.shelf.root / "work").iterdir()) == []


async def test_a_build_ends_with_a_service_that_is_killed(tmp_path: Path, mark: str) -> None:
    log = tmp_path / "log"
    service = await asyncio.create_subprocess_exec(sys.executable, "-c", RUN.format(mark=mark), str(log))
    try:
        await until(lambda: is_under_way(log, mark) or service.returncode is not None)
    finally:
        with contextlib.suppress(ProcessLookupError):
            service.kill()
        status = await service.wait()
    assert status == -signal.SIGKILL
    await until(lambda: not asleep(mark))


def test_what_a_build_left_mounted_is_unmounted_when_the_service_starts_again(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.open()
    place = shelf.root / "work" / "0123" / "root" / "proc"
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "proc", "proc", place], check=True)
    try:
        shelf.sweep_work()
        assert list((shelf.root / "work").iterdir()) == []
    finally:
        unmount_below(tmp_path)
