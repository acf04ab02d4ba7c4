"""Records that the fleet makes for a room."""

from __future__ import annotations

from pathlib import Path

import msgspec

from strata.daemon.settings import Settings
from strata.fleet.controller.controller import Controller
from strata.store.memory import MemoryStore
from support.pure_fleet import BUILT_IN
from support.rooms import OpenFleet


class Lamp(msgspec.Struct, frozen=True):
    watts: int


async def test_a_room_is_told_that_all_records_come_anew(tmp_path: Path) -> None:
    store = MemoryStore()
    controller = Controller(store, BUILT_IN, {}, name="c1", history=tmp_path / "history.db")
    told: list[object] = []
    lamps = OpenFleet(controller, Settings(state_dir=tmp_path)).records(
        Lamp, kind="lamp", changed=lambda name, _: told.append(name), cleared=lambda: told.append("all anew")
    )
    await lamps.start()
    await lamps.put("ann", "desk", Lamp(7))
    await lamps.stop()
    assert told == ["all anew", "desk"]
    await store.close()
