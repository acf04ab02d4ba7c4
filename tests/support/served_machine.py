"""``strata serve`` as a process of its own, over simulated nodes in this one.

At every change of a cap, and whenever a node starts, they look at what they may draw all together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import Acted, SimNodes
from strata.virtual.plant.plant import Plant
from strata.virtual.redfish.power import MOST
from support.capmc_site import READY

NODES = 60
LIMIT = NODES * 400
"""Watts of the site."""


class Machine:
    """Simulated nodes that watch the sum of their caps, and end the controller at the ``fatal``-th change from now.

    What it had sent by then and no node had taken is lost with it (until ``lost`` is taken back): however far the
    controller was ahead of the nodes, it dies in the middle.
    """

    def __init__(self) -> None:
        self.nodes = SimNodes(NODES, timing=Timing(scale=0))
        self.server = BmcServer(self.nodes, plant=Plant(self.nodes, on=True))
        self.peak = 0.0
        self.changes: list[tuple[int, float, float]] = []
        """Of each change of a cap: the node, its cap before and after; without one, the most that it draws."""
        self.fatal = -1
        self.lost = False
        """Whether changes of caps are lost on their way."""
        self.process: asyncio.subprocess.Process | None = None
        set_cap, act = self.nodes.electricity.set_cap, self.nodes.act

        def watched(idx: np.ndarray, watts: float | None) -> None:  # type: ignore[type-arg]
            if self.lost:
                return
            before = np.minimum(self.nodes.electricity.caps[idx], MOST)
            set_cap(idx, watts)
            after = np.minimum(self.nodes.electricity.caps[idx], MOST)
            self.changes += zip(idx.tolist(), before.tolist(), after.tolist(), strict=True)
            self.peak = max(self.peak, self.total)
            self.fatal -= 1
            if self.fatal == 0 and self.process is not None:
                self.lost = True
                os.kill(self.process.pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # it is dead already, and asyncio knows
                    os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

        def acted(mutation: str, idx: np.ndarray, **more: Any) -> Acted:  # type: ignore[type-arg]
            found = act(mutation, idx, **more)
            self.peak = max(self.peak, self.total)
            return found

        self.nodes.electricity.set_cap = watched  # type: ignore[method-assign, assignment]
        self.nodes.act = acted  # type: ignore[method-assign, assignment]

    @property
    def total(self) -> float:
        """Watts that the nodes may draw now."""
        return float(np.minimum(self.nodes.electricity.caps, MOST)[self.on].sum())

    @property
    def on(self) -> np.ndarray:  # type: ignore[type-arg]
        """Which nodes are on in truth."""
        seen = self.nodes.truth("power", self.nodes.all, self.server.clock()).values()
        return np.array(seen) == "on"

    def rows(self, names: Sequence[str]) -> list[int]:
        """Where nodes are in the columns of all."""
        return [self.nodes.index[name] for name in names]

    def caps(self, names: Sequence[str]) -> list[float]:
        """In force."""
        return np.minimum(self.nodes.electricity.caps[self.rows(names)], MOST).tolist()  # type: ignore[no-any-return]

    @property
    def caps_of_capped(self) -> set[float]:
        """The caps that there are: some nodes (for logins, say) have none, and never get one."""
        return set(self.nodes.electricity.caps[np.isfinite(self.nodes.electricity.caps)].tolist())


class Controller:
    """``strata serve`` as a process of its own."""

    def __init__(self, machine: Machine, state: Path, *, store: str = "", name: str = "") -> None:
        """``store`` and ``name`` are for several of them."""
        self._machine = machine
        self._state = state
        self._log = state.parent / f"{state.name}.log"
        self._more = ("--store", store, "--controller-id", name) if store else ()
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._machine.lost = False
        arguments = (
            "serve", "--state-dir", self._state, "--no-tls", "--set", "hardware.consoles=false", "--simulator",
            self._machine.server.address, "--simulated", NODES, "--set", f"power.limit={LIMIT}W", *self._more,
        )  # fmt: skip
        with self._log.open("ab") as log:
            self.process = self._machine.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "strata.cli", *map(str, arguments), stdin=asyncio.subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip

    async def ended(self) -> int:
        assert self.process is not None
        return await self.process.wait()

    async def stop(self) -> None:
        process = self.process
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

    async def run(self, name: str, text: str) -> None:
        """Put a policy, and enable it."""
        body = {"text": text, "without_simulation": "a test of what no simulation shows"}
        await self.ask("PUT", f"/v1/power/policies/{name}", body)
        await self.ask("POST", f"/v1/power/policies/{name}/enable")

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


@contextlib.asynccontextmanager
async def served_machine(directory: Path) -> AsyncIterator[tuple[Machine, Controller]]:
    """Both, with all nodes on and ready; the controller has yet to be started."""
    machine = Machine()
    machine.nodes.put(machine.nodes.all, now=machine.server.clock(), **READY)
    await machine.server.start()
    controller = Controller(machine, directory / "state")
    try:
        yield machine, controller
    finally:
        await controller.stop()
        await machine.server.stop()


def settled(site: dict[str, Any]) -> bool:
    """Whether nothing is too high or under way."""
    return bool(site) and site["allowed"] is not None and site["over"] == 0 and site["in_flight"] == 0
