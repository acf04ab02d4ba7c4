"""From an agent's report to a fact, and how often nodes are looked at meanwhile.

    .venv/bin/python bench/tellings.py --json

A site with ``--nodes`` agents that report and nothing else: ``report_to_fact_ms`` is the time from a report's arrival
to the fact (median, and p99), one report at a time. ``looks_per_node_minute`` counts, of all drivers, the looks at
nodes whose agents report something new every minute, and ``idle_looks_per_node_minute`` those at the others, whose
agents only say that they are there. ``--hints``: reports have nodes looked at, as before they were believed, for
comparison.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from measure import Figures, arguments, main, percentile, say, scratch, show

from strata.core.column import Column
from strata.core.driver import Batch
from strata.hardware.alerts.service import look_soon
from strata.provisioning.agents.wire import Exchange

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.agent_site import AgentSite, agent_site

_SAMPLES = 200


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--reporting", type=int, default=4, help="one node in this many has news each minute")
    parser.add_argument("--minutes", type=int, default=2, help="for which looks are counted")
    parser.add_argument("--hints", action="store_true", help="reports only have nodes looked at")
    options = parser.parse_args()
    with scratch() as directory:
        figures = asyncio.run(
            _measure(
                directory / "s",
                options.nodes,
                options.reporting,
                options.minutes,
                hints=options.hints,
                quiet=options.json,
            )
        )
    show(figures, as_json=options.json)


class _Looks:
    """Counts how often drivers look at each node."""

    def __init__(self) -> None:
        self.nodes: Counter[str] = Counter()

    def count(self, driver: Any) -> None:
        observe = driver.observe

        async def counted(variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
            self.nodes.update(batch.names)
            found: Mapping[str, Column] = await observe(variables, batch)
            return found

        driver.observe = counted


async def _measure(directory: Path, nodes: int, reporting: int, minutes: int, *, hints: bool, quiet: bool) -> Figures:
    async with agent_site(directory, nodes=nodes) as site:
        controller = site.service.controller
        looks = _Looks()
        for driver in controller.executor._drivers.values():
            looks.count(driver)
        if hints:
            look = look_soon(controller)
            site.hub.changed[:] = [lambda names: look(list(names))]
        names = [node.name for node in site.service.registry.roster.nodes if node is not None]
        agents = {name: _Agent(site, name) for name in names}
        for agent in agents.values():
            await agent.report("idle")
        while any(site.fact(name, "personality") != "idle" for name in names):
            await controller.stepped()
        await asyncio.sleep(3.0)  # until what their coming had looked at anew is seen
        say("reports", quiet=quiet)
        times = []
        for name in (names * _SAMPLES)[:_SAMPLES]:
            await asyncio.sleep(random.uniform(0.1, 0.2))  # reports that come together are told together
            times.append(await agents[name].timed())
        times.sort()
        beating = asyncio.create_task(_beat(agents))
        await asyncio.sleep(5.0)
        say("looks", quiet=quiet)
        looks.nodes.clear()
        begun, some = time.monotonic(), names[::reporting]
        for count, name in enumerate(some * minutes):
            await asyncio.sleep(max(0.0, begun + 60.0 * count / len(some) - time.monotonic()))
            await agents[name].change()
        await asyncio.sleep(max(0.0, begun + 60.0 * minutes - time.monotonic()))
        beating.cancel()
        busy = sum(looks.nodes[name] for name in some) / len(some) / minutes
        idle = (looks.nodes.total() - busy * len(some) * minutes) / (nodes - len(some)) / minutes
        return {
            "nodes": nodes,
            "mode": "hints" if hints else "tellings",
            "report_to_fact_ms": 1000 * percentile(times, 0.5),
            "report_to_fact_p99_ms": 1000 * percentile(times, 0.99),
            "idle_looks_per_node_minute": idle,
            "looks_per_node_minute": busy,
        }


async def _beat(agents: Mapping[str, _Agent]) -> None:
    """Everybody speaks every few seconds, as held agents do, with nothing new to say."""
    while True:
        for agent in agents.values():
            await agent.report(agent.word)
        await asyncio.sleep(10.0)


class _Agent:
    def __init__(self, site: AgentSite, name: str) -> None:
        self._site = site
        self._name = name
        self._seq = 0
        self.word = "idle"

    async def report(self, word: str) -> None:
        """Say it to the hub."""
        self.word = word
        self._seq += 1
        state = {"profile": "default@abc", "set": {"state": word}}
        raw = msgspec.Raw(msgspec.json.encode(state))
        await self._site.hub.exchange(
            self._name, Exchange(generation=1, boot_id="b", seq=self._seq, wait=0.0, state=raw)
        )

    async def change(self) -> None:
        """Say something new."""
        await self.report("error" if self.word != "error" else "update")

    async def timed(self) -> float:
        """Seconds until something new is a fact."""
        begun = time.perf_counter()
        await self.change()
        while self._site.fact(self._name, "personality") != self.word:
            await self._site.service.controller.stepped()
        return time.perf_counter() - begun


if __name__ == "__main__":
    main(run)
