"""Controllers that come and go: who carries on what only one does, and what is remembered over a restart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from strata.daemon.settings import Settings
from strata.fleet.alarm import Alarm
from strata.fleet.controller.controller import Controller
from strata.fleet.settings import LeadershipSettings
from strata.platform import controllers
from strata.platform.controllers import PlatformControllers
from strata.platform.rollouts.learnt import Learnt, Lessons
from strata.store.memory import MemoryStore
from strata.virtual.fleet.driver import sim_drivers
from strata.virtual.fleet.faults import Timing
from strata.virtual.fleet.nodes import SimNodes
from support.platform_fleet import until
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet


def a_controller(store: MemoryStore, name: str, directory: Path) -> Controller:
    return Controller(
        store,
        BUILT_IN,
        {**sim_drivers(SimNodes(1, timing=Timing(scale=0)), time.monotonic)},
        name=name,
        history=directory / f"{name}.history",
        leadership=LeadershipSettings(shards=1),
    )


@pytest.mark.slow
async def test_a_leader_without_the_platform_layer_is_named_until_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllers, "_EVERY", 0.05)
    store = MemoryStore()
    lower = a_controller(store, "lower", tmp_path)
    await lower.start()
    await until(lambda: lower.leads_first)
    settings = Settings(state_dir=tmp_path / "state", controller_id="upper")
    settings.state_dir.mkdir()
    fleet = OpenFleet(a_controller(store, "upper", tmp_path), settings)
    alarms: list[Alarm] = []
    fleet.alarms.append(alarms.append)
    found = fleet.put(await fleet.keep(PlatformControllers(fleet)))
    await fleet.start()
    try:
        await until(lambda: bool(alarms))
        assert found.missing.startswith("controller lower leads the first shard and has no platform layer")
        assert (alarms[0].severity, alarms[0].about) == ("critical", "platform layer")
        await lower.stop()
        await until(lambda: fleet.controller.leads_first)
        assert found.missing == ""
        await until(lambda: len(alarms) > 1)
        assert alarms[-1].severity == "ok"
    finally:
        await fleet.stop()
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
