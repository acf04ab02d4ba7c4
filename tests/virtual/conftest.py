"""One simulated machine room over a real socket, with a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from strata.virtual.bmc.server import SIMULATED_ACCOUNT, BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.plant.plant import Plant

Ask = Callable[..., Awaitable[tuple[int, Any]]]


class MovedClock:
    """Shows what it was set to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def room() -> AsyncIterator[BmcServer]:
    """40 nodes that do everything at once, with the PDU, chassis and switches around them."""
    nodes = SimNodes(40, timing=Timing(scale=0))
    found = BmcServer(nodes, plant=Plant(nodes), clock=MovedClock())
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def user() -> AsyncIterator[aiohttp.ClientSession]:
    """A client with the right password."""
    async with aiohttp.ClientSession(headers={"Authorization": SIMULATED_ACCOUNT.basic}) as found:
        yield found


@pytest.fixture
def ask(room: BmcServer, user: aiohttp.ClientSession) -> Ask:
    """``await ask("n00001", "PATCH", "Systems/1", {...})`` → the status and the body of the reply."""

    async def request(name: str, method: str, path: str, body: object = None, **more: Any) -> tuple[int, Any]:
        url = f"{room.url(name)}/redfish/v1/{path}"
        async with user.request(method, url, json=body, **more) as reply:
            text = await reply.read()
            return reply.status, (await reply.json() if text else {})

    return request
