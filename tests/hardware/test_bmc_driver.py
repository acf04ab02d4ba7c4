"""The bmc driver over real sockets: batches, fences, dead BMCs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest

from strata.core.driver import Batch, Driver
from strata.core.errors import BadRequest
from strata.core.state import Outcome
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.driver import BmcDriver, BmcDriverSettings
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.model import LAYER
from strata.platform.model import LAYER as PLATFORM
from strata.virtual.bmc.mischief import Trick
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.faults import Faults, Timing
from strata.virtual.fleet.nodes import SimNodes

POWER_ON, POWER_OFF = LAYER.mutations


@pytest.fixture
async def driver(client: RedfishClient) -> AsyncIterator[BmcDriver]:
    found = BmcDriver(Bmcs(client))
    yield found
    await found.close()


def batch(server: BmcServer, generation: int = 1, **more: object) -> Batch:
    names = server.nodes.names
    return Batch(
        names=names,
        uids=server.nodes.all,
        bmcs=[server.url(name) for name in names],
        epochs=np.ones(len(names), dtype=np.int64),
        generation=generation,
        **more,  # type: ignore[arg-type]
    )


async def seen(driver: Driver, told: Batch) -> list[str]:
    return (await driver.observe(["power"], told))["power"].values()


async def test_it_switches_and_sees_power(server, driver):
    outcomes = await driver.act(POWER_ON, batch(server))
    assert outcomes.codes.tolist() == [Outcome.DONE] * 6
    assert outcomes.reasons == {}
    assert await seen(driver, batch(server)) == ["on"] * 6
    await driver.act(POWER_OFF, batch(server, 2))
    assert await seen(driver, batch(server)) == ["off"] * 6


async def test_a_repeated_fence_is_fenced(server, driver):
    await driver.act(POWER_ON, batch(server))
    outcomes = await driver.act(POWER_ON, batch(server))
    assert outcomes.codes.tolist() == [Outcome.FENCED] * 6
    assert server.nodes.effects.twice() == []
    assert server.nodes.fences.refused.sum() == 6


async def test_nothing_begins_after_the_lead_ran_out(server, driver, clock):
    clock.now = 5.0
    outcomes = await driver.act(POWER_ON, batch(server, valid_until=4.9))
    assert outcomes.codes.tolist() == [Outcome.FENCED] * 6
    assert server.requests == 0


async def test_a_lost_reply_is_unknown_and_never_sent_again(server, driver):
    await seen(driver, batch(server))
    server.prank("n1").plan(Trick.DROP_AFTER)
    server.prank("n2").plan(Trick.DROP_BEFORE)
    outcomes = await driver.act(POWER_ON, batch(server))
    assert outcomes.codes.tolist() == [Outcome.UNKNOWN] * 2 + [Outcome.DONE] * 4
    assert server.bmc("n1").resets == ["On"]
    assert server.bmc("n2").resets == []
    assert "broke" in outcomes.reasons[0]


@pytest.mark.slow
async def test_a_bmc_that_cannot_be_reached_at_all_has_failed_not_maybe_acted(server, impatient, driver):
    server.nodes.bmc_dead[0] = True
    impatient(1.0, 0.5)
    outcomes = await driver.act(POWER_ON, batch(server))
    assert outcomes.codes.tolist() == [Outcome.FAILED] + [Outcome.DONE] * 5
    assert "no answer" in outcomes.reasons[0]


@pytest.mark.slow
async def test_a_look_that_shows_nothing_says_why_also_while_the_bmc_is_left_alone(server, impatient, driver):
    server.nodes.bmc_dead[0] = True
    impatient(1.0, 0.5)
    told = batch(server)
    first = (await driver.observe(["power"], told))["power"]
    assert list(first.reasons) == [0]
    assert "no answer" in first.reasons[0] and told.bmcs[0].split("/redfish")[0] in first.reasons[0]
    again = (await driver.observe(["power"], told))["power"]
    assert again.reasons == first.reasons


async def test_what_was_wrong_is_forgotten_once_the_bmc_says_how_it_is(server, driver):
    server.nodes.set_faults(Faults(power_null=1), now=0)
    assert len((await driver.observe(["power"], batch(server)))["power"].reasons) == 6
    server.nodes.set_faults(Faults(), now=0)
    assert (await driver.observe(["power"], batch(server)))["power"].reasons == {}


async def test_a_reset_accepted_and_ignored_is_seen_in_the_fact(server, driver):
    server.nodes.set_faults(Faults(ignored=1), now=0)
    assert (await driver.act(POWER_ON, batch(server))).codes.tolist() == [Outcome.DONE] * 6
    assert await seen(driver, batch(server)) == ["off"] * 6


@pytest.mark.parametrize(("faults", "value"), [(Faults(power_null=1), "unknown"), (Faults(power_lies=1), "on")])
async def test_power_that_is_null_is_unknown_and_a_lie_is_what_was_said(server, driver, faults, value):
    server.nodes.set_faults(faults, now=0)
    assert await seen(driver, batch(server)) == [value] * 6


async def test_a_refusal_fails_with_the_words_of_the_bmc(server, driver):
    server.nodes.set_faults(Faults(refused=1), now=0)
    outcomes = await driver.act(POWER_ON, batch(server))
    assert outcomes.codes.tolist() == [Outcome.FAILED] * 6
    assert "500: The request failed: the device refused" in outcomes.reasons[0]


async def test_a_wrong_password_is_tried_twice_a_bmc_and_then_not_at_all(server, clock):
    controllers = Bmcs(RedfishClient(Credentials("root", "guess"), clock=clock))
    driver = BmcDriver(controllers)
    for _ in range(4):
        assert await seen(driver, batch(server)) == ["unknown"] * 6
    assert [server.bmc(name).wrong_passwords for name in server.nodes.names] == [2] * 6
    assert "refused the password 2 times" in (await driver.observe(["power"], batch(server)))["power"].reasons[3]
    outcomes = await driver.act(POWER_ON, batch(server))
    assert "refused the password 2 times" in outcomes.reasons[3]
    await driver.close()
    await controllers.close()


async def test_a_node_without_an_address_is_unknown_and_fails(server, driver):
    told = Batch(names=["a", "b"], uids=np.arange(2), bmcs=["", "nonsense"])
    assert await seen(driver, told) == ["unknown"] * 2
    assert (await driver.observe(["power"], told))["power"].reasons[0] == "the node has no BMC"
    outcomes = await driver.act(POWER_ON, told)
    assert outcomes.codes.tolist() == [Outcome.FAILED] * 2
    assert "address" in outcomes.reasons[1]


async def test_it_does_only_power_and_answers_no_guards(server, driver):
    with pytest.raises(BadRequest):
        await driver.act(PLATFORM.mutations[0], batch(server))
    assert await driver.observe(["os"], batch(server)) == {}
    assert all(await driver.permits("no-running-job", batch(server)))


@pytest.mark.slow
async def test_a_silent_bmc_is_left_out_then_tried_in_the_background_until_it_answers(server, impatient, driver, clock):
    server.nodes.bmc_dead[0] = True
    impatient(1.0, 0.5)
    assert (await seen(driver, batch(server)))[0] == "unknown"
    asked = server.requests
    await seen(driver, batch(server))
    assert server.requests == asked + 5
    outcomes = await driver.act(POWER_ON, batch(server))
    assert "not tried" in outcomes.reasons[0]

    server.nodes.bmc_dead[0] = False
    clock.now += 6
    assert (await seen(driver, batch(server)))[0] == "unknown"  # the sweep did not wait for the probe
    deadline = time.monotonic() + 60
    while (await seen(driver, batch(server)))[0] == "unknown":
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


@pytest.mark.slow
async def test_a_tenth_of_dead_bmcs_does_not_double_a_sweep():
    """The healthy take 50 ms a request, the dead never answer. Of three sweeps each the fastest counts: this machine
    may be busy with other things. Then a few of the healthy are too slow, too, and are asked another time."""
    fastest = {False: float("inf"), True: float("inf")}
    for dead in (False, True) * 3:
        nodes = SimNodes(80, timing=Timing(scale=0))
        server = BmcServer(nodes)
        client = RedfishClient(Credentials("root", "simulated"), settings=RedfishSettings(quick=0.5))
        driver = BmcDriver(Bmcs(client), settings=BmcDriverSettings(at_once=8))
        await server.start()
        try:
            for name in nodes.names:
                server.prank(name).latency = 0.05
            nodes.bmc_dead[::10] = dead
            begun = time.monotonic()
            values = await seen(driver, batch(server))
            fastest[dead] = min(fastest[dead], time.monotonic() - begun)
        finally:
            await driver.close()
            await client.close()
            await server.stop()
        assert not dead or set(values[::10]) == {"unknown"}
        assert values.count("off") > 0.8 * (72 if dead else 80)
        if dead and fastest[True] < 2 * fastest[False]:
            break
    assert fastest[True] < 2 * fastest[False]


async def test_closing_ends_the_probes(server, client, impatient, clock):
    driver = BmcDriver(Bmcs(client))
    server.nodes.bmc_dead[:] = True
    impatient(0.2, 0.1)
    await seen(driver, batch(server))
    clock.now += 10
    await seen(driver, batch(server))
    await driver.close()
    assert len(asyncio.all_tasks()) == 1


async def test_a_fault_of_ours_with_one_bmc_is_that_nodes_outcome(server, driver):
    class Broken:
        def __getattr__(self, name: str):
            async def breaks(*_: object, **__: object) -> None:
                raise UnicodeDecodeError("utf-8", b"\xae", 0, 1, "invalid start byte")

            return breaks

    told = batch(server)
    driver._bmcs._opened[told.bmcs[0]] = Broken()
    outcomes = await driver.act(POWER_ON, told)
    assert outcomes.codes.tolist() == [Outcome.UNKNOWN] + [Outcome.DONE] * (len(told) - 1)
    assert "internal error while talking to the BMC" in outcomes.reasons[0]
    seen = (await driver.observe(["power"], told))["power"].values()
    assert seen == ["unknown"] + ["on"] * (len(told) - 1)


@pytest.mark.slow
async def test_one_that_takes_for_ever_does_not_keep_the_others_from_being_known(server, client):
    class Slow:
        async def power(self) -> str:
            await asyncio.Event().wait()
            return "on"

    driver = BmcDriver(Bmcs(client), settings=BmcDriverSettings(look=3.0))
    told = batch(server)
    driver._bmcs._opened[told.bmcs[0]] = Slow()
    seen = (await driver.observe(["power"], told))["power"].values()
    assert seen == ["unknown"] + ["off"] * (len(told) - 1)
    await driver.close()


async def test_an_order_that_is_accepted_and_has_no_effect_is_held_against_the_bmc(server, client, clock):
    controllers = Bmcs(client)
    driver = BmcDriver(controllers)
    told = batch(server)
    address = told.bmcs[0]
    server.prank(told.names[0]).always = {Trick.IGNORED}
    await driver.act(POWER_ON, told)
    clock.now += controllers.shows_within + 1
    await driver.observe(["power"], told)
    assert "accepted 91 s ago to switch its node on" in controllers.flaw(address)
    assert [controllers.flaw(other) for other in told.bmcs[1:]] == [""] * (len(told) - 1)
    server.prank(told.names[0]).always.clear()
    await driver.act(POWER_ON, batch(server, generation=2))
    await driver.observe(["power"], told)
    assert controllers.flaw(address) == ""
    await driver.close()
