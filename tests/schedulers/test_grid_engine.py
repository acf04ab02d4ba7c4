"""The adapter of Grid Engine, against a real one: qmaster, execd, jobs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from strata.core.errors import DeviceError
from strata.schedulers.gridengine.gridengine import GridEngine
from strata.schedulers.gridengine.replies import hosts
from strata.schedulers.protocol import NodeSeen
from strata.schedulers.runner import Place, Runner
from support.grid_engine import GridEngineCluster, grid_engine

MARK = "strata/ab12cd34"


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[GridEngineCluster, GridEngine]]:
    with tempfile.TemporaryDirectory(prefix="ge-") as name:
        async with grid_engine(Path(name)) as found:
            yield found, GridEngine(Runner(Place(env=found.env)), MARK)


async def host(adapter: GridEngine) -> NodeSeen:
    (found,) = (await adapter.look()).values()
    return found


@pytest.mark.server
@pytest.mark.slow
async def test_a_host_is_drained_while_its_jobs_run_on_and_only_what_we_disabled_is_enabled_again() -> None:
    async with cluster() as (real, adapter):
        seen = await host(adapter)
        assert (seen.understood, seen.drained, seen.down, seen.jobs) == (True, False, False, ())
        await real.run("qsub", "-b", "y", "-o", "/dev/null", "-j", "y", "-t", "1-2", "sleep", "600")
        await real.until("the job runs", "qstat", "-s", "r", said=" r ")
        await real.run("qmod", "-d", f"second.q@{real.host}")
        assert not (await host(adapter)).drained, "the other queue takes jobs still"

        await adapter.drain([real.host], "to switch-image")
        seen = await host(adapter)
        assert seen.drained and seen.ours
        assert set(seen.jobs) <= {"1.1", "1.2"} and seen.jobs
        await adapter.resume([real.host])
        seen = await host(adapter)
        assert not seen.drained
        assert seen.state == "main.q:- second.q:d", "what a person disabled stays disabled"

        await real.run("qdel", "-f", "-u", "root")
        for _ in range(300):
            if not (seen := await host(adapter)).jobs:
                break
            await asyncio.sleep(0.1)
        assert seen.jobs == ()


@pytest.mark.server
@pytest.mark.slow
async def test_what_a_person_disabled_is_not_ours_and_a_dead_qmaster_is_an_error() -> None:
    async with cluster() as (real, adapter):
        await real.run("qmod", "-d", f"*@{real.host}")
        seen = await host(adapter)
        assert seen.drained and not seen.ours
        await asyncio.to_thread(real.stop_qmaster)
        with pytest.raises(DeviceError, match="commlib"):
            await adapter.look()


def test_a_state_that_nobody_knows_is_not_understood() -> None:
    from strata.schedulers.gridengine.replies import nodes

    said = (
        "<qhost><host name='global'/><host name='n1'><queue name='main.q'>"
        "<queuevalue name='slots_used'>0</queuevalue><queuevalue name='state_string'>dZ</queuevalue></queue></host>"
        "<host name='n2'><queue name='main.q'><queuevalue name='slots_used'>3</queuevalue>"
        "<queuevalue name='state_string'>au</queuevalue></queue></host></qhost>"
    )
    seen = nodes(hosts(said), {})
    assert not seen["n1"].understood
    assert seen["n2"].down and seen["n2"].jobs == ("?",), "slots are taken by a job that is not told of"


def test_what_is_not_xml_is_an_error_and_not_an_empty_cluster() -> None:
    with pytest.raises(DeviceError, match="not XML"):
        hosts("error: commlib error")
