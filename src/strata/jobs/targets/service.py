"""Which targets are connected for jobs alone, and what speaks to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from strata.core.errors import BadRequest, Conflict
from strata.fleet.access.principal import Principal
from strata.fleet.access.sealing import Seal
from strata.fleet.fleet import Fleet
from strata.jobs.accounts import LocalAccounts
from strata.jobs.targets.records import ConnectedTarget, JobTarget, TargetRequest, TargetSpec
from strata.platform.workload.service import WorkloadService, runner_of
from strata.schedulers.jobs import JobScheduler, RunsApart
from strata.schedulers.kinds import check_settings, open_job_scheduler
from strata.schedulers.kubernetes.jobs import KubernetesJobs
from strata.schedulers.runner import Runner, connecting

PREFIX = "job-target/"
LOCAL = "local"
"""What this machine is called among the targets."""


class TargetService:
    """They are tried when they are connected, and followed by ``JobService`` from then on."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._accounts = fleet.of(LocalAccounts)
        self._records = fleet.records(JobTarget, kind="job-target", prefix=PREFIX, listed_by="strata job target list")
        self.stop = self._records.stop

    async def start(self) -> None:
        """Load them, and bring each token under the key that seals now."""
        await self._records.start()

        def fresh(there: dict[str, JobTarget]) -> dict[str, JobTarget]:
            seal = self._fleet.of(Seal)
            sealed = {name: seal.reseal(one.sealed, PREFIX + name) for name, one in there.items() if one.sealed}
            return {name: msgspec.structs.replace(there[name], sealed=new) for name, new in sealed.items() if new}

        if any(one.sealed for one in self._records.all.values()):
            await self._records.change_all("strata", "all", fresh, action="reseal")  # type: ignore[arg-type]

    @property
    def connected(self) -> Mapping[str, JobTarget]:
        """Those that are, by name."""
        return self._records.all

    def open(self, name: str, record: JobTarget) -> tuple[JobScheduler, Runner]:
        """What speaks to one, and what runs its commands."""
        spec = record.spec
        runner = runner_of(self._fleet, spec)
        if spec.kubernetes is None:
            return open_job_scheduler(spec.kind, runner), runner
        token = self._fleet.of(Seal).open(record.sealed, PREFIX + name).decode() if record.sealed else ""
        return KubernetesJobs(spec.kubernetes, token, self._accounts.named), runner

    async def all(self, who: Principal) -> Sequence[ConnectedTarget]:
        """Targets that are connected for jobs alone: whose nodes are none of Strata's."""
        return [_view(name, record) for name, record in self._records.sorted]

    async def one(self, who: Principal, name: str) -> ConnectedTarget:
        """One of them."""
        return _view(name, self._records.get(name))

    async def connect(self, who: Principal, name: str, asked: TargetRequest) -> ConnectedTarget:
        """Connect a target, or change how it is reached. It is asked about its jobs at once; if it does not answer,
        nothing is changed."""
        self._fleet.need_whole_fleet(who, "a target of jobs")
        self._check(name, asked)
        before = self._records.find(name)
        if before is not None and before.spec.kind != asked.kind:
            raise Conflict(f"{name} is a {before.spec.kind}", where=f"job target {name}", hint="give it another name")
        spec = TargetSpec.of(asked)
        record = JobTarget(
            spec=spec,
            sealed=self._token(name, asked, before),
            author=who.name,
            connected=self._fleet.controller.clock.wall(),
        )
        scheduler, _ = self.open(name, record)
        try:
            with connecting(asked.kind):
                await scheduler.jobs(record.connected)
        finally:
            if isinstance(scheduler, RunsApart):
                await scheduler.close()
        there = asked.kubernetes.server if asked.kubernetes else asked.on or "here"
        detail = {"kind": asked.kind, "on": there}
        await self._records.put(who.name, name, record, action="connect", detail=detail)
        return _view(name, record)

    async def disconnect(self, who: Principal, name: str) -> None:
        """Disconnect it. Its jobs go on, but Strata no longer follows them."""
        self._fleet.need_whole_fleet(who, "a target of jobs")
        self._records.get(name)
        await self._records.delete(who.name, name, action="disconnect")

    def _check(self, name: str, asked: TargetRequest) -> None:
        workloads = self._fleet.services.find(WorkloadService)
        if name == LOCAL or (workloads is not None and name in workloads.specs):
            taken = "this machine" if name == LOCAL else "a workload manager"
            raise Conflict(f"{name} is {taken}", where=f"job target {name}", hint="give it another name")
        if (asked.kind == "kubernetes") != (asked.kubernetes is not None):
            raise BadRequest("only a target of the kind kubernetes takes these, and it needs them", where="kubernetes")
        if asked.kind == "kubernetes":
            if asked.on or asked.env:
                raise BadRequest(
                    "a kubernetes is reached by its API, so that it takes neither on nor env",
                    where="on" if asked.on else "env",
                )
            return
        if asked.token:
            raise BadRequest(f"{asked.kind} is reached by its commands, which need no token", where="token")
        check_settings(asked.kind, asked.env)

    def _token(self, name: str, asked: TargetRequest, before: JobTarget | None) -> bytes:
        if asked.token:
            return self._fleet.of(Seal).seal(asked.token.encode(), PREFIX + name)
        if before is None or not before.sealed or before.spec.kubernetes is None or asked.kubernetes is None:
            return b""
        if (asked.kubernetes.server, asked.kubernetes.ca) != (before.spec.kubernetes.server, before.spec.kubernetes.ca):
            # Whoever may name a server must not have it sent what another one trusts.
            raise BadRequest("the server or the authority is another one: give the token again", where="token")
        return before.sealed


def _view(name: str, record: JobTarget) -> ConnectedTarget:
    return ConnectedTarget.of(
        record.spec, name=name, token=bool(record.sealed), author=record.author, connected=record.connected
    )
