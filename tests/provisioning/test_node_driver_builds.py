"""The node driver where there is nothing that a node could boot: it says so, and leaves alone what runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strata.core.driver import Batch
from strata.core.state import Outcome
from strata.provisioning.identity.records import BootRecord
from strata.provisioning.model import LAYER
from support.agent_site import agent_site
from support.fake_agents import FakeAgent, http_over

pytestmark = pytest.mark.slow

BOOT = next(mutation for mutation in LAYER.mutations if mutation.name == "boot")
NAME = "n00001"


async def test_a_node_with_nothing_to_boot_is_not_started_and_the_reason_is_told(tmp_path: Path) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site:
        why = "minOS 0123456789ab: it is for aarch64, and cannot be booted on x86_64"
        site.cannot_boot[NAME] = why
        site.identity.records[NAME] = BootRecord()
        site.driver.got_power([NAME])  # on its way, and still there is no use in waiting for it
        outcomes = await site.driver.act(BOOT, Batch(names=[NAME], uids=np.array([1]), bmcs=["http://bmc.example"]))
        assert (Outcome(outcomes.codes[0]), outcomes.reasons[0]) == (Outcome.UNTRIED, why)


async def test_a_running_node_whose_profile_has_nothing_to_boot_any_more_is_not_booted_for_that(
    tmp_path: Path,
) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site:
        async with http_over(site.socket) as http:
            agent = FakeAgent(http, NAME)
            agent.wait = 0
            await agent.exchange()
        batch = Batch(names=[NAME], uids=np.array([1]))
        assert (await site.driver.observe(["minos"], batch))["minos"].values() == ["default"]
        site.label = lambda profile, arch: ""
        assert (await site.driver.observe(["minos"], batch))["minos"].values() == ["default"]
        site.label = lambda profile, arch: f"{profile}@another"
        assert (await site.driver.observe(["minos"], batch))["minos"].values() == ["default@abc"]
