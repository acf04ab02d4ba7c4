"""Each kind of policy on a running service over simulated hardware, told what it has to know through the API alone.

The hardware is in this process and looks, at every change of a cap and every start of a node, at what it may draw.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.redfish.power import LEAST, MOST
from support.served_machine import LIMIT, NODES, Controller, Machine, served_machine, settled

pytestmark = [pytest.mark.server, pytest.mark.slow]

HEAD = f"limit: {LIMIT}W\nevery: 1s\nnodes: {{idle: 90W, boot: 200W, low: {LEAST}W, high: {MOST}W}}\n"
COMPUTE = [node.name for node in simulated_nodes(NODES) if node.role == "compute"]


async def started(controller: Controller, machine: Machine) -> None:
    await controller.start()
    await controller.until("lowered under the limit", settled)
    machine.peak = 0.0
    machine.changes.clear()


async def runs(controller: Controller, job: str, nodes: Sequence[str], since: float = 600.0) -> None:
    event = {"what": "start", "job": job, "user": "ada", "nodes": ",".join(nodes), "time": time.time() - since}
    await controller.ask("POST", "/v1/power/jobs", {"events": [event]})


async def waits(controller: Controller, *waiting: dict[str, Any], running: Sequence[dict[str, Any]] = ()) -> None:
    await controller.ask("POST", "/v1/power/queue", {"waiting": waiting, "running": running})


async def test_the_idle_pool_stops_what_nobody_needs_and_starts_what_a_waiting_job_does(tmp_path: Path) -> None:
    async with served_machine(tmp_path) as (machine, controller):
        await started(controller, machine)
        base = {"name": "base", "select": ",".join(COMPUTE), "set": {"power": "on", "os": "up"}}
        await controller.ask("PUT", "/v1/documents/base", base)
        busy = COMPUTE[:4]
        await runs(controller, "1", busy)
        machine.nodes.jobs.run(machine.nodes.all[machine.rows(busy)], until=float("inf"))

        def on() -> int:
            return int(machine.on[machine.rows(COMPUTE)].sum())

        await controller.run("pool", HEAD + "idle-pool: {low: 3, high: 6, after: 1s}")
        await controller.until("six idle ones are left", lambda _: on() == len(busy) + 6)
        assert machine.on[machine.rows(busy)].all(), "who works is left alone"
        await waits(controller, {"job": "2", "nodes": 20, "user": "bob"})
        await controller.until("there are twenty for it", lambda _: on() >= len(busy) + 20)
        await waits(controller)
        await controller.until("nobody waits any more", lambda _: on() == len(busy) + 6)
        assert machine.peak <= LIMIT, "at no instant"


async def test_nodes_go_to_the_queue_where_jobs_wait_and_take_its_cap(tmp_path: Path) -> None:
    async with served_machine(tmp_path) as (machine, controller):
        await started(controller, machine)
        await runs(controller, "1", COMPUTE[:10])
        policy = HEAD + "queues:\n  200W: {cap: 200W, least: 20}\n  700W: {cap: 700W}\n"
        await controller.run("queues", policy)
        every = len(COMPUTE)
        await controller.until(
            "all serve the first", lambda site: settled(site) and machine.caps(COMPUTE) == [200.0] * every
        )
        await waits(controller, {"job": "2", "nodes": 12, "queue": "700W"}, {"job": "3", "nodes": 5, "queue": "200W"})
        await controller.until(
            "twelve serve the other", lambda site: settled(site) and machine.caps(COMPUTE).count(700.0) == 12
        )
        assert machine.caps(COMPUTE[:10]) == [200.0] * 10, "whose job runs keeps its cap"
        await waits(controller, {"job": "3", "nodes": every, "queue": "200W"})
        await controller.until("and go back", lambda site: settled(site) and machine.caps(COMPUTE) == [200.0] * every)
        assert machine.peak <= LIMIT, "at no instant"


async def test_caps_follow_what_jobs_draw_down_while_others_wait_and_up_when_nobody_does(tmp_path: Path) -> None:
    """The rules of the over-provisioned machine; idle simulated nodes draw about 250 W each."""
    async with served_machine(tmp_path) as (machine, controller):
        await started(controller, machine)
        first, second, young = COMPUTE[:20], COMPUTE[20:40], COMPUTE[40:44]
        await runs(controller, "1", first)
        await runs(controller, "2", second)
        before = machine.caps(COMPUTE)
        over = HEAD + "over-provisioned: {mood: by-demand, rise: 70W, fall: 50W, quiet: 3s}"
        await waits(controller, {"job": "9", "nodes": 10})
        await controller.run("over", over)
        await controller.until(
            "what they do not draw is taken away",
            lambda site: settled(site) and max(machine.caps(first + second)) < 320,
        )
        falls = [was - now for _, was, now in machine.changes]
        assert max(falls) <= 50 and min(falls) > 0, "step by step, and nobody is raised"
        drawn = machine.nodes.watts(machine.nodes.all, machine.server.clock())
        for job in (first, second):
            [cap] = set(machine.caps(job))  # all nodes of a job have one
            assert cap > drawn[machine.rows(job)].mean(), "and none of it is taken that they need"
        assert machine.caps(COMPUTE[44:]) == before[44:], "who runs nothing keeps its cap"
        await runs(controller, "3", young, since=0.0)
        machine.changes.clear()
        # Nobody waits, the user of the second job wants no more than 300 W, and the first is about to end.
        soon = [{"job": "1", "ends": time.time() + 1}, {"job": "2", "cap": 300}]
        await waits(controller, running=soon)
        await controller.until(
            "raised up to the user's cap", lambda site: settled(site) and set(machine.caps(second)) == {300.0}
        )
        raised = next(place for place, (_, _, now) in enumerate(machine.changes) if now == 300)
        since = {node for node, _, _ in machine.changes[raised:]}
        assert not since.intersection(machine.rows(first)), "at its end a job is left alone"
        await waits(controller)
        await controller.until("raised as far as the limit goes", lambda site: machine.total > LIMIT - 2 * 70 * 20)
        assert max(now - was for _, was, now in machine.changes) <= 70
        assert machine.peak <= LIMIT, "at no instant"
