"""Controllers that come and go: who carries on what only one does, and what is remembered over a restart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.platform.duty import PLATFORM
from strata.platform.rollouts.learnt import Learnt, Lessons
from strata.platform.rollouts.records import RolloutSpec
from strata.platform.rollouts.service import RolloutService
from strata.store.memory import MemoryStore
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.names import simulated_nodes
from strata.virtual.fleet.nodes import SimNodes
from support.platform_fleet import until
from support.pure_fleet import BUILT_IN, Unfed
from support.rooms import OpenFleet

NODES = 4
BRIEF = LeadershipSettings(shards=1, lease=2.0, renew_every=0.2)


def a_controller(store: MemoryStore, name: str, directory: Path, sim: SimNodes | None = None) -> Controller:
    sim = sim or SimNodes(1, timing=Timing(scale=0))
    drivers = {**sim_drivers(sim, time.monotonic), Unfed.name: Unfed()}
    return Controller(store, BUILT_IN, drivers, name=name, history=directory / f"{name}.history", leadership=BRIEF)


def with_the_platform(store: MemoryStore, name: str, directory: Path, sim: SimNodes) -> OpenFleet:
    settings = Settings(state_dir=directory / name, controller_id=name)
    settings.state_dir.mkdir()
    return OpenFleet(a_controller(store, name, directory, sim), settings)


@pytest.mark.slow
async def test_a_rollout_is_carried_on_by_who_has_the_layer_though_another_leads_every_node(tmp_path: Path) -> None:
    store, sim = MemoryStore(), SimNodes(NODES, timing=Timing(scale=0))
    lower = a_controller(store, "lower", tmp_path, sim)
    await lower.start()
    await until(lambda: bool(lower.leadership.epochs))
    first, second = (with_the_platform(store, name, tmp_path, sim) for name in ("first", "second"))
    rollouts = await first.keep(first.put(RolloutService(first)))
    await first.start()
    try:
        await first.edits.create_nodes(simulated_nodes(NODES), "test")
        await first.settled(await store.revision())
        assert first.controller.leadership.holders[0][0] == "lower"
        await until(lambda: rollouts.conductor.duty.here)
        how = RolloutSpec(select="*", set={"power": "on"}, soak=0.0, waves=("1", "100%"), max_unavailable="100%")
        await rollouts.begin(LOCAL_ADMIN, "wake-up", how)
        await until(lambda: rollouts.kept("wake-up").state == "done")

        # The next one takes over when the first is gone, and not before.
        later = second.controller.leadership.duty(PLATFORM)
        await second.start()
        await until(lambda: later.by == "first")
        assert not later.here
        await first.stop()
        await until(lambda: later.here)
        assert later.by == "second"
    finally:
        await first.stop()
        await second.stop()
        await lower.stop()
        await store.close()


async def test_a_duty_is_over_when_the_lease_may_have_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    controller = a_controller(store, "c1", tmp_path)
    duty = controller.leadership.duty(PLATFORM)
    await controller.start()
    try:
        await until(lambda: duty.here)
        monkeypatch.setattr(controller.leadership, "_clock", lambda: controller.leadership.valid_until)
        assert not duty.here
    finally:
        monkeypatch.undo()
        await controller.stop()
        await store.close()


async def test_what_mutations_took_is_known_after_a_restart(tmp_path: Path) -> None:
    store, file = MemoryStore(), tmp_path / "learnt.json"
    controller = a_controller(store, "c1", tmp_path)
    first = Lessons(controller, file)
    first._found = {"boot": Learnt(succeeded=3, failed=1, seconds=90.0), "gone": Learnt(succeeded=1)}
    await first.save()
    second = Lessons(controller, file)
    second.load()
    assert second.all["boot"] == Learnt(succeeded=3, failed=1, seconds=90.0)
    assert "gone" not in second.all, "there is no such mutation any more"
    file.write_bytes(b"damaged")
    third = Lessons(controller, file)
    third.load()
    assert third.all == {}
    await asyncio.gather(Lessons(controller, tmp_path / "no" / "where.json").save(), store.close())
