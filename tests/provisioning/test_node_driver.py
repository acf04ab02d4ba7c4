"""The node driver by itself: what it says of nodes, and when it has their controllers start them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch
from strata.core.errors import DeviceError, NotFound, NotOffered, OutcomeUnknown
from strata.core.state import Outcome
from strata.hardware.bmc.protocol import Boot
from strata.provisioning.agents.driver import BootWay
from strata.provisioning.agents.life import HUNG_AFTER
from strata.provisioning.identity.records import BootRecord
from strata.provisioning.model import LAYER
from support.agent_site import AgentSite, agent_site
from support.fake_agents import FakeAgent, http_over, running

pytestmark = pytest.mark.slow

STEPS = {mutation.name: mutation for mutation in LAYER.mutations}
NAME = "n00001"


class FakeBmc:
    """Writes down what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.error: Exception | None = None

    async def insert_media(self, image: str) -> None:
        self.told.append(("media", image))

    async def set_boot(self, boot: Boot) -> None:
        self.told.append(("boot", boot.target, boot.once))

    async def set_power(self, action: str, **_: Any) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(action)


class Site:
    def __init__(self, site: AgentSite, bmc: FakeBmc) -> None:
        self.site = site
        self.bmc = bmc
        self.driver = site.driver

    def is_(self, **record: Any) -> None:
        self.site.identity.records[NAME] = BootRecord(**record)

    async def boot(self, **more: Any) -> tuple[Outcome, str]:
        outcomes = await self.driver.act(STEPS["boot"], batch(**more))
        return Outcome(outcomes.codes[0]), outcomes.reasons.get(0, "")

    async def os(self) -> str:
        return (await self.driver.observe(["os"], batch()))["os"].values()[0]


def batch(name: str = NAME, **more: Any) -> Batch:
    return Batch(names=[name], uids=np.array([1]), **{"bmcs": ["http://bmc.example"], **more})


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    bmc = FakeBmc()
    async with agent_site(tmp_path / "s", nodes=1, bmc=lambda address: bmc) as made:
        yield Site(made, bmc)


async def test_a_node_that_never_booted_is_started_from_the_network(site: Site) -> None:
    site.is_()
    assert await site.os() == "down"
    assert await site.boot() == (Outcome.DONE, "")
    assert site.bmc.told == [("boot", "pxe", True), "cycle"]
    assert await site.boot() == (Outcome.DONE, ""), "it is on its way now"
    assert len(site.bmc.told) == 2


async def test_a_boot_that_arrived_is_over_and_the_next_one_is_begun(site: Site) -> None:
    """It lost its power soon after: nobody else begins its next boot."""
    now = time.time()
    site.is_(generation=1, opened=now - 90, redeemed=now - 80)
    site.site.asked[NAME] = now - 90
    site.driver.lost_power([NAME])
    assert await site.os() == "down"
    assert (await site.boot())[0] == Outcome.DONE
    assert "cycle" in site.bmc.told


async def test_a_node_that_lost_its_power_on_its_way_is_not_on_it_any_more(site: Site) -> None:
    """It finds nothing to boot by itself: nobody else begins its next boot."""
    site.is_(generation=1, opened=time.time() - 20)
    site.site.asked[NAME] = time.time() - 30
    site.site.by_medium.add(NAME)
    assert await site.boot() == (Outcome.DONE, "")
    assert site.bmc.told == [], "it is on its way"
    site.driver.lost_power([NAME])
    assert await site.boot() == (Outcome.DONE, "")
    assert "cycle" in site.bmc.told


async def test_a_node_on_which_a_job_may_run_is_not_started_anew(site: Site) -> None:
    """Nobody heard of an agent there; something else may run all the same."""
    site.is_()
    site.site.busy[NAME] = "job 7 runs there"
    assert await site.boot() == (Outcome.UNTRIED, "not started anew: job 7 runs there")
    assert site.bmc.told == []


async def test_a_controller_that_takes_no_address_is_told_to_boot_without_one(site: Site) -> None:
    class Plain(FakeBmc):
        async def set_boot(self, boot: Boot) -> None:
            if boot.uri:
                raise NotOffered("it takes no address", node=NAME, request="boot")
            await super().set_boot(boot)

    site.is_()
    plain = Plain()
    site.site.bmc = lambda address: plain
    site.site.way = BootWay(boot=Boot(target="http", uri="http://10.0.0.1/ipxe.efi"), media="https://x/y.iso")
    assert (await site.boot())[0] == Outcome.DONE
    assert plain.told == [("media", ""), ("media", "https://x/y.iso"), ("boot", "http", True), "cycle"]


@pytest.mark.parametrize("sign", ["asked", "opened", "switched on"])
async def test_a_node_on_its_way_is_left_to_it(site: Site, sign: str) -> None:
    site.is_(opened=time.time() - 30 if sign == "opened" else 0.0, generation=1)
    if sign == "asked":
        site.site.asked[NAME] = time.time() - 30
    elif sign == "switched on":
        site.driver.got_power([NAME])
    assert await site.boot() == (Outcome.DONE, "")
    assert site.bmc.told == []


async def test_a_node_that_may_run_is_never_restarted_by_a_boot(site: Site) -> None:
    site.is_(generation=3, redeemed=time.time() - 10_000, opened=time.time() - 10_000)
    assert await site.os() == "unknown", "we have not listened for long"
    assert (await site.boot())[0] == Outcome.DONE
    assert site.bmc.told == []


