"""Caps of nodes for jobs: set while a job runs, put back afterwards, whatever happens in between. Simulated nodes with
real BMC requests, and a workload manager that begins and ends jobs when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.core.nodeset import fold
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.jobs.accounts import LocalAccounts
from strata.jobs.resources import Asked
from strata.jobs.settings import JobSettings
from strata.jobs.submission import caps as job_caps
from strata.jobs.submission import follower
from strata.jobs.submission.records import JobDocument, JobView
from strata.jobs.submission.service import JobService
from strata.jobs.submission.targets import Target
from strata.platform.workload.cluster import Cluster
from strata.platform.workload.records import WorkloadSpec
from strata.platform.workload.service import WorkloadService
from strata.power.capping import operations as cap_operations
from strata.power.capping.operations import CapOperations
from strata.power.settings import PowerSettings
from strata.schedulers.jobs import Ability, Array, JobSeen, Outcome, Queue, Work
from strata.schedulers.kinds import open_scheduler
from strata.schedulers.protocol import NodeSeen
from strata.schedulers.runner import Place, Runner
from strata.virtual.bmc.mischief import Trick
from support.job_site import ALICE, ROOT, people, until
from support.power_site import NODES, Site, compute, settled, site_of
from support.slurm import Slurm, slurm

pytestmark = pytest.mark.slow

JOB = JobDocument(command="true", resources=Asked(power=300))
NONE = float("inf")


class Batch:
    """A workload manager: its jobs, and its nodes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.ability = Ability(whole_nodes=True)
        self.names = names
        self.works: dict[str, Work] = {}
        self.seen: dict[str, JobSeen] = {}
        self.strangers: dict[str, str] = {}
        """Node → a job of somebody else on it."""

    def begin(self, there: str, *nodes: str, state: Any = "running", index: int | None = None) -> None:
        work = self.works[there.partition("_")[0]]
        self.seen[there] = JobSeen(
            id=there, key=work.key, account=work.account, state=state, nodes=nodes, began=time.time(), index=index
        )

    def end(self, there: str, outcome: Outcome = "done") -> None:
        over = {"state": "ended", "outcome": outcome, "status": 0, "ended": time.time()}
        self.seen[there] = msgspec.structs.replace(self.seen[there], **over)

    async def submit(self, work: Work) -> str:
        there = str(100 + len(self.works))
        self.works[there] = work
        self.seen[there] = JobSeen(id=there, key=work.key, account=work.account, state="waiting")
        return there

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        return list(self.seen.values())

    async def cancel(self, account: str, ids: Sequence[str]) -> None:
        for there in ids:
            self.end(there, "cancelled")

    async def hold(self, account: str, ids: Sequence[str]) -> None: ...

    async def release(self, account: str, ids: Sequence[str]) -> None: ...

    async def queues(self) -> Sequence[Queue]:
        return [Queue(name="q", open=True, default=True, nodes=4, free_nodes=4)]

    async def expected(self, work: Work) -> float | None:
        return None

    async def look(self) -> Mapping[str, NodeSeen]:
        held: dict[str, list[str]] = {name: [] for name in self.names}
        for there, seen in self.seen.items():
            for name in seen.nodes if seen.state != "ended" else ():
                held[name].append(there)
        for name, there in self.strangers.items():
            held[name].append(there)
        return {
            name: NodeSeen(state="mixed", understood=True, drained=False, jobs=tuple(jobs))
            for name, jobs in held.items()
        }

    async def drain(self, names: Sequence[str], reason: str) -> None: ...

    async def resume(self, names: Sequence[str]) -> None: ...


class QuietRunner(Runner):
    """Makes folders that nobody needs, and finds no file."""

    async def run(self, *command: str, **_: object) -> str:  # type: ignore[override]
        return ""


