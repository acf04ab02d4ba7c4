"""Looks that show nothing: why says what the matter is, there is an alert for it, and it is in the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from strata.core.model import Layer, Model, Mutation, Variable, values
from strata.core.node import Node
from strata.daemon.settings import Settings
from strata.engine.settings import EngineSettings
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.alarm import Alarm
from strata.fleet.controller.controller import Controller
from strata.fleet.controller.silent_nodes import LOOKS, Silences
from strata.fleet.drivers.exec_driver import ExecDriver
from strata.store.memory import MemoryStore
from support.rooms import OpenFleet

pytestmark = pytest.mark.slow

MODEL = Model.of(
    Layer(
        variables=(Variable(name="door", values=("open", "shut"), observer="site"),),
        mutations=(Mutation(name="shut", variable="door", start=values("open"), to="shut", driver="site"),),
    )
)


class Site:
    """One node, looked at by the site's command, which does what ``script`` says now."""

    def __init__(self, fleet: OpenFleet, script: Path) -> None:
        self.fleet = fleet
        self.alarms: list[Alarm] = []
        self._script = script
        fleet.alarms.append(self.alarms.append)

    def does(self, script: str) -> None:
        self._script.write_text(script)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                self.fleet.silences.reckon()
                await asyncio.sleep(0.02)

    async def told(self) -> Alarm:
        """The next alarm."""
        await self.until(lambda: bool(self.alarms))
        return self.alarms.pop(0)


@contextlib.asynccontextmanager
async def a_site(
    directory: Path, command: list[str] | None = None, *, timeout: float = 60.0, look_timeout: float = 120.0
) -> AsyncIterator[Site]:
    script = directory / "look"
    store = MemoryStore()
    driver = ExecDriver("site", command or ["/bin/sh", str(script)], timeout=timeout)
    engine = EngineSettings(blind_look=0.05, look_timeout=look_timeout)
    controller = Controller(store, MODEL, {"site": driver}, name="c1", engine=engine)
    fleet = OpenFleet(controller, Settings(state_dir=directory))
    site = Site(fleet, script)
    site.does("""cat > /dev/null; echo '{"n1": {"door": "open"}}'""")
    await controller.start()
    try:
        await fleet.edits.create_nodes([Node(name="n1", uid=0)], "test")
        await fleet.settled(await store.revision())
        yield site
    finally:
        await controller.stop()
        await store.close()


async def want(site: Site) -> None:
    await site.fleet.edits.set_desires(site.fleet.registry.select("n1"), {"door": "shut"}, (), "test")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("sleep 60", "0.5 s"),
        ("echo it is jammed >&2; exit 3", "ended with status 3: it is jammed"),
        ("echo rubbish", "not JSON"),
        ("echo '[]'", "not a JSON object"),
        ("echo '{}'", "did not say anything of it"),
        ("""echo '{"n1": 7}'""", "not an object of variables"),
        ("""echo '{"n1": {}}'""", "does not know door"),
        ("""echo '{"n1": {"door": 7}}'""", "said 7 for door, not a text"),
        ("""echo '{"n1": {"door": "ajar"}}'""", "'ajar', which is none of open, shut"),
    ],
)
async def test_what_is_wrong_with_a_sites_look_is_in_why_in_an_alarm_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, script: str, why: str
) -> None:
    caplog.set_level(logging.WARNING)
    # A busy machine may need long to start a shell: only who is to be stopped is given little time.
    async with a_site(tmp_path, timeout=0.5 if script.startswith("sleep") else 60.0) as site:
        site.does(f"cat > /dev/null; {script}")
        await want(site)
        alarm = await site.told()
        assert (alarm.kind, alarm.node, alarm.about, alarm.severity) == ("look-failed", "n1", "site", "warning")
        assert why in alarm.message
        answer = await site.fleet.why(LOCAL_ADMIN, "n1")
        assert why in answer.summary
        assert any(why in str(record.__dict__.get("why", "")) for record in caplog.records)


async def test_a_command_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    async with a_site(tmp_path, [str(tmp_path / "nowhere")]) as site:
        await want(site)
        assert str(tmp_path / "nowhere") in (await site.told()).message


async def test_whoever_tells_of_its_silence_itself_is_not_told_of_for_every_node(tmp_path: Path) -> None:
    async with a_site(tmp_path) as site:
        site.fleet.silences.elsewhere.add("site")
        site.does("exit 3")
        await want(site)
        observer = site.fleet.controller.engine.facts.observers["site"]
        await site.until(lambda: bool((observer.blind >= LOOKS + 1).any()))
        assert site.alarms == []
        assert "status 3" in (await site.fleet.why(LOCAL_ADMIN, "n1")).summary


async def test_an_alarm_follows_what_is_the_matter_and_ends_when_it_is_over(tmp_path: Path) -> None:
    async with a_site(tmp_path) as site:
        site.does("exit 3")
        await want(site)
        assert "status 3" in (await site.told()).message
        site.does("exit 4")
        assert "status 4" in (await site.told()).message
        site.does("""cat > /dev/null; echo '{"n1": {"door": "shut"}}'""")
        over = await site.told()
        assert (over.severity, over.message) == ("ok", "site sees it again")
        assert not site.alarms


async def test_where_nothing_is_wanted_of_what_cannot_be_seen_nobody_is_alarmed_but_by_drivers_that_see_all(
    tmp_path: Path,
) -> None:
    async with a_site(tmp_path) as site:
        site.does("exit 3")
        observer = site.fleet.controller.engine.facts.observers["site"]
        await site.until(lambda: bool(observer.blind[0] >= 3))
        site.fleet.silences.reckon()
        assert not site.alarms
        site.fleet.silences.always.add("site")
        assert "status 3" in (await site.told()).message


async def test_what_was_told_before_a_restart_ends_when_the_node_is_seen(tmp_path: Path) -> None:
    async with a_site(tmp_path) as site:
        silences = Silences(site.fleet.controller, site.alarms.append)
        silences.knew("site", "n1")
        silences.knew("site", "gone")
        column = site.fleet.controller.engine.table.columns["door"]
        await site.until(lambda: bool(column.fact[0]))
        silences.reckon()
        assert {(alarm.node, alarm.severity) for alarm in site.alarms} == {("n1", "ok"), ("gone", "ok")}


async def test_a_look_that_never_ends_says_how_long_was_waited(tmp_path: Path) -> None:
    async with a_site(tmp_path, look_timeout=1.0) as site:
        site.does("exec sleep 60")
        await want(site)
        assert "no answer in 1 s" in (await site.told()).message
