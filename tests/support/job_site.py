"""A fleet in memory with the job layer open, people with accounts on it, and a target that runs real processes.

Where the tests run as root, Alice and Bob have two accounts of the system, with homes of their own; elsewhere both are
whoever runs the tests, as a service that is not root knows no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from strata.daemon.settings import Settings
from strata.fleet.access.principal import Principal, Role
from strata.fleet.controller.controller import Controller
from strata.fleet.services import Services
from strata.fleet.settings import LeadershipSettings
from strata.jobs.accounts import LocalAccounts
from strata.jobs.settings import JobSettings
from strata.jobs.submission.follower import DUTY
from strata.jobs.submission.records import JobView
from strata.jobs.submission.service import JobService
from strata.platform.workload.records import WorkloadSpec
from strata.platform.workload.service import WorkloadService
from strata.schedulers.runner import Account
from strata.store.memory import MemoryStore
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet

ROOT = os.geteuid() == 0
PATIENCE = 120.0


def people(directory: Path) -> dict[str, Account]:
    """Alice and Bob by their own names, and by those of their accounts. Their homes are in ``directory``."""
    found = {}
    for person, account in (("alice", "nobody"), ("bob", "daemon")):
        real = pwd.getpwnam(account) if ROOT else pwd.getpwuid(os.geteuid())
        home = directory / person
        home.mkdir(exist_ok=True, mode=0o700)
        if ROOT:
            os.chown(home, real.pw_uid, real.pw_gid)
        found[person] = Account(name=real.pw_name, uid=real.pw_uid, gid=real.pw_gid, home=str(home), shell="/bin/sh")
    return {**{one.name: one for one in reversed(found.values())}, **found}


def somebody(name: str, role: Role = "user") -> Principal:
    return Principal(name=name, role=role, via="token")


ALICE, BOB = somebody("alice"), somebody("bob")
OPERATOR = somebody("olga", "operator")
VIEWER = somebody("vera", "viewer")


class Connected:
    """Stands in for what the platform layer knows: these workload managers are connected."""

    def __init__(self, specs: dict[str, WorkloadSpec]) -> None:
        self.specs = specs

    def put(self, services: Services) -> None:
        """As the service that jobs look for."""
        services.put(self, WorkloadService)  # type: ignore[arg-type]


class JobSite:
    """One controller with the job layer, in a directory that other accounts may go through. Another with the same
    ``store`` and directory is the same one, restarted."""

    def __init__(
        self,
        directory: Path,
        *,
        store: MemoryStore | None = None,
        put: Callable[[Services], None] = lambda services: None,
        **settings: Any,
    ) -> None:
        """``put``: puts what the jobs are to find of other layers."""
        self.directory = directory
        self.people = people(directory)
        self.settings = Settings(
            state_dir=directory / "state",
            controller_id="c1",
            jobs=JobSettings(**{"cores": 4, "memory": 4096, **settings}),
        )
        self.settings.state_dir.mkdir(exist_ok=True)
        self.store = store or MemoryStore()
        self.controller = Controller(
            self.store,
            BUILT_IN,
            {},
            name="c1",
            history=self.settings.history_file,
            leadership=LeadershipSettings(shards=1),
        )
        self.fleet = OpenFleet(self.controller, self.settings)
        self.accounts = self.fleet.put(LocalAccounts({}, 1, look_up=self.people.get))
        put(self.fleet.services)
        self.jobs = self.fleet.put(JobService(self.fleet))

    async def start(self) -> None:
        await self.fleet.keep(self.jobs)
        await self.fleet.start()
        await until(lambda: self.controller.leadership.does(DUTY))

    async def stop(self) -> None:
        """As a service stops: what runs goes on."""
        await self.fleet.stop()

    async def clear(self) -> None:
        """End whatever a test has left."""
        for job in self.jobs.jobs(OPERATOR, everybody=True, limit=10_000).items:
            if job.state != "ended":
                await self.jobs.cancel(OPERATOR, job.id)
        for job in self.jobs.jobs(OPERATOR, everybody=True, limit=10_000).items:
            await self.ended(OPERATOR, job.id)

    async def ended(self, who: Principal, ident: str) -> JobView:
        """A job once it has ended."""
        deadline = time.monotonic() + PATIENCE
        while (found := await self.jobs.wait(who, ident, 5)).state != "ended":
            assert time.monotonic() < deadline, found
        return found

    async def printed(self, who: Principal, ident: str, **which: Any) -> str:
        """All that a job printed."""
        return (await self.jobs.log(who, ident, **which)).text


@contextlib.asynccontextmanager
async def job_site(directory: Path, **settings: Any) -> AsyncIterator[JobSite]:
    site = JobSite(directory, **settings)
    await site.start()
    try:
        yield site
    finally:
        await site.clear()
        await site.stop()
        await site.store.close()


async def until(condition: Callable[[], Any]) -> Any:
    """Wait for something that comes."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    return found


def own_name() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
