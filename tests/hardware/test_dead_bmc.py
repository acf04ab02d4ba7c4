"""A whole controller whose node's BMC dies while its agent lives: what can be done is done, and why says the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import StrataError
from strata.core.model import Model, Mutation
from strata.core.node import Node
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.controller.controller import Controller
from strata.hardware.model import LAYER as HARDWARE
from strata.provisioning.model import LAYER as PROVISIONING
from strata.store.memory import MemoryStore
from support.agent_site import agent_site
from support.fake_agents import FakeAgent, http_over, running
from support.one_node import NAME, put_set, state, until, want
from support.rooms import OpenFleet

pytestmark = pytest.mark.slow

POWER = next(variable for variable in HARDWARE.variables if variable.name == "power")
MODEL = Model.of(
    msgspec.structs.replace(HARDWARE, variables=(msgspec.structs.replace(POWER, ages_out_after=1.0),)), PROVISIONING
)
"""A fact of power does not last long here: nobody wants to wait for it."""


async def test_an_image_is_changed_on_a_node_whose_bmc_died_and_its_power_is_never_touched(tmp_path: Path) -> None:
    async with (
        agent_site(tmp_path / "s", nodes=1, model=MODEL) as site,
        http_over(site.socket) as http,
    ):
        agent = FakeAgent(http, NAME)
        async with running(agent):
            await put_set(site, "one", 100)
            await put_set(site, "two", 200)
            await want(site, power="on", os="up", image="one", personality="active")
            await until(lambda: state(site) == "ready")
            site.sim.bmc_dead[:] = True
            service = site.service

            await until(lambda: service.view.node(0).facts["power"].implied)
            power = (await service.node(LOCAL_ADMIN, NAME)).facts["power"]
            assert (power.value, power.source) == ("on", "implied by os")
            assert power.silence is not None
            assert (power.silence.driver, power.silence.why) == ("bmc", "its BMC does not answer")
            assert power.seen is not None and power.silence.since >= power.seen - 60

            await want(site, image="two")
            await until(lambda: site.fact(NAME, "image") == "two" and state(site) == "ready")
            assert [command["kind"] for command in agent.took] == ["load", "start", "switch"]

            await service.edits.set_desires(
                service.registry.select(NAME), {"power": "off"}, ("os", "image", "personality"), "test"
            )
            await until(lambda: state(site) == "unreachable")
            plan = await service.plan_node(LOCAL_ADMIN, NAME, {})
            assert (plan.status, plan.steps) == ("unreachable", ())
            why = await service.why(LOCAL_ADMIN, NAME)
            assert "bmc has not seen power for" in why.summary
            assert "its BMC does not answer" in why.summary
            assert not len(site.sim.effects.rows), "nobody tells a dead BMC anything"

            site.sim.bmc_dead[:] = False
            await until(lambda: site.fact(NAME, "power") == "off" and state(site) == "off")


class Echoes:
    """A driver that says what it was sent when it sees nothing, or breaks down with it."""

    name = "bmc"

    def __init__(self, breaks: bool) -> None:
        self._breaks = breaks

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        raise NotImplementedError

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        text = "it refused password=hunter2 " + "x" * 1000
        if self._breaks:
            raise StrataError(text)
        return {"power": Column((), np.zeros(len(batch), dtype=np.int32), {0: text})}

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        return [""] * len(batch)


@pytest.mark.parametrize("breaks", [False, True])
async def test_why_a_look_showed_nothing_is_told_in_bounds_and_without_secrets(tmp_path: Path, breaks: bool) -> None:
    store = MemoryStore()
    controller = Controller(store, Model.of(HARDWARE), {"bmc": Echoes(breaks)}, name="c1")
    service = OpenFleet(controller, Settings(state_dir=tmp_path))
    await controller.start()
    try:
        await service.edits.create_nodes([Node(name=NAME, uid=0)], "test")
        await service.settled(await store.revision())
        await service.edits.set_desires(service.registry.select(NAME), {"power": "on"}, (), "test")
        await until(lambda: service.view.state(0) == "unreachable")
        why = await service.why(LOCAL_ADMIN, NAME)
        told = " ".join((why.summary, *why.lines))
        assert "it refused [hidden]" in why.summary
        assert "hunter2" not in told and len(told) < 1000
    finally:
        await controller.stop()
        await store.close()
