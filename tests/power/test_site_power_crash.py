"""kill -9 of the controller in the middle of a rebalance: the caps in force never add up to more than the limit.

The simulated machine is in this process and looks at the sum of its caps at every change; the controller is a real one.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.redfish.power import LEAST, MOST
from support.served_machine import LIMIT, NODES, Controller, Machine, served_machine, settled

pytestmark = [pytest.mark.server, pytest.mark.slow]

HEAD = f"limit: {LIMIT}W\nevery: 1s\nnodes: {{idle: 90W, boot: 200W, low: {LEAST}W, high: {MOST}W}}\n"
COMPUTE = [node.name for node in simulated_nodes(NODES) if node.role == "compute"]


async def started(machine: Machine, controller: Controller) -> None:
    await controller.start()
    await controller.until("lowered under the limit", settled)
    assert machine.total <= LIMIT
    machine.peak = 0.0


async def died(machine: Machine, controller: Controller) -> None:
    """It has, and nothing happens to the caps without it."""
    assert await controller.ended() == -signal.SIGKILL
    last = machine.total
    assert last <= LIMIT and len(machine.caps_of_capped) > 1, "it was in the middle of it"
    await asyncio.sleep(1)
    assert machine.total == last, "on loss of control the last caps stay"


async def test_the_limit_holds_when_the_controller_dies_in_the_middle_of_a_rebalance(tmp_path: Path) -> None:
    async with served_machine(tmp_path) as (machine, controller):
        await started(machine, controller)
        await controller.run("low", f"{HEAD}cap: 220W")
        await controller.until("all are low", lambda site: settled(site) and machine.caps_of_capped == {220.0})
        # Now everybody wants more than there is; the controller dies while it hands that out.
        machine.fatal = 2
        await controller.run("high", f"{HEAD}cap: 2kW")
        await died(machine, controller)
        await controller.start()
        await controller.until("a successor goes on", lambda site: settled(site) and site["policy"] == "high")
        await controller.run("low", f"{HEAD}cap: 220W")
        await controller.until("all are low again", lambda site: settled(site) and machine.caps_of_capped == {220.0})
        assert machine.peak <= LIMIT, "at no instant"


async def test_it_holds_when_the_controller_of_an_over_provisioned_machine_dies_while_it_raises_jobs(
    tmp_path: Path,
) -> None:
    async with served_machine(tmp_path) as (machine, controller):
        await started(machine, controller)
        events = [
            {"what": "start", "job": str(number), "nodes": ",".join(COMPUTE[number::4]), "time": time.time() - 600}
            for number in range(4)
        ]
        await controller.ask("POST", "/v1/power/jobs", {"events": events})
        await controller.ask("POST", "/v1/power/queue", {"waiting": [{"job": "9", "nodes": 1}]})
        await controller.run("over", f"{HEAD}over-provisioned: {{mood: by-demand, rise: 90W, fall: 90W, quiet: 1s}}")
        await controller.until("lowered for those that wait", lambda _: machine.total < 0.85 * LIMIT)
        machine.fatal = 5
        await controller.ask("POST", "/v1/power/queue", {})
        await died(machine, controller)
        await controller.start()
        await controller.until("a successor raises them", lambda site: machine.total > LIMIT - 90 * len(COMPUTE) / 4)
        assert machine.peak <= LIMIT, "at no instant"