async def test_a_node_that_needs_a_medium_is_waited_for_until_it_is_known_to_be_down(site: Site) -> None:
    """Its power was cut a moment ago; it would not boot by itself, however long one waits."""
    site.is_(generation=3, redeemed=time.time() - 10_000, opened=time.time() - 10_000)
    site.site.by_medium.add(NAME)
    assert await site.os() == "unknown"
    booting = asyncio.create_task(site.boot())
    await asyncio.sleep(0)
    assert site.bmc.told == []
    site.driver.lost_power([NAME])
    assert await booting == (Outcome.DONE, "")
    assert site.bmc.told == [("boot", "pxe", True), "cycle"]


async def test_a_node_that_should_speak_and_does_not_is_hung_after_a_while(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.is_(generation=3, redeemed=time.time() - 10_000, opened=time.time() - 10_000)
    now = time.monotonic()
    assert await site.os() == "unknown"
    later = SimpleNamespace(monotonic=lambda: now + HUNG_AFTER + 5, time=lambda: time.time() + HUNG_AFTER + 5)
    monkeypatch.setattr("strata.provisioning.agents.driver.time", later)
    assert await site.os() == "hung"
    site.driver.lost_power([NAME])
    assert await site.os() == "down"


async def test_a_controller_that_says_no_or_nothing_is_told_as_that(site: Site) -> None:
    site.is_()
    site.bmc.error = DeviceError("no", node="bmc", request="Reset")
    assert (await site.boot())[0] == Outcome.FAILED
    site.bmc.error = OutcomeUnknown("no answer", where="bmc")
    assert (await site.boot())[0] == Outcome.UNKNOWN
    assert (await site.boot(valid_until=-1.0))[0] == Outcome.FENCED
    code, reason = await site.boot(bmcs=[""])
    assert code == Outcome.UNTRIED and "no controller" in reason


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ("system: not ready", Outcome.FAILED),
        ("fenced: epoch 1 is over", Outcome.FENCED),
        ("refused: epoch 1 is over, 2 was seen", Outcome.FENCED),
    ],
)
async def test_what_an_agent_says_no_to_has_failed(site: Site, error: str, outcome: Outcome) -> None:
    async with http_over(site.site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.refuse = lambda command: error
        async with running(agent):
            while not site.site.hub.attached(NAME):
                await agent.exchange()
            outcomes = await site.driver.act(STEPS["stop-personality"], batch(epochs=np.array([1])))
    assert Outcome(outcomes.codes[0]) == outcome and outcomes.reasons[0] == error


async def test_an_personality_that_cannot_be_run_is_not_tried_on_anybody(site: Site) -> None:
    goals = {"image": Column.same("nothing", 1)}
    outcomes = await site.driver.act(STEPS["load-image"], batch(goals=goals))
    assert Outcome(outcomes.codes[0]) == Outcome.UNTRIED and "no such personality" in outcomes.reasons[0]


async def test_a_boot_that_there_is_no_way_for_is_not_tried(site: Site) -> None:
    async def no_way(name: str) -> BootWay:
        raise NotFound("there is no minimal OS yet", where=name)

    site.is_()
    site.driver._questions = msgspec.structs.replace(site.driver._questions, way=no_way)
    code, reason = await site.boot()
    assert code == Outcome.UNTRIED and "no minimal OS yet" in reason
    assert site.bmc.told == []


async def test_a_revoked_certificate_shows_in_the_facts_and_is_not_asked_for_again(site: Site) -> None:
    async with http_over(site.site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.wait = 0
        await agent.exchange()
    assert (await site.driver.observe(["identity"], batch()))["identity"].values() == ["issued"]
    site.is_(generation=1, redeemed=1.0, revoked=("A1",), revoked_by="alice")
    seen = await site.driver.observe(["os", "identity"], batch())
    assert (seen["os"].values(), seen["identity"].values()) == (["up"], ["none"])
    outcomes = await site.driver.act(STEPS["enrol"], batch())
    assert Outcome(outcomes.codes[0]) == Outcome.UNTRIED and "revoked by alice" in outcomes.reasons[0]


async def test_nobody_there_has_failed_and_says_so(site: Site) -> None:
    outcomes = await site.driver.act(STEPS["stop-personality"], batch())
    assert Outcome(outcomes.codes[0]) == Outcome.FAILED and "not attached" in outcomes.reasons[0]
    assert Outcome((await site.driver.act(STEPS["enrol"], batch())).codes[0]) == Outcome.FAILED
    late = await site.driver.act(STEPS["stop-personality"], batch(valid_until=-1.0))
    assert Outcome(late.codes[0]) == Outcome.FENCED


async def test_a_profile_that_has_changed_since_the_boot_shows_as_another(site: Site) -> None:
    async with http_over(site.site.socket) as http:
        agent = FakeAgent(http, NAME)
        agent.wait = 0
        await agent.exchange()
        assert (await site.driver.observe(["minos"], batch()))["minos"].values() == ["default"]
        agent.profile = "default@old"
        await agent.exchange()
        assert (await site.driver.observe(["minos"], batch()))["minos"].values() == ["default@old"]
        assert await site.driver.permits("no-running-job", batch()) != [""]
