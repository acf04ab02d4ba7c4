"""Sessions: few, shared by all addresses of a BMC, and none left behind, whatever goes wrong."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from strata.core.errors import DeviceError, StrataError
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.power import read_power
from strata.virtual.bmc.mischief import Mischief, Trick
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.odd_bmc import ROOT, OddBmc, only_system

CALLS = ("power", "identity", "readings", "bios", "boot", "log", "power_limits")


class Watched:
    """The most sessions that a simulated BMC ever had, looked at after every request."""

    def __init__(self, server: BmcServer, name: str) -> None:
        self.most = 0
        self._bmc = server.bmc(name)
        answer = self._bmc.answer

        def watch(*given, **more):
            reply = answer(*given, **more)
            self.most = max(self.most, self.open)
            return reply

        self._bmc.answer = watch  # type: ignore[method-assign]

    @property
    def open(self) -> int:
        return len(self._bmc.sessions)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_a_thousand_operations_with_mischief_leave_no_session_behind(seed):
    now = [0.0]
    mischief = Mischief(busy=0.02, retry_after=1, expired=0.04, html=0.03, cut=0.03, drop_before=0.03, drop_after=0.05)
    nodes = SimNodes(1, names=["n1"], timing=Timing(scale=0), seed=seed)
    server = BmcServer(nodes, mischief=mischief, clock=lambda: now[0])
    await server.start()
    watched = Watched(server, "n1")
    wrong = 0
    settings = RedfishSettings(timeout=60.0)
    async with RedfishClient(Credentials("root", "simulated"), settings=settings, clock=lambda: now[0]) as client:
        for n in range(1000):
            # One BMC, many addresses: they are all one BMC's.
            controller = RedfishBmc(client, server.url("n1") + ("", "/redfish/v1/Systems/1")[n % 2])
            try:
                await getattr(controller, CALLS[n % len(CALLS)])()
            except StrataError:
                wrong += 1
            client.unlock(server.url("n1"))  # mischief's 401 is no wrong password
            now[0] += 400 if n % 100 == 99 else 2
    assert 100 < wrong < 900
    assert 1 <= watched.most <= 2
    assert watched.open == 0
    await server.stop()


async def test_a_login_whose_answer_is_lost_leaves_no_session(server, client):
    watched = Watched(server, "n1")
    for trick in (Trick.DROP_AFTER, Trick.CUT, Trick.DROP_AFTER):
        server.prank("n1").plan(trick, method="POST")
        with pytest.raises(StrataError):
            await read_power(client, server.url("n1"))
        assert watched.open == 1
    assert await read_power(client, server.url("n1")) == "off"
    assert watched.open == 1 and watched.most <= 2


async def test_a_bmc_that_was_never_reached_is_said_to_be_so_every_time(client):
    for _ in range(2):
        with pytest.raises(DeviceError, match="nobody answers at its address"):
            await read_power(client, "http://127.0.0.1:9/bmc/gone")


async def test_a_bmc_that_falls_silent_after_a_lost_login_is_said_to_be_silent(server, client):
    server.prank("n1").plan(Trick.DROP_AFTER, method="POST")
    with pytest.raises(StrataError) as first:
        await read_power(client, server.url("n1"))
    for _ in range(20):
        server.prank("n1").plan(Trick.DROP_BEFORE, method="GET")
    with pytest.raises(DeviceError, match="an earlier session of ours may still be open there") as second:
        await read_power(client, server.url("n1"))
    assert second.value.detail.startswith(first.value.detail), "what is the matter with it comes first"


async def test_a_login_that_is_cancelled_leaves_no_session(server, client):
    server.prank("n1").plan(Trick.SILENT, method="POST")
    asking = asyncio.ensure_future(read_power(client, server.url("n1")))
    async with asyncio.timeout(60):
        while not server.requests:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert client.bmc(server.url("n1")).ghosts
    assert await read_power(client, server.url("n1")) == "off"
    await client.close()
    assert server.bmc("n1").sessions == {}


async def test_a_session_that_is_said_to_be_over_is_ended_all_the_same():
    """A BMC that answers 401 once, and keeps the session."""
    async with OddBmc(only_system()) as bmc, RedfishClient(Credentials("root", "x")) as client:
        await read_power(client, bmc.address)

        def refuse_once(_):
            del bmc.answers[("GET", f"{ROOT}/Systems/1")]
            return web.Response(status=401)

        bmc.answers[("GET", f"{ROOT}/Systems/1")] = refuse_once
        assert await read_power(client, bmc.address) == "on"
        assert [one.path for one in bmc.sent("DELETE")] == [f"{ROOT}/SessionService/Sessions/1"]


async def test_all_addresses_of_a_bmc_share_one_session_and_one_lock(server, clock):
    async with RedfishClient(Credentials("root", "simulated"), clock=clock) as client:
        for path in ("", "/", "/redfish/v1", "/redfish/v1/Systems/1", "/redfish/v1/Chassis/1"):
            await read_power(client, server.url("n1") + path)
        assert len(server.bmc("n1").sessions) == 1
    async with RedfishClient(Credentials("root", "wrong"), clock=clock) as client:
        for path in ("", "/redfish/v1/Systems/1", "/redfish/v1/Chassis/1"):
            with pytest.raises(StrataError):
                await read_power(client, server.url("n1") + path)
    assert server.bmc("n1").wrong_passwords == 2


async def test_a_bmc_that_is_full_and_takes_no_password_is_left_alone_and_not_locked(clock):
    """Whether the password is right is not known; it is sent once a minute, and never a third time in vain."""
    async with OddBmc(only_system()) as bmc:
        full = {"error": {"message": "full", "code": "Base.1.0.SessionLimitExceeded"}}
        bmc.answers[("POST", f"{ROOT}/SessionService/Sessions")] = lambda _: web.json_response(full, status=503)
        bmc.answers[("GET", f"{ROOT}/Systems/1")] = lambda asked: (
            web.json_response({"PowerState": "On"}) if "X-Auth-Token" in asked.headers else web.Response(status=401)
        )
        async with RedfishClient(Credentials("root", "x"), clock=clock) as client:
            address = f"{bmc.address}/redfish/v1/Systems/1"
            for _ in range(3):
                with pytest.raises(StrataError):
                    await read_power(client, address)
            assert len(bmc.sent("POST")) == 1 and len(bmc.sent("GET")) == 1
            assert not client.bmc(address).locked
            clock.now += client.settings.full_for
            del bmc.answers[("POST", f"{ROOT}/SessionService/Sessions")]
            assert await read_power(client, address) == "on"


async def test_a_bmc_without_sessions_gets_the_password_with_each_request():
    async with OddBmc(only_system()) as bmc:
        bmc.answers[("POST", f"{ROOT}/SessionService/Sessions")] = lambda _: web.Response(status=404)
        async with RedfishClient(Credentials("root", "x")) as client:
            assert await read_power(client, bmc.address) == "on"
            assert await read_power(client, bmc.address) == "on"
    assert len(bmc.sent("POST")) == 1
    assert all("Authorization" in one.headers for one in bmc.sent("GET"))