class Machine:
    """A power site with the job layer, and ``batch`` as its target ``cluster``, with names of its own for nodes."""

    def __init__(self, site: Site, directory: Path, monkeypatch: pytest.MonkeyPatch, real: Slurm | None) -> None:
        """``real``: goes in the place of ``batch``."""
        self.site = site
        self.fleet = site.service
        self.nodes = compute(site)
        self.batch = Batch([self.their(name) for name in self.nodes])
        self.fleet.settings = Settings(state_dir=directory, jobs=JobSettings(local=False, poll=1.0))
        self.fleet.put(LocalAccounts({}, 1, look_up=people(directory).get))
        self.fleet.put(site.capmc.caps)
        theirs = fold(self.their(name) for name in self.nodes)
        spec = WorkloadSpec(kind="slurm", names={fold(self.nodes): theirs}, env=real.env if real else {})
        scheduler = open_scheduler("slurm", Runner(Place(env=real.env)), "strata/test") if real else self.batch
        cluster = Cluster("cluster", spec, scheduler, clock=self.fleet.controller.clock.now)
        self.fleet.services.put(_Workloads({"cluster": spec}, {"cluster": cluster}), WorkloadService)  # type: ignore[arg-type]
        clock = self.fleet.controller.clock.wall

        def opened(_: JobService, name: str, spec: WorkloadSpec) -> Target:
            return Target(name, spec.kind, self.batch, QuietRunner(Place()), clock=clock)

        if real is None:
            monkeypatch.setattr(JobService, "_open", opened)
        self.jobs = self.fleet.put(JobService(self.fleet))

    @staticmethod
    def their(name: str) -> str:
        return f"c{name[1:]}"

    async def start(self) -> None:
        await self.jobs.start()
        await until(lambda: self.fleet.controller.leadership.does(follower.DUTY) and self.site.site.leads)

    async def restart(self) -> None:
        """As after a kill: nothing that the old one had in memory is there any more."""
        await self.jobs.stop()
        self.jobs = self.fleet.put(JobService(self.fleet))
        await self.start()

    async def submit(self, document: JobDocument = JOB) -> JobView:
        return await self.jobs.submit(ALICE, document)

    async def look(self) -> None:
        """See at once what has become of jobs."""
        await self.jobs._follower.look(self.jobs.targets["cluster"])

    def cap(self, node: str) -> float:
        nodes = self.site.machine.nodes
        return float(nodes.electricity.caps[nodes.index[node]])

    async def capped(self, **watts: float) -> None:
        """Wait until nodes have these caps, in truth, and everything that was to be done is."""

        def there() -> bool:
            records = self.jobs._caps.kept.all.values()
            busy = self.jobs._caps._busy or any(cap.state in ("asked", "returning") for cap in records)
            return not busy and {name: self.cap(name) for name in watts} == watts

        try:
            await until(there)
        except AssertionError:
            found = {name: self.cap(name) for name in watts}
            pytest.fail(f"{found}, not {watts}: {self.jobs._caps.kept.all}; busy {self.jobs._caps._busy}")

    async def over(self, **watts: float) -> None:
        """The same, and nothing is left of any job."""
        await until(lambda: not self.jobs._caps.kept.all)
        await self.capped(**watts)

    async def asked(self, job: JobView) -> list[str]:
        """What was asked for in a job's name, as the audit log has it."""
        found = await self.fleet.ledger.latest(limit=1000)
        mine = [entry for entry in found if (entry.author, entry.action) == (f"job:{job.id}", "caps.set")]
        return [entry.detail["caps"] for entry in sorted(mine, key=lambda entry: entry.seq)]


class _Workloads:
    """Stands in for what the platform layer knows."""

    def __init__(self, specs: dict[str, WorkloadSpec], clusters: dict[str, Cluster]) -> None:
        self.specs = specs
        self.clusters = clusters

    def cluster(self, name: str) -> Cluster:
        return self.clusters[name]


@contextlib.asynccontextmanager
async def machine_of(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: PowerSettings | None = None,
    *,
    real: Slurm | None = None,
) -> AsyncIterator[Machine]:
    async with site_of(directory, settings or PowerSettings()) as site:
        machine = Machine(site, directory, monkeypatch, real)
        await machine.start()
        try:
            yield machine
        finally:
            await machine.jobs.stop()


