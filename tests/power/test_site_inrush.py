"""Boot inrush on a simulated machine: whoever starts nodes, no supply feels more of them at once than a policy says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.sealing import Seal
from strata.hardware.bmc.operations import BmcOperations, BmcOrder
from strata.power.capmc.applets import APPLETS
from strata.power.capmc.request import Ask
from strata.power.settings import PowerSettings
from support.power_site import ASK_AGAIN, Site, compute, settled, site_of

pytestmark = pytest.mark.slow

POLICY = "limit: 100kW\nevery: 1s\ninrush: {{node: 200W, pdu: 400W, lasts: {lasts}}}{more}"
AT_ONCE = 2
NEAR = 1.0
"""Seconds: half of what a start lasts here. A machine that stalls loses some between the leave and the switch."""


async def strips(site: Site) -> dict[str, str]:
    """Put the nodes behind two PDUs, in turns."""
    found = {name: f"strip-{number % 2}" for number, name in enumerate(compute(site))}
    for name, strip in found.items():
        node = site.service.registry.node(name)
        spec = msgspec.structs.replace(node, labels={**node.labels, "pdu": strip})
        await site.service.edits.replace_node(name, spec, "test")
    await site.service.settled(await site.service.controller.store.revision())
    return found


def on(site: Site) -> list[str]:
    return [name for name in compute(site) if site.machine.on(name)]


def most_at_once(site: Site, behind: dict[str, str], seconds: float) -> int:
    """The most that were switched on behind one strip within ``seconds``, as the nodes saw it."""
    nodes = site.machine.nodes
    rows = nodes.effects.rows
    starts = rows[(rows["mutation"] == nodes.effects.mutations.index("power-on")) & ~rows["idle"]]
    most = 0
    for row in starts:
        near = starts[(starts["time"] > row["time"] - seconds) & (starts["time"] <= row["time"])]
        most = max(most, *Counter(behind[nodes.names[node]] for node in near["node"].tolist()).values())
    return most


async def test_nobody_starts_more_nodes_at_once_behind_a_strip_than_the_policy_allows(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(), ready=False, layer=ASK_AGAIN) as site:
        behind, names = await strips(site), compute(site)
        await site.run("soft-start", POLICY.format(lasts="2s", more=""))
        await site.until("seen off", lambda: settled(site) and site.site.view().allowed == 0)
        # The engine and a scheduler, both at the same time.
        nodes = site.service.registry.select(",".join(names[:4]))
        await site.service.edits.set_desires(nodes, {"power": "on"}, (), "test")
        nids = [int(name[1:]) for name in names[4:]]
        reply = await APPLETS["node_on"].answer(
            site.capmc.of(LOCAL_ADMIN), Ask(applet="node_on", body={"nids": nids}, shasta=False)
        )
        assert msgspec.json.decode(reply.body)["e"] == 0
        await site.until("all are on", lambda: len(on(site)) == len(names))
        assert most_at_once(site, behind, seconds=NEAR) <= AT_ONCE


async def test_a_node_whose_system_runs_makes_way_for_the_next(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(), ready=False, layer=ASK_AGAIN) as site:
        behind, names = await strips(site), compute(site)
        await site.run("soft-start", POLICY.format(lasts="1h", more=""))
        await site.until("seen off", lambda: settled(site) and site.site.view().allowed == 0)
        nodes = site.service.registry.select(",".join(names))
        await site.service.edits.set_desires(nodes, {"power": "on"}, (), "test")
        await site.until("two of each strip are on", lambda: len(on(site)) == AT_ONCE * 2)
        assert Counter(behind[name] for name in on(site)) == {"strip-0": AT_ONCE, "strip-1": AT_ONCE}
        waiting = site.service.registry.index_of(next(name for name in names if name not in on(site)))
        await site.until("told why", lambda: "lets no more nodes start at once" in str(site.service.view.why(waiting)))
        by_hand = BmcOperations(site.service, site.machine.bmcs.open, Seal([b"k" * 32]))
        refused = await by_hand.carry_out(BmcOrder(what="power", action="on", force=True), np.array([waiting]))
        [why] = refused.values()
        assert "soft-start lets no more nodes start at once behind its cabinet or PDU" in why
        machine = site.machine
        started = np.array([machine.nodes.index[name] for name in on(site)])
        machine.nodes.put(started, now=machine.server.clock(), os="up")
        site.service.controller.look_at(nodes)
        await site.until("the others follow", lambda: len(on(site)) == len(names))


async def test_the_idle_pool_keeps_to_it_too(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(), layer=ASK_AGAIN) as site:
        behind = await strips(site)
        pool = "\nidle-pool: {{low: {low}, high: {low}, after: 1s}}"
        await site.run("small", POLICY.format(lasts="2s", more=pool.format(low=0)))
        await site.until("all are off", lambda: not on(site) and site.site.view().allowed == 0)
        await site.run("large", POLICY.format(lasts="2s", more=pool.format(low=8)))
        await site.until("all are on", lambda: len(on(site)) == 8)
        assert most_at_once(site, behind, seconds=NEAR) <= AT_ONCE
