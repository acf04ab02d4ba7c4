"""A controller over simulated nodes whose jobs are in a real Slurm: real slurmctld, real slurmd, real jobs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import DeviceError, Refused, StrataError
from strata.core.units import Seconds
from strata.engine.settings import EngineSettings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.nodes.batches import batch_of
from strata.platform.settings import PlatformSettings
from strata.platform.workload.records import WorkloadSpec
from strata.platform.workload.service import WorkloadService
from support.simulated_machine import SimulatedMachine, simulated_machine
from support.slurm import Slurm, slurm

pytestmark = [pytest.mark.server, pytest.mark.slow]

ONE, TWO = "n00001", "n00002"
GOAL = {"power": "on", "os": "up", "image": "old", "personality": "active", "config": "c1", "workload": "in"}

ENGINE = EngineSettings(first_poll=Seconds(0.02), blind_look=Seconds(0.05), repeat_unknown=Seconds(1))


class Site:
    """Two nodes that are ready, and the Slurm that gives them to jobs."""

    def __init__(self, machine: SimulatedMachine, scheduler: Slurm, workload: WorkloadService) -> None:
        self.machine = machine
        self.fleet = machine.service
        self.slurm = scheduler
        self.workload = workload

    async def want(self, names: str, **goal: str) -> None:
        await self.fleet.edits.set_desires(self.fleet.registry.select(names), goal, (), "test")

    def fact(self, node: str, variable: str) -> str:
        return self.fleet.view.node(self.fleet.registry.index_of(node)).facts[variable].value

    def ready(self, node: str) -> bool:
        return self.fleet.view.state(self.fleet.registry.index_of(node)) == "ready"

    def done_to(self, node: str, mutation: str) -> int:
        """How often something was done to a node in truth."""
        effects = self.machine.nodes.effects
        rows = [(effects.mutations[row["mutation"]], self.machine.nodes.names[row["node"]]) for row in effects.rows]
        return rows.count((mutation, node))

    async def refusal(self, node: str) -> str:
        batch = batch_of(self.fleet.registry, self.fleet.registry.select(node))
        return (await self.fleet.controller.permits("no-running-job", batch))[0]

    async def until(self, what: str, holds: Callable[[], bool | Awaitable[bool]]) -> None:
        for _ in range(1200):
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.1)
        told = [await self.fleet.why(LOCAL_ADMIN, node) for node in (ONE, TWO)]
        pytest.fail(f"not so: {what}\n{told}\n{await self.slurm.run('sinfo', '-N', '-l')}\n{self.slurm.said()[-2000:]}")

    async def looked_again(self) -> None:
        """Until a look that began after this call was told to the engine."""
        at = self.fleet.controller.clock.now()
        cluster = self.workload.driver._clusters()[0]
        await self.until("Slurm was looked at", lambda: cluster.last is not None and cluster.last.began > at)
        await self.fleet.controller.stepped()


@asynccontextmanager
async def site() -> AsyncIterator[Site]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        directory = Path(name)
        async with (
            slurm(directory, "", real=(ONE, TWO)) as scheduler,
            simulated_machine(directory, 2, on=True, engine=ENGINE) as machine,
        ):
            fleet = machine.service
            platform = PlatformSettings(workload_poll=Seconds(1))
            fleet.settings = msgspec.structs.replace(fleet.settings, platform=platform)
            workload = WorkloadService(fleet)
            await workload.start()
            fleet.drive(workload.driver)
            await workload.poll()
            try:
                spec = WorkloadSpec(kind="slurm", env=scheduler.env)
                await workload.connect(LOCAL_ADMIN, "main", spec)
                found = Site(machine, scheduler, workload)
                await found.want(f"{ONE},{TWO}", **GOAL)
                await found.until("both are ready", lambda: found.ready(ONE) and found.ready(TWO))
                yield found
            finally:
                await workload.stop()


async def test_a_new_image_waits_for_the_job_on_the_node_and_never_kills_it() -> None:
    async with site() as here:
        job = await here.slurm.start_job(ONE)
        await here.want(ONE, image="new")
        await here.slurm.until_state(ONE, "allocated+drain")
        reason = await here.slurm.run("sinfo", "-h", "-n", ONE, "-o", "%E")
        assert reason.startswith("strata/") and "switch-image" in reason
        await here.looked_again()
        assert here.fact(ONE, "workload") == "in", "a node with a job is not out"
        assert f"job {job} runs there" in await here.refusal(ONE)
        assert here.done_to(ONE, "switch-image") == 0

        here.slurm.release_job(ONE)
        await here.until("it has the new image", lambda: here.ready(ONE) and here.fact(ONE, "image") == "new")
        assert here.slurm.ended_well(ONE)
        assert here.done_to(ONE, "switch-image") == 1
        await here.slurm.until_state(ONE, "idle")
        assert here.done_to(TWO, "switch-image") == 0


async def test_a_job_that_waits_for_the_node_begins_after_the_change_and_not_in_between() -> None:
    async with site() as here:
        await here.slurm.start_job(ONE)
        begun = here.slurm.directory / "begun"
        await here.slurm.run("sbatch", "-w", ONE, "-o", "/dev/null", "--wrap", f"touch {begun}")
        await here.want(ONE, image="new", workload="out")
        await here.slurm.until_state(ONE, "allocated+drain")
        here.slurm.release_job(ONE)
        await here.until("it has the new image", lambda: here.fact(ONE, "image") == "new")
        assert here.slurm.ended_well(ONE) and not begun.exists()
        assert (await here.slurm.run("squeue", "-h", "-o", "%T")).split() == ["PENDING"]
        await here.want(ONE, workload="in")
        await here.until("the job has run", begun.exists)


async def test_what_a_person_drained_is_changed_and_stays_drained() -> None:
    async with site() as here:
        await here.slurm.run("scontrol", "update", f"NodeName={ONE}", "State=DRAIN", "Reason=bad DIMM")
        await here.want(ONE, image="new")
        await here.until("it has the new image", lambda: here.fact(ONE, "image") == "new")
        await here.until(
            "it is said who has to resume it", lambda: _says(here, ONE, "root drained it in slurm main (bad DIMM)")
        )
        assert await here.slurm.state(ONE) == "idle+drain"
        assert (await here.slurm.run("sinfo", "-h", "-n", ONE, "-o", "%E")).strip() == "bad DIMM"


async def test_a_person_who_changes_the_reason_of_our_drain_has_taken_it_over() -> None:
    async with site() as here:
        await here.slurm.start_job(ONE)
        await here.want(ONE, image="new")
        await here.slurm.until_state(ONE, "allocated+drain")
        await here.slurm.run("scontrol", "update", f"NodeName={ONE}", "Reason=mine now")
        here.slurm.release_job(ONE)
        await here.until("it waits for that person", lambda: _says(here, ONE, "(mine now): only people resume that"))
        assert await here.slurm.state(ONE) == "idle+drain"


async def test_while_slurmctld_is_away_nothing_that_could_hurt_is_done() -> None:
    async with site() as here:
        await here.slurm.start_job(ONE)
        await asyncio.to_thread(here.slurm.stop)
        assert "slurm main does not answer" in await here.refusal(ONE)
        assert "slurm main does not answer" in await here.refusal(TWO)
        await here.want(f"{ONE},{TWO}", image="new")
        await here.until("the drain has no answer", lambda: _says(here, ONE, "slurm main does not answer"))
        assert here.done_to(ONE, "switch-image") == here.done_to(TWO, "switch-image") == 0
        found = await here.workload.one(LOCAL_ADMIN, "main")
        assert not found.answers and "slurm" in found.trouble.lower()

        here.slurm.start()
        await here.slurm.until_state(ONE, "allocated+drain")
        await here.looked_again()
        assert here.done_to(ONE, "switch-image") == 0
        here.slurm.release_job(ONE)
        await here.until("both are new", lambda: all(here.fact(node, "image") == "new" for node in (ONE, TWO)))
        assert here.slurm.ended_well(ONE)


async def test_an_idle_node_may_be_given_to_a_job_at_any_moment_and_so_is_not_switched_off_by_hand() -> None:
    async with site() as here:
        assert "may start a job there at any moment" in await here.refusal(ONE)
        await here.want(ONE, workload="out")
        await here.slurm.until_state(ONE, "idle+drain")
        assert await here.refusal(ONE) == ""
        assert "drained" in str(await _refused(here.workload.disconnect(LOCAL_ADMIN, "main", force=False)))
        await here.want(ONE, workload="in")
        await here.slurm.until_state(ONE, "idle")
        await here.workload.disconnect(LOCAL_ADMIN, "main", force=False)
        assert "no workload manager is connected" in await here.refusal(ONE)


async def test_a_suspended_job_is_a_job_although_its_node_is_idle() -> None:
    async with site() as here:
        job = await here.slurm.start_job(ONE)
        await here.slurm.run("scontrol", "suspend", job)
        await here.slurm.until_state(ONE, "idle")
        await here.want(ONE, workload="out")
        await here.slurm.until_state(ONE, "idle+drain")
        assert f"job {job} runs there" in await here.refusal(ONE)
        await here.looked_again()
        assert here.fact(ONE, "workload") == "in"
        await here.slurm.run("scontrol", "resume", job)
        here.slurm.release_job(ONE)
        await here.until("it is out", lambda: here.fact(ONE, "workload") == "out")


async def test_a_workload_manager_that_does_not_answer_is_not_connected(tmp_path: Path) -> None:
    async with site() as here:
        dead = Slurm(tmp_path, "x[1-4]")
        spec = WorkloadSpec(kind="slurm", env=dead.env)
        error = await _refused(here.workload.connect(LOCAL_ADMIN, "other", spec))
        assert isinstance(error, DeviceError) and "Unable to contact slurm controller" in str(error)
        assert [one.name for one in await here.workload.all(LOCAL_ADMIN)] == ["main"]
        listed = await here.workload.nodes(LOCAL_ADMIN, "main", "*")
        assert [(one.node, one.workload, one.state) for one in listed] == [(ONE, "in", "idle"), (TWO, "in", "idle")]


async def _says(here: Site, node: str, text: str) -> bool:
    return text in str(await here.fleet.why(LOCAL_ADMIN, node))


async def _refused(work: Awaitable[object]) -> StrataError:
    with pytest.raises((Refused, StrataError)) as caught:
        await work
    return caught.value
