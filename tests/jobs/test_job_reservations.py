"""Reservations through the service, at a real Slurm and a real Grid Engine: made, seen, used by a job, ended."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Denied, NotFound, StrataError
from strata.fleet.access.principal import Right
from strata.jobs.reservations.records import ReservationRequest
from strata.jobs.reservations.service import ReservationService
from strata.jobs.resources import Asked
from strata.jobs.submission.records import JobDocument, Kind
from strata.jobs.submission.targets import Target
from strata.schedulers.kinds import open_job_scheduler
from strata.schedulers.runner import Place, Runner
from support.grid_engine import grid_engine
from support.job_site import ALICE, BOB, OPERATOR, ROOT, JobSite, job_site
from support.slurm import slurm

pytestmark = [pytest.mark.slow, pytest.mark.server, pytest.mark.skipif(not ROOT, reason="only root is two accounts")]


@asynccontextmanager
async def at(kind: Kind, cluster: AbstractAsyncContextManager[object], directory: Path) -> AsyncIterator[JobSite]:
    async with cluster as real, job_site(directory, local=True, poll=1.0) as site:
        runner = Runner(Place(env=real.env))  # type: ignore[attr-defined]
        site.jobs.targets["there"] = Target("there", kind, open_job_scheduler(kind, runner), runner)
        await site.jobs.target_views()
        yield site


def of_slurm(directory: Path) -> AbstractAsyncContextManager[object]:
    return slurm(directory, "", "SchedulerParameters=sched_interval=1,batch_sched_delay=0", real=("n1", "n2"))


@pytest.mark.parametrize(("kind", "cluster"), [("slurm", of_slurm), ("gridengine", grid_engine)])
async def test_a_reservation_is_made_seen_by_whom_it_is_for_used_by_a_job_and_ended(
    kind: Kind, cluster: Callable[[Path], AbstractAsyncContextManager[object]], open_dir: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="reserved-") as name:
        Path(name).chmod(0o755)
        async with at(kind, cluster(Path(name)), open_dir) as site:
            kept = ReservationService(site.fleet)
            mine = site.people["alice"].name
            asked = ReservationRequest(target="there", name="course", accounts=(mine,), seconds=3600)
            made = await kept.make(OPERATOR, asked)
            assert (made.name, made.accounts, made.end) == ("course", (mine,), (made.start or 0.0) + 3600)
            assert made.nodes
            [seen] = (await kept.all(ALICE)).items
            assert (seen.id, seen.state) == (made.id, "active")
            assert (await kept.all(BOB)).items == ()
            assert len((await kept.all(OPERATOR, "there")).items) == 1
            document = JobDocument(
                command="true", target="there", reservation=made.id, resources=Asked(time=60), workdir="/tmp"
            )
            job = await site.jobs.submit(ALICE, document)
            assert (await site.ended(ALICE, job.id)).outcome == "done"
            with pytest.raises(StrataError):  # nobody else's jobs go there
                await site.jobs.submit(BOB, document)
            with pytest.raises(BadRequest, match="local has no reservations"):
                await kept.all(OPERATOR, "local")
            with pytest.raises(BadRequest, match="run a job in a reservation"):
                await site.jobs.submit(ALICE, JobDocument(command="true", target="local", reservation="course"))
            await kept.end(OPERATOR, "there", made.id)
            await until_none(kept)
            with pytest.raises(NotFound):
                await kept.end(OPERATOR, "there", made.id)
            many = ReservationRequest(target="there", name="many", accounts=(mine,), seconds=60, nodes=99)
            with pytest.raises(BadRequest, match="99"):
                await kept.make(OPERATOR, many)
            assert (await kept.all(OPERATOR)).items == (), "less than was asked for is not kept either"
            actions = [entry.action for entry in await site.fleet.ledger.latest(50)]
            assert {"reservation.create", "reservation.delete"} <= set(actions)
            with pytest.raises(Denied):
                ALICE.require(Right("create", "reservation"))


async def until_none(kept: ReservationService) -> None:
    for _ in range(600):
        if not (await kept.all(OPERATOR)).items:
            return
        await asyncio.sleep(0.1)
    pytest.fail("it is still there")
