"""What jobs cost on this machine, and to list.

``local``: ``--jobs`` jobs that do nothing, submitted one after the other to a whole service over its local socket,
and all ended: ``local_jobs_per_s``. ``local_p99_ms`` is the time from a submission to its answer; ``bare_jobs_per_s``
are the same scripts, started one after the other by a loop of ``subprocess.run`` that keeps nothing, isolates nobody
and is told nothing.

``list``: ``--listed`` jobs that run at a scheduler which says so, listed again and again as one page over the
socket: ``list_10000_p99_ms`` (named for the default). ``polls_per_interval`` is how often the scheduler was asked
meanwhile.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from measure import Figures, percentile

from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.jobs.settings import JobSettings
from strata.jobs.submission.records import Job, JobDocument, Task
from strata.jobs.submission.service import JobService
from strata.jobs.submission.targets import Target
from strata.schedulers.jobs import Ability, JobSeen, Queue, Work
from strata.schedulers.runner import Place, Runner

ACCOUNT = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
POLL = 5.0
LISTS = 60


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


class _Steady:
    """A scheduler at which all jobs run, for ever."""

    ability = Ability()

    def __init__(self) -> None:
        self.seen: Sequence[JobSeen] = ()

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        return self.seen

    async def submit(self, work: Work) -> str:
        return work.key

    async def cancel(self, account: str, ids: Sequence[str]) -> None: ...

    async def hold(self, account: str, ids: Sequence[str]) -> None: ...

    async def release(self, account: str, ids: Sequence[str]) -> None: ...

    async def queues(self) -> Sequence[Queue]:
        return ()

    async def expected(self, work: Work) -> float | None:
        return None


def listed(directory: Path, count: int) -> Figures:
    """A page of all jobs, while their scheduler is followed."""
    return asyncio.run(_listed(directory, count))


async def _listed(directory: Path, count: int) -> Figures:
    settings = _settings(directory)
    async with running(settings) as fleet:
        jobs, steady = fleet.of(JobService), _Steady()
        now = time.time()
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
                there=str(number),
                tasks=(Task(index=None, state="running", nodes=(f"n{number % 1000}",), began=now, there=str(number)),),
                folder="/nonexistent",
                stdout="/nonexistent/out",
            )
        await jobs.records.note_all(made)
        steady.seen = [
            JobSeen(id=job.there, key=ident, state="running", nodes=job.tasks[0].nodes, began=now, account=job.account)
            for ident, job in made.items()
        ]
        while not fleet.controller.leads_first:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        target = jobs.targets["steady"] = Target("steady", "slurm", steady, Runner(Place()))
        await jobs.target_views()
        looks, began = target.looks, time.perf_counter()
        took, size = await asyncio.to_thread(_list, settings.admin_socket, count)
        spent = time.perf_counter() - began
        polls = target.looks - looks
        assert size > 100 * count
    return {
        "listed": count,
        "lists": len(took),
        f"list_{count}_p50_ms": round(1000 * percentile(took, 0.5), 1),
        f"list_{count}_p99_ms": round(1000 * percentile(took, 0.99), 1),
        "list_bytes": size,
        "polls": polls,
        "polls_per_interval": round(polls / max(1.0, spent / POLL), 2),
    }


def _list(path: Path, count: int) -> tuple[list[float], int]:
    connection, took, said = _Connection(path), [], b""
    for _ in range(LISTS):
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
