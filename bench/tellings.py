"""From a report of an agent, or an event of a BMC, to a fact; and how often nodes are looked at meanwhile.

    .venv/bin/python bench/tellings.py --json
    .venv/bin/python bench/tellings.py --events --json

A site with ``--nodes`` nodes. ``report_to_fact_ms`` is the time from the arrival of an agent's report to the fact
(median, and p99), one at a time; with ``--events``, ``event_to_fact_ms`` that of a BMC's push that its node was
switched on or off. ``looks_per_node_minute`` counts, of all drivers, the looks at nodes that tell something new every
minute, and ``idle_looks_per_node_minute`` those at the others. ``--hints``: what is told has nodes looked at, as before
it was believed, for comparison; with ``--events`` the BMCs are then asked over sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from measure import Figures, arguments, main, percentile, say, scratch, show

from strata.core.column import Column
from strata.core.driver import Batch
from strata.fleet.fleet import Fleet
from strata.hardware.events.hub import EventHub, EventSettings
from strata.provisioning.agents.wire import Exchange
from strata.virtual.bmc.server import BmcServer

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.agent_site import AgentSite, agent_site
from support.told_power import told_power

_SAMPLES = 200


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--reporting", type=int, default=4, help="one node in this many has news each minute")
    parser.add_argument("--minutes", type=float, default=2, help="for which looks are counted")
    parser.add_argument("--samples", type=int, default=_SAMPLES, help="tellings that are timed")
    parser.add_argument("--events", action="store_true", help="BMCs tell of power, instead of agents")
    parser.add_argument("--hints", action="store_true", help="what is told only has nodes looked at")
    options = parser.parse_args()
    with scratch() as directory:
        figures = asyncio.run(_measure(directory / "s", options))
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


class Teller(Protocol):
    """Something that tells of one node."""

    async def change(self) -> None:
        """Say something new."""

    def known(self) -> bool:
        """Whether that is a fact."""

    async def beat(self) -> None:
        """Say that there is nothing new."""


class _Site(Protocol):
    """What tells, and to whom."""

    fleet: Fleet
    looks: _Looks
    tellers: Mapping[str, Teller]


async def _measure(directory: Path, options: Any) -> Figures:
    opened = _bmcs if options.events else _agents
    async with opened(directory, options.nodes, hints=options.hints) as site:
        controller, tellers, names = site.fleet.controller, site.tellers, list(site.tellers)
        await asyncio.sleep(3.0)  # until what their coming had looked at anew is seen
        say("tellings", quiet=options.json)
        times = []
        for name in (names * options.samples)[: options.samples]:
            await asyncio.sleep(random.uniform(0.1, 0.2))  # what comes together is told together
            begun = time.perf_counter()
            await tellers[name].change()
            while not tellers[name].known():
                await controller.stepped()
            times.append(time.perf_counter() - begun)
        times.sort()
        beating = asyncio.create_task(_beat(tellers))
        await asyncio.sleep(5.0)
        say("looks", quiet=options.json)
        site.looks.nodes.clear()
        begun, some, minutes = time.monotonic(), names[:: options.reporting], options.minutes
        for count in range(int(len(some) * minutes)):
            await asyncio.sleep(max(0.0, begun + 60.0 * count / len(some) - time.monotonic()))
            await tellers[some[count % len(some)]].change()
        await asyncio.sleep(max(0.0, begun + 60.0 * minutes - time.monotonic()))
        beating.cancel()
        busy = sum(site.looks.nodes[name] for name in some) / len(some) / minutes
        idle = (site.looks.nodes.total() - busy * len(some) * minutes) / (options.nodes - len(some)) / minutes
        what = "event" if options.events else "report"
        return {
            "nodes": options.nodes,
            "mode": "hints" if options.hints else "tellings",
            f"{what}_to_fact_ms": 1000 * percentile(times, 0.5),
            f"{what}_to_fact_p99_ms": 1000 * percentile(times, 0.99),
            "idle_looks_per_node_minute": idle,
            "looks_per_node_minute": busy,
        }


async def _beat(tellers: Mapping[str, Teller]) -> None:
    """Everybody speaks every few seconds, as held agents do, with nothing new to say."""
    while True:
        for teller in tellers.values():
            await teller.beat()
        await asyncio.sleep(10.0)


class _Opened:
    """A site, once it is settled."""

    def __init__(self, fleet: Fleet, tellers: Mapping[str, Teller]) -> None:
        self.fleet = fleet
        self.tellers = tellers
        self.looks = _Looks()
        for driver in fleet.controller.driver_calls._drivers.values():
            self.looks.count(driver)


# -- agents


@contextlib.asynccontextmanager
async def _agents(directory: Path, nodes: int, *, hints: bool) -> AsyncIterator[_Site]:
    """A site with agents that report and nothing else."""
    async with agent_site(directory, nodes=nodes) as site:
        names = [node.name for node in site.service.registry.nodes if node is not None]
        agents = {name: _Agent(site, name) for name in names}
        opened = _Opened(site.service, agents)
        if hints:
            site.hub.changed[:] = [site.service.controller.look_soon]
        for agent in agents.values():
            await agent.report("idle")
        while any(site.fact(name, "personality") != "idle" for name in names):
            await site.service.controller.stepped()
        yield opened


class _Agent:
    def __init__(self, site: AgentSite, name: str) -> None:
        self._site = site
        self._name = name
        self._seq = 0
        self._word = "idle"

    async def report(self, word: str) -> None:
        """Say it to the hub."""
        self._word = word
        self._seq += 1
        state = {"profile": "default@abc", "set": {"state": word}}
        raw = msgspec.Raw(msgspec.json.encode(state))
        await self._site.hub.exchange(
            self._name, Exchange(generation=1, boot_id="b", seq=self._seq, wait=0.0, state=raw)
        )

    async def change(self) -> None:
        """Say something new."""
        await self.report("error" if self._word != "error" else "update")

    def known(self) -> bool:
        """Whether that is a fact."""
        return self._site.fact(self._name, "personality") == self._word

    async def beat(self) -> None:
        """Say the same again."""
        await self.report(self._word)


# -- BMCs


@contextlib.asynccontextmanager
async def _bmcs(directory: Path, nodes: int, *, hints: bool) -> AsyncIterator[_Site]:
    """A site with simulated BMCs behind sockets. Nobody polls them but the engine, for power."""
    directory.mkdir()
    quiet = {"mine": lambda _: False, "settings": EventSettings(streams=0)}
    async with told_power(directory, nodes, scale=0, believed=not hints, **quiet) as (server, fleet, hub, _):
        power = fleet.controller.engine.table.columns["power"]

        def fact(name: str) -> str:
            return power.words[power.fact[fleet.registry.index_of(name)]]

        names = server.nodes.names
        tellers = {name: _Bmc(server, hub, name, place, partial(fact, name)) for place, name in enumerate(names)}
        while any(fact(name) != "off" for name in names):
            await fleet.controller.stepped()
        yield _Opened(fleet, tellers)


class _Bmc:
    def __init__(self, server: BmcServer, hub: EventHub, name: str, place: int, fact: Callable[[], str]) -> None:
        self._sim = server.nodes
        self._hub = hub
        self._token = hub.inbox.token(server.url(name))
        self._place = np.array([place], dtype=np.int64)
        self._fact = fact
        self._word = "off"

    async def change(self) -> None:
        """The node is switched, and its BMC pushes that."""
        self._word = "on" if self._word == "off" else "off"
        self._sim.put(self._place, now=0.0, power=self._word)
        record = {
            "MessageId": f"ResourceEvent.1.3.ResourcePowered{self._word.capitalize()}",
            "EventTimestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "OriginOfCondition": {"@odata.id": "/redfish/v1/Systems/1"},
        }
        self._hub.inbox.receive(self._token, json.dumps({"Events": [record]}).encode())

    def known(self) -> bool:
        """Whether that is a fact."""
        return self._fact() == self._word

    async def beat(self) -> None:
        """BMCs say nothing where nothing happens."""


if __name__ == "__main__":
    main(run)
