"""Work that recurs: it outlives what goes wrong, says so, and ends when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from strata.core.errors import Unavailable
from strata.fleet.recurring import Recurring


class Work:
    """Fails as ``fate`` says, time after time; then all is well."""

    def __init__(self, *fate: Exception | None) -> None:
        self.times = 0
        self._fate = list(fate)
        self._waiting: list[tuple[int, asyncio.Event]] = []

    async def __call__(self) -> None:
        self.times += 1
        for times, reached in self._waiting:
            if self.times >= times:
                reached.set()
        if self._fate and (error := self._fate.pop(0)) is not None:
            raise error

    async def begun(self, times: int) -> None:
        """Wait until it was begun so often."""
        reached = asyncio.Event()
        self._waiting.append((times, reached))
        await asyncio.wait_for(reached.wait(), 60)


def recurring(work: Work, pause: Callable[[], float] = lambda: 0.0) -> Recurring:
    return Recurring("test", work, pause, trouble="it is not done")


async def test_a_failure_shows_until_it_is_over_and_ends_nothing() -> None:
    work = Work(Unavailable("the store is away"))
    made = recurring(work, lambda: 0.0 if made.error == "" else 3600.0)
    await made.start()
    await work.begun(1)
    assert "the store is away" in made.error
    await made.stop()
    made = recurring(again := Work(Unavailable("the store is away"), None))
    await made.start()
    await again.begun(3)
    assert made.error == ""
    await made.stop()


async def test_an_error_that_nobody_thought_of_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(ZeroDivisionError("a mistake in the code"))
    made = recurring(work, lambda: 0.0 if made.error == "" else 3600.0)
    await made.start()
    await work.begun(1)
    assert made.error == "an internal error; the log has it"
    await made.stop()
    assert "a mistake in the code" in caplog.text
    made = recurring(again := Work(ZeroDivisionError("once more")))
    await made.start()
    await again.begun(2)
    await made.stop()


async def test_the_same_trouble_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(*[Unavailable("the store is away")] * 3, None, Unavailable("the store is away"))
    made = recurring(work)
    await made.start()
    await work.begun(6)
    await made.stop()
    assert [record.message for record in caplog.records] == ["it is not done"] * 2, "once each time that it began"


async def test_what_is_stopped_ends_in_the_middle_of_its_work() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    made = Recurring("test", work, lambda: 0.0, trouble="it is not done")
    await made.start()
    await begun.wait()
    await made.stop()
    assert ended.is_set()
    await made.stop()
