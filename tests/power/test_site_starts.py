"""Nodes that are off, without a cap, under a limit that does not leave the most that they draw: they start capped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strata.power.capping.ledger import Ledger
from strata.power.capping.split import start_caps
from strata.power.capping.terms import Limits, Ratings, Use
from strata.power.settings import PowerSettings
from support.power_site import ASK_AGAIN, Site, compute, settled, site_of

MOST = 2400.0


def off(count: int, caps: float = MOST) -> Ledger:
    ratings = Ratings.alike(count, idle=50, boot=150, low=200, high=MOST)
    return Ledger(ratings, caps=np.full(count, caps), use=Use.OFF, asks=False)


@pytest.mark.parametrize(
    ("count", "caps", "limits", "wanted"),
    [
        (2, MOST, Limits(site=5000.0), [None, None]),
        (2, MOST, Limits(site=1001.0), [500, 500]),
        (3, MOST, Limits(site=450.0), [225, 225, None]),
        (2, 300.0, Limits(site=1000.0), [None, None]),
        (2, MOST, Limits(site=100.0), [None, None]),
        (2, MOST, Limits(site=5000.0, ramp_up=300.0), [300, 300]),
    ],
)
def test_what_is_free_is_shared_out_among_those_that_are_to_start(
    count: int, caps: float, limits: Limits, wanted: list[float | None]
) -> None:
    found = start_caps(off(count, caps), np.arange(count), limits)
    assert [None if np.isnan(watts) else watts for watts in found.tolist()] == wanted


async def on(site: Site) -> list[str]:
    nodes = site.service.registry.select(",".join(compute(site)))
    await site.service.edits.set_desires(nodes, {"power": "on"}, (), "test")
    return compute(site)


@pytest.mark.slow
async def test_a_node_without_a_cap_starts_with_one_where_the_limit_leaves_less_than_it_draws(tmp_path: Path) -> None:
    limit = 5 * MOST + 1000
    async with site_of(tmp_path, PowerSettings(limit=limit), ready=False, layer=ASK_AGAIN) as site:
        await site.until("seen off", lambda: settled(site) and site.site.view().allowed == 0)
        names = await on(site)
        await site.until("all are on", lambda: all(site.machine.on(name) for name in names))
        assert site.total <= limit
        assert sorted(site.caps)[:3] == [333.0] * 3


@pytest.mark.slow
async def test_one_that_cannot_start_is_told_how_much_it_needs_and_how_much_is_free(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=7 * MOST + 100), ready=False, layer=ASK_AGAIN) as site:
        await site.until("seen off", lambda: settled(site) and site.site.view().allowed == 0)
        names = await on(site)
        await site.until("seven are on", lambda: sum(site.machine.on(name) for name in names) == 7)
        last = site.service.registry.index_of(next(name for name in names if not site.machine.on(name)))
        words = "the site's limit of 16.9 kW leaves no power for it now: with its lowest cap it needs"
        await site.until("told why", lambda: words in str(site.service.view.why(last)))
        assert "and 100 W is free" in str(site.service.view.why(last))


@pytest.mark.slow
async def test_one_that_the_ramp_keeps_off_is_told_so_and_starts_with_a_lower_cap(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=20_000, ramp=300), ready=False, layer=ASK_AGAIN) as site:
        await site.until("seen off", lambda: settled(site) and site.site.view().allowed == 0)
        names = await on(site)
        words = "the site's ramp of 300 W a minute leaves no power for it now: it needs"
        indices = [site.service.registry.index_of(name) for name in names]
        await site.until("told why", lambda: any(words in str(site.service.view.why(index)) for index in indices))
        await site.until("the first one is on", lambda: any(site.machine.on(name) for name in names))
        assert min(site.caps) == 300.0
