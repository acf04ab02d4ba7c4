"""Jobs in Grid Engine, against a real one: qmaster, execd, an account that is not root."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, Denied, Unavailable
from strata.schedulers.gridengine.jobs import GridEngineJobs
from strata.schedulers.jobs import Resources
from strata.schedulers.runner import Place, Runner
from support.grid_engine import GridEngineCluster, grid_engine
from support.job_scheduler_contract import Site, keeps_the_contract

ACCOUNT, OTHER = "nobody", "daemon"


@asynccontextmanager
async def site() -> AsyncIterator[tuple[GridEngineCluster, Site]]:
    """A Grid Engine, and a folder of the account's. Not in pytest's own folders: those are root's alone."""
    with tempfile.TemporaryDirectory(prefix="ge-jobs-") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "of the account's"
        folder.mkdir()
        shutil.chown(folder, ACCOUNT)
        async with grid_engine(Path(name)) as real:
            yield real, Site(GridEngineJobs(Runner(Place(env=real.env))), ACCOUNT, folder)


@pytest.mark.server
@pytest.mark.slow
async def test_grid_engine_keeps_the_contract_of_a_job_scheduler() -> None:
    async with site() as (real, found):
        await keeps_the_contract(found)

        adapter = found.scheduler
        held = found.work("#!/bin/sh\ntrue\n", held=True)
        one = await adapter.submit(held)
        (seen,) = await found.until(held, lambda seen: bool(seen) and bool(seen[0].said), "it is seen")
        assert (seen.state, seen.reason) == ("held", "it is held")
        waits = found.work("#!/bin/sh\ntrue\n", after=(("ended", one),))
        other = await adapter.submit(waits)
        (seen,) = await found.until(waits, lambda seen: bool(seen) and bool(seen[0].said), "it is seen")
        assert (seen.state, seen.account) == ("waiting", ACCOUNT)
        with pytest.raises(Denied, match="privileges"):
            await adapter.cancel(OTHER, [one])
        with pytest.raises(Denied, match="owner"):
            await adapter.hold(OTHER, [one])
        with pytest.raises(BadRequest, match="no parallel environment of this Grid Engine gives"):
            await adapter.submit(found.work("#!/bin/sh\n", resources=Resources(nodes=2, tasks=2)))
        both, _ = await found.done("#!/bin/sh\necho $NSLOTS\n", resources=Resources(cores=2))
        assert found.out(both) == "2\n"

        # Another one of this adapter, which has seen nothing: what has ended is found by its key all the same.
        fresh = Site(GridEngineJobs(Runner(Place(env=real.env))), ACCOUNT, found.folder)
        fresh._began = found._began
        (seen,) = await fresh.ended(both)
        assert (seen.outcome, seen.account) == ("done", ACCOUNT)
        await adapter.cancel(ACCOUNT, [one, other])

        real.stop_qmaster()
        with pytest.raises(Unavailable):
            await adapter.submit(found.work("#!/bin/sh\n"))
