"""kill -9 of the controller in the middle of a rebalance: the caps in force never add up to more than the limit.

The simulated machine is in this process and looks at the sum of its caps at every change; the controller is a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from strata.virtual.bmc_server import BmcServer
from strata.virtual.faults import Timing
from strata.virtual.nodes import SimNodes
from strata.virtual.plant import Plant
from strata.virtual.tree_power import LEAST, MOST
from support.capmc_site import READY

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODES = 60
LIMIT = NODES * 400
POLICY = "limit: {limit}W\ncap: {cap}W\nevery: 1s\nnodes: {{idle: 90W, boot: 200W, low: {low}W, high: {high}W}}\n"


class Machine:
    """Simulated nodes that watch the sum of their caps, and end the controller at the ``fatal``-th change from now."""

    def __init__(self) -> None:
        self.nodes = SimNodes(NODES, timing=Timing(scale=0))
        self.server = BmcServer(self.nodes, plant=Plant(self.nodes, on=True))
        self.peak = 0.0
        self.changes = 0
        self.fatal = -1
        self.process: asyncio.subprocess.Process | None = None
        set_cap = self.nodes.set_cap

        def watched(idx: np.ndarray, watts: float | None) -> None:  # type: ignore[type-arg]
            set_cap(idx, watts)
            self.changes += 1
            self.peak = max(self.peak, self.total)
            self.fatal -= 1
            if self.fatal == 0 and self.process is not None:
                os.kill(self.process.pid, signal.SIGKILL)

        self.nodes.set_cap = watched  # type: ignore[method-assign, assignment]

    @property
    def total(self) -> float:
        """Watts that the nodes may draw now."""
        return float(np.minimum(self.nodes.caps, MOST).sum())

    @property
    def caps_of_capped(self) -> set[float]:
        """The caps that there are: some nodes (for logins, say) have none, and never get one."""
        return set(self.nodes.caps[np.isfinite(self.nodes.caps)].tolist())


class Controller:
    """``strata serve`` as a process of its own."""

    def __init__(self, machine: Machine, state: Path) -> None:
        self._machine = machine
        self._state = state
        self._log = state.parent / "controller.log"

    async def start(self) -> None:
        arguments = (
            "serve", "--state-dir", self._state, "--no-tls", "--no-consoles", "--simulator",
            self._machine.server.address, "--simulated", NODES, "--site-power-limit", f"{LIMIT}W",
        )  # fmt: skip
        with self._log.open("ab") as log:
            self._machine.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "strata.cli", *map(str, arguments), stdin=asyncio.subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip

    async def ended(self) -> int:
        assert self._machine.process is not None
        return await self._machine.process.wait()

    async def stop(self) -> None:
        process = self._machine.process
        if process is not None and process.returncode is None:
            process.terminate()
            await process.wait()

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """A request on the local socket; its reply."""
        connector = aiohttp.UnixConnector(str(self._state / "admin.sock"))
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.request(method, f"http://strata{path}", json=body) as reply,
        ):
            text = await reply.text()
            assert reply.ok, (path, reply.status, text)
            return json.loads(text) if text else None

    async def site(self) -> dict[str, Any]:
        """Where the site stands; empty: nobody answers yet."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            return (await self.ask("GET", "/v1/power/policies"))["site"]  # type: ignore[no-any-return]
        return {}

    async def until(self, what: str, holds: Callable[[dict[str, Any]], bool], limit: float = 120.0) -> None:
        site: dict[str, Any] = {}
        try:
            async with asyncio.timeout(limit):
                while not holds(site := await self.site()):  # noqa: ASYNC110 (another process has no event)
                    await asyncio.sleep(0.2)
        except TimeoutError:
            pytest.fail(f"not within {limit:g} s: {what}; {site}\n{self._log.read_text()[-2000:]}")


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    found = Machine()
    found.nodes.put(found.nodes.all, now=found.server.clock(), **READY)
    await found.server.start()
    yield found
    await found.server.stop()


def settled(site: dict[str, Any]) -> bool:
    return bool(site) and site["allowed"] is not None and site["over"] == 0 and site["in_flight"] == 0


async def test_the_limit_holds_when_the_controller_dies_in_the_middle_of_a_rebalance(
    machine: Machine, tmp_path: Path
) -> None:
    controller = Controller(machine, tmp_path / "state")
    await controller.start()
    try:
        await controller.until("lowered under the limit", settled)
        assert machine.total <= LIMIT
        machine.peak = 0.0
        for name, cap in (("low", 220), ("high", 2000)):
            text = POLICY.format(limit=LIMIT, cap=cap, low=LEAST, high=MOST)
            body = {"text": text, "without_rehearsal": "a test of what no rehearsal shows"}
            await controller.ask("PUT", f"/v1/power/policies/{name}", body)
        await controller.ask("POST", "/v1/power/policies/low/enable")
        await controller.until("all are low", lambda site: settled(site) and machine.caps_of_capped == {220.0})
        # Now everybody wants more than there is; the controller dies while it hands that out.
        machine.fatal = 2
        await controller.ask("POST", "/v1/power/policies/high/enable")
        assert await controller.ended() == -signal.SIGKILL
        last = machine.total
        assert last <= LIMIT and len(machine.caps_of_capped) > 1, "it was in the middle of it"
        await asyncio.sleep(1)
        assert machine.total == last, "on loss of control the last caps stay"
        await controller.start()
        await controller.until("a successor goes on", lambda site: settled(site) and site["policy"] == "high")
        await controller.ask("POST", "/v1/power/policies/low/enable")
        await controller.until("all are low again", lambda site: settled(site) and machine.caps_of_capped == {220.0})
        assert machine.peak <= LIMIT, "at no instant"
    finally:
        await controller.stop()
