"""What nodes' agents told of their accelerators, by model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strata.core.node import Node
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.jobs.accelerators.service import AcceleratorService
from strata.provisioning.agents.service import AgentService


@pytest.mark.slow
@pytest.mark.server
async def test_nodes_with_as_many_of_one_model_are_one_line_and_a_driver_that_does_not_run_is_told(
    tmp_path: Path,
) -> None:
    settings = Settings(
        state_dir=tmp_path / "state",
        controller_id="c1",
        layers=("jobs",),
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
    )
    async with running(settings) as fleet:
        await fleet.edits.create_nodes([Node(name=f"n{number}", uid=0) for number in range(1, 5)], "test")
        await fleet.settled(await fleet.store.revision())

        def card(at: int, *, runs: bool) -> dict[str, object]:
            told = {"make": "nvidia", "name": "NVIDIA H200", "id": f"GPU-{at}", "memory_bytes": 143771 << 20}
            return {**told, "devices": [f"/dev/nvidia{at}"]} if runs else {"make": "nvidia"}

        for name, runs in (("n1", True), ("n2", True), ("n3", False), ("gone", True)):
            told = {"accelerators": [card(at, runs=runs) for at in range(8)]}
            await fleet.of(AgentService).inventories.put(name, json.dumps(told).encode())
        found = (await fleet.of(AcceleratorService).all(LOCAL_ADMIN)).items
        assert [(one.name, one.each, one.running, one.nodes, one.count) for one in found] == [
            ("", 8, False, "n3", 1),
            ("NVIDIA H200", 8, True, "n[1-2]", 2),
        ]