async def test_nodes_are_capped_while_a_job_runs_and_have_their_caps_back_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        first, second, third, *_ = machine.nodes
        await machine.site.cap({first: 500.0})
        job = await machine.submit()
        work = machine.batch.works[job.there]
        assert (work.whole_nodes, work.resources.power) == (True, None)
        machine.batch.begin(job.there, machine.their(first), machine.their(second), state="starting")
        await machine.look()
        await machine.jobs._caps.look()
        assert not machine.jobs._caps.kept.all and machine.cap(second) == NONE
        machine.batch.begin(job.there, machine.their(first), machine.their(second))
        await machine.look()
        await machine.capped(**{first: 300.0, second: 300.0, third: NONE})
        found = machine.jobs.job(ALICE, job.id)
        assert (found.state, found.uncapped, found.reason) == ("running", {}, "")
        machine.batch.end(job.there)
        await machine.look()
        await machine.over(**{first: 500.0, second: NONE, third: NONE})
        assert await machine.asked(job) == [
            f"node 300 W: {fold((first, second))}",
            f"node none: {second}; node 500 W: {first}",
        ]


async def test_each_task_of_an_array_has_its_own_nodes_capped_for_as_long_as_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        first, second, *_ = machine.nodes
        job = await machine.submit(msgspec.structs.replace(JOB, array=Array(first=0, last=1)))
        del machine.batch.seen[job.there]
        machine.batch.begin(f"{job.there}_0", machine.their(first), index=0)
        machine.batch.begin(f"{job.there}_1", machine.their(second), index=1)
        await machine.look()
        await machine.capped(**{first: 300.0, second: 300.0})
        machine.batch.end(f"{job.there}_0")
        await machine.look()
        await machine.capped(**{first: NONE, second: 300.0})
        machine.batch.end(f"{job.there}_1")
        await machine.look()
        await machine.over(**{first: NONE, second: NONE})


