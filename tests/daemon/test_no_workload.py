"""Where no workload manager is connected: nothing is seen, one line says so, and only lower layers switch nodes off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch
from strata.core.errors import Conflict
from strata.core.node import Node
from strata.daemon.running import running
from strata.daemon.settings import Settings, SimulatedSettings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.nodes.batches import batch_of
from strata.fleet.settings import ListenSettings
from strata.platform.no_workload import NoWorkload
from strata.platform.settings import PlatformSettings
from strata.platform.workload.records import WorkloadSpec
from strata.platform.workload.service import WorkloadService

TWO = Batch(names=("n1", "n2"), uids=np.array([1, 2]))
ALL: tuple[str, ...] = ("hardware", "provisioning", "platform")


async def test_with_the_lower_layers_alone_jobs_are_somebody_elses_business() -> None:
    assert await NoWorkload().permits("no-running-job", TWO) == ["", ""]
    assert all(await NoWorkload().permits("another", TWO))


async def test_where_jobs_are_our_business_nobody_says_that_none_runs() -> None:
    refusals = await NoWorkload(required=True).permits("no-running-job", TWO)
    assert refusals == ["no workload manager is connected, so no job can be known here"] * 2


async def test_where_nobody_runs_jobs_no_node_is_anybodys() -> None:
    seen = await NoWorkload().observe(["workload"], TWO)
    assert seen["workload"].values() == ["out", "out"]
    assert await NoWorkload().observe(["power"], TWO) == {}
    assert await NoWorkload(required=True).observe(["workload"], TWO) == {}


@pytest.mark.slow
@pytest.mark.parametrize("layers", [ALL[:1], ALL[:2], ALL])
async def test_what_is_missing_is_said_once_and_only_where_it_is_missed(
    layers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    observe, looked = NoWorkload.observe, asyncio.Event()

    async def seen(self: NoWorkload, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        looked.set()
        return await observe(self, variables, batch)

    monkeypatch.setattr(NoWorkload, "observe", seen)
    settings = Settings(state_dir=tmp_path, controller_id="c1", layers=layers, listen=ListenSettings(tls=False))
    with caplog.at_level(logging.WARNING, "strata"):
        async with running(settings) as service:
            await service.edits.create_nodes([Node(name="n1", uid=0)], "tester")
            if "platform" in layers:
                async with asyncio.timeout(60):
                    await looked.wait()
    said = [record.getMessage() for record in caplog.records]
    assert sum("no workload manager is connected" in line for line in said) == ("platform" in layers)
    assert "look failed" not in said


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "refusal"), [("required", "no job can be known here"), ("none", "")])
async def test_a_service_with_all_layers_is_told_whether_jobs_are_its_business(
    setting: str, refusal: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(
        state_dir=tmp_path,
        controller_id="c1",
        layers=ALL,
        listen=ListenSettings(tls=False),
        platform=PlatformSettings(workload=setting),  # type: ignore[arg-type]
    )
    with caplog.at_level(logging.WARNING, "strata"):
        async with running(settings) as service:
            await service.edits.create_nodes([Node(name="n1", uid=0)], "tester")
            await service.settled(await service.store.revision())
            batch = batch_of(service.registry, service.registry.select("n1"))
            [said] = await service.controller.permits("no-running-job", batch)
    assert (refusal in said) if refusal else said == ""
    warned = [record for record in caplog.records if "no workload manager is connected" in record.getMessage()]
    assert bool(warned) == bool(refusal)


@pytest.mark.slow
async def test_who_connects_a_workload_manager_to_simulated_nodes_is_told_that_they_run_no_jobs(tmp_path: Path) -> None:
    simulated = SimulatedSettings(address="http://127.0.0.1:9")  # no node: nobody is asked
    settings = Settings(state_dir=tmp_path, controller_id="c1", listen=ListenSettings(tls=False), simulated=simulated)
    async with running(settings) as service:
        with pytest.raises(Conflict, match="simulated and run no jobs") as refused:
            await service.of(WorkloadService).connect(LOCAL_ADMIN, "slurm", WorkloadSpec(kind="slurm"))
    assert "strata up --virtual" in refused.value.hint
