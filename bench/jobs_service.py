"""What jobs cost on this machine, and to list.

``local``: ``--jobs`` jobs that do nothing, submitted one after the other to a whole service over its local socket,
and all ended: ``local_jobs_per_s``. ``local_p99_ms`` is the time from a submission to its answer; ``bare_jobs_per_s``
are the same scripts, started one after the other by a loop of ``subprocess.run`` that keeps nothing, isolates nobody
and is told nothing.

``list``: ``--listed`` jobs that run at a Slurm whose commands (programs of their own) say so, listed again and again
as one page over the socket until the scheduler was polled ``--polls`` times at the default interval, a part of the jobs
changing at each: ``list_10000_p99_ms`` (named for the default). ``polls`` is how often it was polled meanwhile,
``polls_per_interval`` the same for each interval that passed, ``changed_per_poll`` how many jobs had moved to another
node each time, ``poll_ms`` what the slowest poll took, from the question until what it told was kept.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import pwd
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
from measure import Figures, percentile

from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.jobs.settings import JobSettings
from strata.jobs.submission.follower import DUTY
from strata.jobs.submission.records import Job, JobDocument, Task
from strata.jobs.submission.service import JobService
from strata.jobs.submission.targets import Target
from strata.schedulers.kinds import open_job_scheduler
from strata.schedulers.runner import Place, Runner

ACCOUNT = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
POLL = 5.0
LISTS = 60
"""Lists at least."""
CHANGED = 200
"""Jobs that have moved to another node since the last poll."""


# -- jobs on this machine


def local(directory: Path, count: int) -> Figures:
    """Jobs of this machine against a bare loop."""
    desk = directory / "desk"
    desk.mkdir()
    if os.geteuid() == 0:
        shutil.chown(desk, ACCOUNT)
    return {**asyncio.run(_local(directory, desk, count)), **_bare(desk, count)}


async def _local(directory: Path, desk: Path, count: int) -> Figures:
    settings = _settings(directory)
    async with running(settings) as fleet:
        jobs = fleet.of(JobService)
        body = {
            "command": "true",
            "workdir": str(desk),
            "stdout": str(desk / "out"),
            **({"account": ACCOUNT} if os.geteuid() == 0 else {}),
        }
        began = time.perf_counter()
        took = await asyncio.to_thread(_submit, settings.admin_socket, body, count)
        submitted = time.perf_counter() - began
        while any(jobs._index.open.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        whole = time.perf_counter() - began
        outcomes = {line.outcome for line in jobs._index.lines.values()}
        assert outcomes == {"done"} and len(jobs._index.lines) == count, outcomes
    return {
        "local_jobs": count,
        "local_jobs_per_s": round(count / whole, 1),
        "local_submitted_per_s": round(count / submitted, 1),
        "local_p50_ms": round(1000 * percentile(took, 0.5), 2),
        "local_p99_ms": round(1000 * percentile(took, 0.99), 2),
    }


def _submit(path: Path, body: object, count: int) -> list[float]:
    payload, took = json.dumps(body).encode(), []
    connection = _Connection(path)
    for _ in range(count):
        began = time.perf_counter()
        status, said = connection.ask("POST", "/v1/jobs", payload)
        took.append(time.perf_counter() - began)
        assert status == 201, said
    return sorted(took)


def _bare(desk: Path, count: int) -> Figures:
    script = desk.parent / "script"
    script.write_text("#!/bin/sh\nexec true\n", encoding="utf-8")
    script.chmod(0o755)
    began = time.perf_counter()
    for _ in range(count):
        subprocess.run([str(script)], check=True, stdin=subprocess.DEVNULL)
    return {"bare_jobs_per_s": round(count / (time.perf_counter() - began), 1)}


# -- lists


_SQUEUE = """#!/bin/sh
# What squeue prints of jobs that all run for ever, some of them elsewhere each time that it is asked.
cd {folder} && date +%s.%N >> asked && asked=$(wc -l < asked) && first=$((asked * {changed} % {count} + 1))
sed -i -E "$first,$((first + {changed} - 1))s/@[nm][0-9]+@/@m$asked@/" rows
for word; do case $word in ArrayJobID:*) mark=${{word#*:}} mark=${{mark%%,*}};; esac; done
exec sed "s/@/$mark/g" rows
"""
_SCONTROL = "#!/bin/sh\necho MinJobAge = 300 sec\n"


class _Steady:
    """A Slurm at which all jobs run for ever: its commands are programs in a folder, as those of a real one are."""

    def __init__(self, folder: Path, jobs: Mapping[str, Job]) -> None:
        folder.mkdir()
        self._asked = folder / "asked"
        self._asked.touch()
        rows = []
        for ident, job in jobs.items():
            (task,) = job.tasks
            told = (job.there, "N/A", job.there, "RUNNING", job.account, "0", "all", f"{job.submitted:.0f}")
            rows.append(
                "@".join((*told, f"{task.began:.0f}", "0", *task.nodes, "None", f"strata:{ident}", "row", "\n"))
            )
        (folder / "rows").write_text("".join(rows), encoding="utf-8")
        squeue = _SQUEUE.format(folder=shlex.quote(str(folder)), changed=CHANGED, count=max(1, len(jobs)))
        for name, text in (("squeue", squeue), ("scontrol", _SCONTROL)):
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o755)
        self.runner = Runner(Place(env={"PATH": f"{folder}:{os.environ['PATH']}"}))

    @property
    def asked(self) -> list[float]:
        """When, by the wall clock."""
        return [float(line) for line in self._asked.read_text(encoding="ascii").split()]


def listed(directory: Path, count: int, polls: int) -> Figures:
    """A page of all jobs, while their scheduler is followed; until it was polled so many times."""
    return asyncio.run(_listed(directory, count, polls))


async def _listed(directory: Path, count: int, wanted: int) -> Figures:
    settings = _settings(directory)
    async with running(settings) as fleet:
        jobs = fleet.of(JobService)
        now = float(int(time.time()))
        made = {}
        for number in range(count):
            ident = f"{number:012d}"
            made[ident] = Job(
                id=ident,
                document=JobDocument(command="./a.out", name=f"run-{number}"),
                owner=f"user{number % 100}",
                account="nobody",
                submitted=now + number / 1e6,
                target="steady",
                kind="slurm",
                controller="bench",
                queue="all",
                there=str(number + 1),
                tasks=(
                    Task(index=None, state="running", nodes=(f"n{number % 1000}",), began=now, there=str(number + 1)),
                ),
                folder="/nonexistent",
                stdout="/nonexistent/out",
            )
        await jobs.records.note_all(made)
        steady = _Steady(directory / "slurm", made)
        while not fleet.controller.leadership.does(DUTY):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        scheduler = open_job_scheduler("slurm", steady.runner)
        target = jobs.targets["steady"] = Target("steady", "slurm", scheduler, steady.runner)
        looked: list[float] = []
        look = jobs._follower.look

        async def timed(what: Target) -> None:
            began = time.perf_counter()
            await look(what)
            if what is target:
                looked.append(time.perf_counter() - began)

        jobs._follower.look = timed  # type: ignore[method-assign]
        await jobs._follower.refresh()
        while not looked:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        looked.clear()
        before, began = len(steady.asked), time.perf_counter()
        took, size = await asyncio.to_thread(_list, settings.admin_socket, count, lambda: len(looked) >= wanted)
        spent = time.perf_counter() - began
        asked = steady.asked[before:]
        moved = sum(line.nodes[0].startswith("m") for line in jobs._index.lines.values())
        assert not target.trouble and moved >= min(count, CHANGED), target.trouble or f"{moved} jobs were seen to move"
        gaps = [later - earlier for earlier, later in pairwise(asked)]
        assert size > 100 * count
    return {
        "listed": count,
        "lists": len(took),
        f"list_{count}_p50_ms": round(1000 * percentile(took, 0.5), 1),
        f"list_{count}_p99_ms": round(1000 * percentile(took, 0.99), 1),
        f"list_{count}_most_ms": round(1000 * took[-1], 1),
        "list_bytes": size,
        "list_seconds": round(spent, 1),
        "polls": len(asked),
        "polls_per_interval": round(len(asked) / max(1.0, spent / POLL), 2),
        "poll_gap_least_s": round(min(gaps, default=0.0), 2),
        "changed_per_poll": CHANGED,
        "poll_ms": round(1000 * max(looked, default=0.0), 1),
    }


def _list(path: Path, count: int, enough: Callable[[], bool]) -> tuple[list[float], int]:
    connection, took, said = _Connection(path), [], b""
    while len(took) < LISTS or not enough():
        began = time.perf_counter()
        status, said = connection.ask("GET", f"/v1/jobs?all=true&limit={min(count, 10_000)}")
        took.append(time.perf_counter() - began)
        assert status == 200, said[:500]
    assert len(msgspec.json.decode(said)["items"]) == count
    return sorted(took), len(said)


# -- parts


def _settings(directory: Path) -> Settings:
    return Settings(
        state_dir=directory / "s",
        controller_id="bench",
        layers=("jobs",),
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
        jobs=JobSettings(poll=POLL),  # type: ignore[arg-type]
    )


class _Connection:
    """One connection to the local socket, kept open."""

    def __init__(self, path: Path) -> None:
        self._http = http.client.HTTPConnection("localhost", timeout=120)
        self._http.sock = socket.socket(socket.AF_UNIX)
        self._http.sock.connect(str(path))

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self._http.request(method, path, body=body, headers={"Content-Type": "application/json"} if body else {})
        answer = self._http.getresponse()
        return answer.status, answer.read()
