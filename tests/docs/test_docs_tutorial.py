"""The tutorial from top to bottom on a simulated fleet; ``make tutorial`` takes virtual machines."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from docs_desk import Desk
from docs_support import CLUSTERS, ZERO, blocks, run_on

LONG = 900
"""Seconds for all of it: it brings up a fleet of its own."""


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_the_tutorial_works_as_written_from_nothing_to_nothing() -> None:
    directory = Path(tempfile.mkdtemp(prefix="zero-"))
    desk = Desk(directory)
    try:
        desk.page(ZERO, LONG)
        assert not desk.state.exists()
    finally:
        desk.down()
        shutil.rmtree(directory)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_tutorial_boots_breaks_heals_rolls_caps_and_runs_a_job_on_either_cluster(cluster: str) -> None:
    commands = "\n".join(command.text for block in run_on(ZERO, cluster) for command in block.commands)
    broken = {"virtual": "strata virtual kill", "simulated": '"ForceOff"'}[cluster]
    job = {"virtual": "srun -N4", "simulated": "strata job submit"}[cluster]
    order = [f"strata up --{cluster}", broken, "state:ready", "strata rollout start", "strata power policy enable"]
    places = [commands.index(words) for words in (*order, job, "strata down --delete")]
    assert places == sorted(places)
    assert {block.only for block in blocks(ZERO)} == {"", *CLUSTERS}
