"""Two controllers over one store: one keeps the power of the whole machine, the other asks it, and goes on after it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.redfish.power import LEAST, MOST
from support.etcd_cluster import EtcdCluster
from support.served_machine import LIMIT, NODES, Controller, served_machine, settled

pytestmark = [pytest.mark.server, pytest.mark.slow]

HEAD = f"limit: {LIMIT}W\nevery: 1s\nnodes: {{idle: 90W, boot: 200W, low: {LEAST}W, high: {MOST}W}}\n"
COMPUTE = [node.name for node in simulated_nodes(NODES) if node.role == "compute"]


async def leaders(controller: Controller) -> list[str]:
    """Who leads, shard by shard."""
    return [shard["leader"] for shard in (await controller.ask("GET", "/v1/status"))["shards"]]


async def led_by(controller: Controller, *names: str) -> list[str]:
    """Wait until just these lead; who leads, shard by shard."""
    async with asyncio.timeout(60):
        while set(found := await leaders(controller)) != set(names):  # noqa: ASYNC110 (another process has no event)
            await asyncio.sleep(0.5)
    return found


async def test_one_keeps_the_power_of_all_and_the_other_asks_it_and_goes_on_when_it_dies(
    tmp_path: Path, etcd_cluster: EtcdCluster
) -> None:
    async with served_machine(tmp_path) as (machine, _):
        url = etcd_cluster.url("two-power")
        both = {name: Controller(machine, tmp_path / name, store=url, name=name) for name in ("c1", "c2")}
        try:
            await both["c1"].start()
            await both["c1"].until("lowered under the limit", settled)
            machine.peak = 0.0
            await both["c2"].start()
            await both["c2"].until("it answers", bool)
            await led_by(both["c2"], "c1", "c2")
            keeper = (await both["c2"].site())["controller"]
            kept, other = both[keeper], both["c2" if keeper == "c1" else "c1"]

            def is_low(site: dict[str, Any]) -> bool:
                return settled(site) and site["controller"] == keeper and machine.caps_of_capped == {220.0}

            # Whoever is told of a policy: one of them has the caps of all nodes set.
            await other.run("low", f"{HEAD}cap: 220W")
            await kept.until("all are low, the other's nodes too", is_low)
            assert (await other.site())["allowed"] is None, "the other keeps no ledger"

            await other.ask("POST", "/v1/power/policies/low/disable")
            caps = {"nids": [{"nid": 10, "controls": [{"name": "node", "val": 230}]}]}
            refusal = f"the site's power is kept by another controller, {keeper}"
            async with asyncio.timeout(60):  # until it has heard of the node's hardware
                while refusal not in str(told := await other.ask("POST", "/capmc/set_power_cap", caps)):
                    assert told["nids"], "nobody sets caps past the one that keeps them"
                    await asyncio.sleep(0.5)
            await kept.until("a scheduler is to ask the first", settled)
            assert (await kept.ask("POST", "/capmc/set_power_cap", caps))["e"] == 0

            def on() -> int:
                return int(machine.on[[machine.nodes.index[name] for name in COMPUTE]].sum())

            await other.ask("POST", "/v1/desires", {"select": ",".join(COMPUTE), "set": {"power": "off"}})
            await other.until("all are off", lambda _: on() == 0)
            await other.ask("POST", "/v1/desires", {"select": ",".join(COMPUTE), "set": {"power": "on"}})
            await other.until("each started its own, having asked", lambda _: on() == len(COMPUTE))
            machine.process, machine.fatal = kept.process, 2
            await other.run("high", f"{HEAD}cap: 2kW")
            assert await kept.ended() == -signal.SIGKILL
            machine.lost = False
            await other.until("the other keeps it now", lambda site: site["allowed"] is not None)
            await led_by(other, *({"c1", "c2"} - {keeper}))
            await other.run("low", f"{HEAD}cap: 220W")
            # What was under way when the first died is looked at once it can no longer take effect: after a minute.
            await other.until("all are low again", lambda _: machine.caps_of_capped == {220.0})
            assert machine.peak <= LIMIT, "at no instant"
        finally:
            for one in both.values():
                await one.stop()
