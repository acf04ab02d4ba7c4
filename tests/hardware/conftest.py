"""A simulated fleet behind real sockets, and a client that is impatient with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The time of BMCs and client alike."""
    return Clock()


@pytest.fixture
async def server(clock: Clock) -> AsyncIterator[BmcServer]:
    """Six nodes whose actions take no time."""
    found = BmcServer(SimNodes(6, names=[f"n{i}" for i in range(1, 7)], timing=Timing(scale=0)), clock=clock)
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def client(clock: Clock) -> AsyncIterator[RedfishClient]:
    """Waits long for those that answer: how busy this machine is must not matter. ``impatient`` changes that."""
    settings = RedfishSettings(timeout=60.0, quick=60.0, max_body=100_000)
    async with RedfishClient(Credentials("root", "simulated"), settings=settings, clock=clock) as found:
        yield found


@pytest.fixture
def impatient(client: RedfishClient) -> Callable[[float, float], None]:
    """Lets the client give up soon from here on: on a reset after so many seconds, on a read after so many."""

    def hurry(timeout: float, quick: float) -> None:
        hasty = msgspec.structs.replace(client.settings, timeout=timeout, quick=quick)
        client.settings = client._wire.settings = hasty

    return hurry
