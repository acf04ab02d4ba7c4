"""The site's limit and policies on a simulated machine: real controllers on sockets, the engine, CAPMC."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strata.core.errors import Conflict, Refused
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.power.capping.terms import CapChange
from strata.power.policies.records import PolicySpec, SimulationSpec
from strata.power.settings import PowerSettings
from strata.power.site.running import RunningJobs
from strata.power.site.site import SitePower
from strata.store.memory import MemoryStore
from strata.virtual.redfish.power import MOST
from support.power_site import NODES, compute, settled, site_of

pytestmark = pytest.mark.slow

LIMIT = NODES * 300.0


async def test_a_machine_above_the_limit_is_lowered_and_stays_below_it(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=LIMIT)) as site:
        await site.until("lowered", lambda: settled(site))
        assert site.total <= LIMIT
        assert site.site.view().allowed == site.total


async def test_caps_that_would_add_up_to_more_than_the_limit_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=LIMIT)) as site:
        await site.until("lowered", lambda: settled(site))
        before, names = site.caps, compute(site)
        told = await site.cap({names[0]: 500})
        assert isinstance(told, dict)
        assert (told["e"], told["err_msg"]) == (22, "Invalid argument")
        assert "more than the site's limit of 2.4 kW" in told["nids"][0]["err_msg"]
        assert site.caps == before


async def test_a_swap_of_caps_lowers_first_and_never_passes_the_limit(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=LIMIT)) as site:
        await site.until("lowered", lambda: settled(site))
        names = compute(site)
        site.peak = 0.0
        for high in (names[:4], names[4:], names[:4]):
            wanted = {name: 400.0 if name in high else 200.0 for name in names}
            assert await site.cap(wanted) == {"e": 0, "err_msg": ""}
            assert sorted(site.caps) == [200.0] * 4 + [400.0] * 4
        assert site.peak <= LIMIT
        assert (await site.service.operations.recent())[0].kind == "power-cap"


async def test_a_node_is_started_only_where_there_is_power_for_it(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=5 * 2400.0), ready=False) as site:
        names = compute(site)
        await site.until("seen off", lambda: settled(site) and site.site.view().allowed == 0)
        nodes = site.service.registry.select(",".join(names))
        await site.service.edits.set_desires(nodes, {"power": "on"}, (), "test")
        await site.until("five are on", lambda: sum(site.machine.on(name) for name in names) == 5)
        waiting = [name for name in names if not site.machine.on(name)]
        index = site.service.registry.index_of(waiting[0])
        await site.until("told why", lambda: "leaves no power for it" in str(site.service.view.why(index)))
        assert sum(site.machine.on(name) for name in names) == 5


async def test_a_policy_runs_once_it_was_simulated_and_enabled(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=LIMIT)) as site:
        await site.until("lowered", lambda: settled(site))
        text = "limit: 2.4kW\ncap: 250W\nevery: 1s\nnodes: {low: 100W, high: 2400W}"
        with pytest.raises(Refused, match="has not been simulated"):
            await site.policies.put(LOCAL_ADMIN, "night", PolicySpec(text=text))
        spec = SimulationSpec(text=text, nodes=8, days=1, limit=2400, peak=2000)
        await site.policies.note_simulation(LOCAL_ADMIN, spec)
        await site.policies.put(LOCAL_ADMIN, "night", PolicySpec(text=text))
        await site.policies.enable(LOCAL_ADMIN, "night")
        await site.until("capped", lambda: site.caps == [250.0] * NODES)
        told = await site.cap({compute(site)[0]: 200})
        assert isinstance(told, dict)
        assert told["nids"][0]["err_msg"] == "caps are set by the power policy night"
        with pytest.raises(Conflict, match="runs now"):
            await site.policies.delete(LOCAL_ADMIN, "night")
        await site.policies.disable(LOCAL_ADMIN, "night")
        await site.policies.delete(LOCAL_ADMIN, "night")
        assert site.caps == [250.0] * NODES, "the last caps stay"
        written = [(one.action, one.author) for one in await site.service.ledger.latest(20)]
        for action in ("simulate", "put", "enable", "disable", "delete"):
            assert (f"power-policy.{action}", LOCAL_ADMIN.name) in written


async def test_a_successor_goes_on_from_the_ledger_and_raises_nothing_by_itself(tmp_path: Path) -> None:
    store = MemoryStore()
    async with site_of(tmp_path, PowerSettings(limit=LIMIT), store=store) as site:
        await site.until("lowered", lambda: settled(site))
        await site.site.stop()
        before, site.peak = site.caps, 0.0
        again = SitePower(
            site.service, site.columns, site.sender, RunningJobs(site.series, site.intervals), site.queue,
            site.book, PowerSettings(limit=LIMIT),
        )  # fmt: skip
        await again.start()
        try:
            await site.until(
                "taken over", lambda: again.view().allowed is not None and again.view().allowed == site.total
            )
            assert site.caps == before
            assert site.peak == 0.0, "no cap was set"
        finally:
            await again.stop()


async def test_without_a_limit_caps_are_set_as_they_are_asked_for(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings()) as site:
        uids = site.service.registry.uids[site.service.registry.select(",".join(compute(site)))]
        change = CapChange(control="node", uids=uids, watts=np.full(len(uids), 2000.0))
        assert await site.capmc.of(LOCAL_ADMIN).set_caps([change]) == {}
        assert site.caps == [2000.0] * NODES


async def test_the_idle_pool_stops_nodes_by_desires_and_starts_only_those_again(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings()) as site:
        names = compute(site)
        mine = site.service.registry.select(names[0])
        await site.service.edits.set_desires(mine, {"power": "off"}, (), "ada")
        await site.until("hers is off", lambda: not site.machine.on(names[0]))

        def on() -> int:
            return sum(site.machine.on(name) for name in names)

        await site.run("few", "limit: 30kW\nevery: 1s\nidle-pool: {low: 1, high: 3, after: 1s}")
        await site.until("three are left", lambda: on() == 3)
        stopped = next(name for name in names[1:] if not site.machine.on(name))
        [desire] = [
            one
            for one in site.service.registry.desires.of(site.service.registry.index_of(stopped))
            if one.variable == "power"
        ]
        assert (desire.values, desire.author) == (("off",), "policy:few")
        await site.until("and seen to be", lambda: site.site.view().allowed == 3 * MOST)
        await site.run("many", "limit: 30kW\nevery: 1s\nidle-pool: {low: 8, high: 8, after: 1s}")
        await site.until("all of its own are on again", lambda: on() == 7)
        assert not site.machine.on(names[0]), "what a person wants off stays off"
