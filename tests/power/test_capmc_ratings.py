"""What labels say of nodes' power, as schedulers are told it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.capmc_site import capmc_site

pytestmark = pytest.mark.slow


async def test_a_site_says_in_labels_what_no_controller_tells(tmp_path: Path) -> None:
    async with capmc_site(tmp_path, 4, labels={"powerup": "140W", "static": "0.02kW"}) as site:
        table = site.view.nodes()
        site.columns.put(table.uids, powerup=np.nan, static=np.nan)
        (group,) = (await site.ask("get_power_cap_capabilities"))["groups"]
        assert (group["powerup"], group["static"]) == (140, 20)
        first = table.uids[table.compute][:1]
        site.columns.put(first, powerup=150.0)
        groups = (await site.ask("get_power_cap_capabilities"))["groups"]
        assert sorted((one["powerup"], len(one["nids"])) for one in groups) == [(140, len(group["nids"]) - 1), (150, 1)]


async def test_what_is_not_said_or_no_power_is_nothing(tmp_path: Path) -> None:
    async with capmc_site(tmp_path, 4, labels={"powerup": "much"}) as site:
        site.columns.put(site.view.nodes().uids, powerup=np.nan, static=np.nan)
        (group,) = (await site.ask("get_power_cap_capabilities"))["groups"]
        assert (group["powerup"], group["static"]) == (0, 0)
