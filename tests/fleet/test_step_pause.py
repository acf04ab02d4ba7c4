"""The engine's steps leave room for others: the longer one took, the longer the pause before the next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strata.fleet.controller import controller as module
from strata.fleet.controller.clock import Clock
from strata.fleet.controller.controller import STEP_GAP, Controller
from strata.store.memory import MemoryStore
from support.pure_fleet import BUILT_IN


@pytest.mark.parametrize(("took", "pause"), [(0.0, STEP_GAP), (0.05, 0.1), (10.0, 0.25)])
async def test_a_long_step_is_followed_by_a_long_pause_which_has_an_end(
    monkeypatch: pytest.MonkeyPatch, took: float, pause: float
) -> None:
    now, pauses, enough = 0.0, [], asyncio.Event()
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if (task := asyncio.current_task()) is not None and task.get_name() == "Controller._run":
            pauses.append(seconds)
            enough.set()
            await asyncio.Event().wait()
        await real(seconds)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    found = Controller(MemoryStore(), BUILT_IN, {}, name="c", clock=Clock(now=lambda: now))
    step = found.engine.step

    def slow(*arguments: Any) -> Any:
        nonlocal now
        now += took
        return step(*arguments)

    monkeypatch.setattr(found.engine, "step", slow)
    await found.start()
    async with asyncio.timeout(60):
        await enough.wait()
    await found.stop()
    assert pauses == [pytest.approx(pause)]