@pytest.mark.parametrize("how", ["cancelled", "lost", "suspended"])
async def test_a_job_that_does_not_end_by_itself_leaves_no_cap_either(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOST_AFTER", 0.0)
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        job = await machine.submit()
        machine.batch.begin(job.there, machine.their(node))
        await machine.look()
        await machine.capped(**{node: 300.0})
        if how == "cancelled":
            await machine.jobs.cancel(ALICE, job.id)
        elif how == "lost":
            del machine.batch.seen[job.there]
        else:
            machine.batch.begin(job.there, machine.their(node), state="suspended")
        await machine.look()
        await machine.over(**{node: NONE})
        if how == "suspended":
            machine.batch.begin(job.there, machine.their(node))
            await machine.look()
            await machine.capped(**{node: 300.0})
        else:
            assert machine.jobs.job(ALICE, job.id).outcome == how


async def test_a_cap_that_somebody_else_has_set_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        first, second, *_ = machine.nodes
        job = await machine.submit()
        machine.batch.begin(job.there, machine.their(first), machine.their(second))
        await machine.look()
        await machine.capped(**{first: 300.0, second: 300.0})
        await machine.site.cap({first: 400.0})
        machine.batch.end(job.there)
        await machine.look()
        await machine.over(**{first: 400.0, second: NONE})


async def test_a_cap_is_never_raised_for_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        first, second, *_ = machine.nodes
        await machine.site.cap({first: 250.0})
        job = await machine.submit()
        machine.batch.begin(job.there, machine.their(first), machine.their(second))
        await machine.look()
        await machine.capped(**{first: 250.0, second: 300.0})
        machine.batch.end(job.there)
        await machine.look()
        await machine.over(**{first: 250.0, second: NONE})
        assert await machine.asked(job) == [f"node 300 W: {second}", f"node none: {second}"]


@pytest.mark.parametrize(("watts", "then"), [(250, 250.0), (300, 300.0), (400, 400.0), (600, 500.0)])
async def test_the_next_job_on_a_node_takes_over_what_stood_before_the_first(
    watts: int, then: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        await machine.site.cap({node: 500.0})
        one = await machine.submit()
        other = await machine.submit(msgspec.structs.replace(JOB, resources=Asked(power=watts)))
        machine.batch.begin(one.there, machine.their(node))
        await machine.look()
        await machine.capped(**{node: 300.0})
        machine.batch.end(one.there)
        machine.batch.begin(other.there, machine.their(node))
        await machine.look()
        await machine.capped(**{node: then})
        machine.batch.end(other.there)
        await machine.look()
        await machine.over(**{node: 500.0})


async def test_nodes_that_do_not_take_the_cap_are_told_with_the_job_which_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        first, second, third, *_ = machine.nodes
        await machine.fleet.freeze(LOCAL_ADMIN, f"node:{second}", "a test")
        machine.site.columns.put(machine.fleet.registry.uids[[machine.fleet.registry.find(third)]], least=400.0)
        job = await machine.submit()
        machine.batch.begin(
            job.there,
            *map(machine.their, (first, second, third)),
        )
        await machine.look()
        await machine.capped(**{first: 300.0, second: NONE, third: NONE})
        await until(lambda: len(machine.jobs.job(ALICE, job.id).uncapped) == 2)
        found = machine.jobs.job(ALICE, job.id)
        assert found.state == "running"
        assert found.uncapped == {
            machine.their(second): cap_operations.FROZEN,
            machine.their(third): "it takes no cap below 400 W",
        }
        assert f"{machine.their(third)} is not capped: it takes no cap below 400 W" in found.reason
        machine.batch.end(job.there)
        await machine.look()
        await machine.over(**{first: NONE, second: NONE, third: NONE})
        assert f"{machine.their(second)} is not capped" in machine.jobs.job(ALICE, job.id).reason


async def test_a_bmc_that_refuses_is_that_node_s_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        # Telemetry believes that it takes 100 W; it takes no less than 200.
        job = await machine.submit(msgspec.structs.replace(JOB, resources=Asked(power=150)))
        machine.batch.begin(job.there, machine.their(node))
        await machine.look()
        await until(lambda: machine.jobs.job(ALICE, job.id).uncapped)
        assert "200 to 2400 W" in machine.jobs.job(ALICE, job.id).uncapped[machine.their(node)]
        assert machine.jobs.job(ALICE, job.id).state == "running"
        machine.batch.end(job.there)
        await machine.look()
        await machine.over(**{node: NONE})
        assert await machine.asked(job) == [f"node 150 W: {node}"]


@pytest.mark.parametrize("trick", [Trick.DROP_AFTER, Trick.DROP_BEFORE])
async def test_a_cap_of_which_nobody_knows_whether_it_was_set_is_asked_for_again(
    trick: Trick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_caps, "AGAIN", 0.2)
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        job = await machine.submit()
        machine.site.machine.server.prank(node).plan(trick, method="PATCH")
        machine.batch.begin(job.there, machine.their(node))
        await machine.look()
        await machine.capped(**{node: 300.0})
        await until(lambda: not machine.jobs.job(ALICE, job.id).uncapped)
        machine.site.machine.server.prank(node).plan(trick, method="PATCH")
        machine.batch.end(job.there)
        await machine.look()
        await machine.over(**{node: NONE})


async def test_a_node_that_another_job_is_on_is_capped_only_once_it_is_the_job_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_caps, "AGAIN", 0.2)
    monkeypatch.setattr(job_caps, "AGAIN_MOST", 0.2)
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        job = await machine.submit()
        machine.batch.strangers[machine.their(node)] = "77"
        machine.batch.begin(job.there, machine.their(node))
        await machine.look()
        await until(lambda: machine.jobs.job(ALICE, job.id).uncapped)
        found = machine.jobs.job(ALICE, job.id)
        assert found.uncapped == {machine.their(node): "it is not the job's alone: job 77 runs there"}
        assert machine.cap(node) == NONE and not machine.jobs._caps.kept.all
        machine.batch.strangers.clear()
        await machine.capped(**{node: 300.0})
        await until(lambda: not machine.jobs.job(ALICE, job.id).uncapped)


async def test_where_no_node_can_be_capped_a_job_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:

        async def refused(watts: int = 300) -> str:
            with pytest.raises(BadRequest) as said:
                await machine.submit(msgspec.structs.replace(JOB, resources=Asked(power=watts)))
            assert said.value.where == "resources.power"
            return said.value.detail

        (view,) = await machine.jobs.target_views()
        assert "power" not in view.cannot
        assert await refused(50) == "no node of cluster takes a cap below 100 W"
        machine.batch.ability = Ability()
        assert "slurm cannot keep other jobs off the nodes of one" in await refused()
        machine.batch.ability = Ability(whole_nodes=True)
        names, machine.batch.names = machine.batch.names, ["elsewhere"]
        await machine.fleet.of(WorkloadService).cluster("cluster").now()
        assert "none of the nodes of cluster is one of Strata's" in await refused()
        machine.batch.names = names
        await machine.fleet.of(WorkloadService).cluster("cluster").now()
        await machine.site.run("night", "limit: 20kW\ncap: 250W\nevery: 1s\nnodes: {low: 200W, high: 2400W}")
        assert await refused() == "caps are set by the power policy night, and not for jobs"
        machine.fleet.services.drop(CapOperations)
        assert await refused() == "nodes are capped by the power layer, which does not run here"
        (view,) = await machine.jobs.target_views()
        assert "power" in view.cannot
        beside = Target("beside", "slurm", machine.batch, QuietRunner(Place()))
        assert await machine.jobs._caps.against(beside, 300) == "slurm cannot limit the power that a job draws"
        assert not machine.jobs.jobs(ALICE).items


class Killed:
    """Ends everything at the ``step``-th of the steps that leave a trace: before it is done, or ``after`` it was."""

    def __init__(self, machine: Machine, step: int, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happened = False
        kept, caps = machine.jobs._caps.kept, machine.site.capmc.caps
        count = 0
        for owner, name in ((kept, "note_all"), (caps, "ask_for")):
            real = getattr(owner, name)

            async def step_of(*args: Any, real: Any = real) -> Any:
                nonlocal count
                if args == ({},):
                    return set()
                count += 1
                if self.happened or (count == step and not after):
                    self.happened = True
                    raise asyncio.CancelledError
                found = await real(*args)
                if count == step and after:
                    self.happened = True
                    raise asyncio.CancelledError
                return found

            monkeypatch.setattr(owner, name, step_of)


@pytest.mark.parametrize("ends_meanwhile", [False, True])
@pytest.mark.parametrize("after", [False, True])
async def test_a_kill_between_any_two_steps_ends_right(
    after: bool, ends_meanwhile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        await machine.site.cap({node: 500.0})
        for step in range(1, 7):  # three on the way there, three on the way back
            job = await machine.submit()
            with pytest.MonkeyPatch.context() as patch:
                killed = Killed(machine, step, after, patch)
                machine.batch.begin(job.there, machine.their(node))
                await machine.look()
                if step > 3:
                    await machine.capped(**{node: 300.0})
                    machine.batch.end(job.there)
                    await machine.look()
                await until(lambda killed=killed: killed.happened)
                if ends_meanwhile and step <= 3:
                    machine.batch.end(job.there)
            await machine.restart()
            await machine.look()
            if step <= 3 and not ends_meanwhile:
                await machine.capped(**{node: 300.0})
                machine.batch.end(job.there)
                await machine.look()
            await machine.over(**{node: 500.0})


@pytest.mark.parametrize("ends_meanwhile", [False, True])
async def test_a_cap_that_was_on_its_way_when_the_service_was_killed_comes_to_nothing_once_the_job_has_ended(
    ends_meanwhile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        job = await machine.submit()
        sending = asyncio.Event()
        with pytest.MonkeyPatch.context() as patch:

            async def never(*args: object, **more: object) -> None:
                sending.set()
                await asyncio.Event().wait()

            patch.setattr(machine.site.sender, "send", never)
            machine.batch.begin(job.there, machine.their(node))
            await machine.look()
            await asyncio.wait_for(sending.wait(), 60)
            await machine.fleet.operations.close()
            await machine.jobs.stop()
        if ends_meanwhile:
            machine.batch.end(job.there)
        await machine.restart()
        await machine.look()
        if not ends_meanwhile:
            await machine.capped(**{node: 300.0})
            machine.batch.end(job.there)
            await machine.look()
        await machine.over(**{node: NONE})
        await machine.fleet.operations.recover()  # what is left of it has nothing to say any more
        for one in await machine.fleet.operations.recent():
            await machine.fleet.operations.wait(one.id)
        assert machine.cap(node) == NONE


async def test_a_policy_that_sets_caps_meanwhile_has_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        job = await machine.submit()
        machine.batch.begin(job.there, machine.their(node))
        await machine.look()
        await machine.capped(**{node: 300.0})
        await machine.site.run("night", "limit: 20kW\ncap: 250W\nevery: 1s\nnodes: {low: 200W, high: 2400W}")
        await machine.capped(**{node: 250.0})
        machine.batch.end(job.there)
        await machine.look()
        await machine.over(**{node: 250.0})
        assert await machine.asked(job) == [f"node 300 W: {node}"]


async def test_only_the_controller_that_sets_caps_for_all_caps_nodes_for_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine_of(tmp_path, monkeypatch) as machine:
        node = machine.nodes[0]
        job = await machine.submit()
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setattr(type(machine.site.site), "leads", False)
            machine.batch.begin(job.there, machine.their(node))
            await machine.look()
            await machine.jobs._caps.look()
            assert not machine.jobs._caps._busy and not machine.jobs._caps.kept.all
        await machine.capped(**{node: 300.0})


async def test_under_a_limit_a_cap_comes_back_when_there_is_room_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_caps, "AGAIN", 0.2)
    monkeypatch.setattr(job_caps, "AGAIN_MOST", 0.2)
    monkeypatch.setattr(cap_operations, "LIMIT_WAIT", 0.5)
    limit = NODES * 500.0
    async with machine_of(tmp_path, monkeypatch, PowerSettings(limit=limit)) as machine:
        site = machine.site
        await site.until("lowered", lambda: settled(site))
        first, second, *_ = machine.nodes
        before = machine.cap(first)
        job = await machine.submit()
        site.peak = 0.0
        machine.batch.begin(job.there, machine.their(first))
        await machine.look()
        await machine.capped(**{first: 300.0})
        # Somebody takes what that has freed.
        assert await site.cap({second: machine.cap(second) + before - 300.0}) == {"e": 0, "err_msg": ""}
        machine.batch.end(job.there)
        await machine.look()
        record = machine.jobs._caps.kept.all
        await until(lambda: [cap.state for cap in record.values()] == ["returning"])
        for _ in range(3):
            await machine.jobs._caps.look()
        assert machine.cap(first) == 300.0 and np.isfinite(site.peak)
        assert await site.cap({second: 300.0}) == {"e": 0, "err_msg": ""}
        await machine.over(**{first: before, second: 300.0})
        assert site.peak <= limit


@pytest.mark.server
@pytest.mark.skipif(not ROOT, reason="only root can run a scheduler for somebody else")
async def test_a_real_slurm_gives_a_capped_job_a_node_of_its_own(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = open_dir / "daemons"
    daemons.mkdir(mode=0o755)
    gate = open_dir / "gate"
    waits = f"#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.1; done\n"
    quick = "SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0"
    async with (
        slurm(daemons, "", quick, real=("c00001",), cpus=4) as real,
        machine_of(open_dir, monkeypatch, real=real) as machine,
    ):
        node = machine.nodes[0]
        assert machine.their(node) == "c00001"
        native = {"slurm": ("--oversubscribe",)}
        job = await machine.submit(JobDocument(script=waits, resources=Asked(power=300), native=native))  # type: ignore[arg-type]
        await machine.capped(**{node: 300.0})
        # There are four cores, and nobody else gets one.
        other = await machine.submit(JobDocument(script="#!/bin/sh\nexit 0\n"))
        assert "OverSubscribe=NO" in await real.run("scontrol", "show", "job", job.there)
        await machine.look()
        assert machine.jobs.job(ALICE, other.id).state == "waiting"
        gate.touch()
        await until(lambda: machine.jobs.job(ALICE, other.id).outcome == "done")
        assert machine.jobs.job(ALICE, job.id).outcome == "done"
        await machine.over(**{node: NONE})
