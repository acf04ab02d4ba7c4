"""The hub of attached agents, by itself: sequence, delivery, silence. A clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest, Denied, Unavailable
from strata.fleet.alarm import Alarm
from strata.provisioning.agents.agent import MOST_PENDING, RESEND_AFTER
from strata.provisioning.agents.hub import LEAST_PAUSE, LONGEST_PAUSE, SILENT_AFTER, Hub, Misdirected
from strata.provisioning.agents.wire import Exchange, Reply, Result
from support.alarms import Alarms


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    def __init__(self, **more: Any) -> None:
        self.clock = Clock()
        self.told: list[set[str]] = []
        self.leads = True
        self.measured: list[tuple[str, Any]] = []
        self.hub = Hub(
            known=lambda name: name.startswith("n"),
            leads=lambda name: self.leads,
            measured=lambda name, metrics: self.measured.append((name, metrics)),
            clock=self.clock,
            **more,
        )
        self.hub.changed.append(self._changed)
        self._seq: dict[str, int] = {}

    def _changed(self, names: Collection[str]) -> None:
        self.told.append(set(names))

    async def ask(self, node: str = "n1", *, wait: float = 0.0, **more: Any) -> Reply:
        return await self.hub.exchange(node, self.request(node, wait=wait, **more))

    def request(self, node: str = "n1", *, seq: int | None = None, state: Any = None, **more: Any) -> Exchange:
        self._seq[node] = seq if seq is not None else self._seq.get(node, 0) + 1
        raw = msgspec.Raw(msgspec.json.encode(state if state is not None else {}))
        return Exchange(**{"generation": 1, "boot_id": "b1", "seq": self._seq[node], "state": raw, **more})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.hub.stop()


def ok(ident: str, **more: Any) -> tuple[Result, ...]:
    return (Result(id=ident, ok=True, **more),)


async def test_an_agent_that_speaks_is_attached_and_one_that_is_silent_is_not(world: World) -> None:
    assert not world.hub.attached("n1")
    await world.ask()
    assert world.hub.attached("n1")
    world.clock.now += SILENT_AFTER + 1
    assert not world.hub.attached("n1")
    world.hub.sweep()
    assert world.hub.attached_count == 0


async def test_an_agent_in_doubt_that_lives_says_so_at_once(world: World) -> None:
    await world.ask()
    held = asyncio.create_task(world.ask(wait=20))
    await asyncio.sleep(0)
    doubt = world.hub.doubt("n1")
    assert world.hub.doubt("n1") is doubt, "it is asked once, however many doubt it"
    assert not (await held).commands, "its request ended: it asks again at once"
    await world.ask()
    assert await doubt is True
    assert world.hub.attached("n1")


async def test_an_agent_in_doubt_that_is_silent_is_gone_long_before_it_would_be_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.provisioning.agents.hub.ANSWERS_WITHIN", 0.01)
    await world.ask()
    assert await world.hub.doubt("n1") is False
    assert not world.hub.attached("n1")
    agent = world.hub.get("n1")
    assert agent is not None and agent.missed == world.clock.now
    assert await world.hub.doubt("n1") is False
    await world.ask()
    assert world.hub.attached("n1"), "one that speaks all the same is there"


async def test_a_node_that_is_none_any_more_is_refused(world: World) -> None:
    with pytest.raises(Denied):
        await world.ask("gone")


async def test_a_state_that_makes_no_sense_is_refused_and_changes_nothing(world: World) -> None:
    with pytest.raises(BadRequest, match="set"):
        await world.ask(state={"set": 7})
    assert world.hub.get("n1") is None


async def test_a_command_ends_a_held_request_and_its_result_ends_the_wait(world: World) -> None:
    await world.ask()
    held = asyncio.create_task(world.ask(wait=20))
    await asyncio.sleep(0)
    assert world.hub.held == 1
    command = world.hub.send("n1", "exec", {"argv": ["true"]}, epoch=7, timeout=5)
    reply = await held
    assert [dict(c) for c in reply.commands] == [
        {"id": command.id, "kind": "exec", "argv": ["true"], "epoch": 7, "timeout": 5}
    ]
    assert (await world.ask(results=ok(command.id, exit=3))).acked == (command.id,)
    result = await command.result
    assert result is not None and result.exit == 3
    assert world.hub.get("n1").outbox == {}  # type: ignore[union-attr]


async def test_a_command_whose_reply_was_lost_is_sent_again_and_one_that_is_being_done_is_not(world: World) -> None:
    await world.ask()
    command = world.hub.send("n1", "stop")
    assert len((await world.ask()).commands) == 1
    assert len((await world.ask()).commands) == 0, "not at once: the reply may be on its way"
    world.clock.now += RESEND_AFTER
    assert [c["id"] for c in (await world.ask()).commands] == [command.id]
    world.clock.now += RESEND_AFTER
    assert len((await world.ask(doing=(command.id,))).commands) == 0
    world.clock.now += RESEND_AFTER
    assert len((await world.ask()).commands) == 0


async def test_a_newer_request_ends_the_older_one_and_an_overtaken_one_says_nothing(world: World) -> None:
    await world.ask()
    old = asyncio.create_task(world.ask(wait=20))
    await asyncio.sleep(0)
    new = asyncio.create_task(world.ask(wait=20, state={"set": {"name": "s", "state": "active"}}))
    assert (await old).commands == ()
    world.hub.send("n1", "stop")
    assert len((await new).commands) == 1
    late = world.request(seq=2, state={"set": {"name": "before"}})
    assert (await world.hub.exchange("n1", late)).acked == ()
    assert world.hub.get("n1").seen.set_name == "s"  # type: ignore[union-attr]


async def test_an_agent_that_was_started_anew_counts_from_the_beginning(world: World) -> None:
    for _ in range(5):
        await world.ask(state={"agent": {"started": 1.0}})
    await world.ask(seq=1, state={"agent": {"started": 2.0}, "profile": "p"})
    assert world.hub.get("n1").seen.profile == "p"  # type: ignore[union-attr]


async def test_what_a_boot_was_told_ends_with_it(world: World) -> None:
    await world.ask()
    command = world.hub.send("n1", "stop")
    reply = await world.ask(generation=2, boot_id="b2")
    assert reply.commands == ()
    assert await command.result is None
    with pytest.raises(Denied):
        await world.ask(generation=1)


async def test_a_boot_that_was_never_handed_out_is_refused_with_an_alarm_and_remembered_nowhere() -> None:
    alarms: list[Alarm] = []
    world = World(issued={"n1": 3}.__getitem__, alarm=alarms.append)
    for claimed in (4, 2**53):
        with pytest.raises(Denied, match="no such boot was handed out"):
            await world.ask(generation=claimed)
    assert world.hub.get("n1") is None
    assert [(alarm.kind, alarm.node) for alarm in alarms] == [("generation-refused", "n1")] * 2
    await world.ask(generation=3)
    assert world.hub.attached("n1"), "who lied once is heard as soon as it tells the truth"


async def test_what_is_wrong_with_a_node_is_told_when_it_changes_and_when_it_is_over() -> None:
    alarms = Alarms()
    world = World(unwell=alarms.append)

    async def says(*problems: str) -> None:
        await world.ask(state={"health": {"ok": not problems, "problems": problems}})

    await says()
    await says("sda2 (/) is full: 3 of 1000 MiB left")
    await says("sda2 (/) is full: 2 of 1000 MiB left")
    assert [(alarm.kind, alarm.node, alarm.severity, alarm.message) for alarm in alarms] == [
        ("node-unhealthy", "n1", "warning", "sda2 (/) is full: 3 of 1000 MiB left")
    ], "that a number is another is no news"
    await says("sda2 (/) is full: 2 of 1000 MiB left", "disk sdb is offline")
    assert len(alarms) == 2 and "sdb is offline" in alarms[-1].message
    alarms.over.clear()
    await says()
    assert alarms.over == [("node-unhealthy", "n1")]


async def test_a_node_whose_boots_are_counted_anew_is_heard_again() -> None:
    issued = {"n1": 40}
    world = World(issued=issued.__getitem__)
    await world.ask(generation=40)
    issued["n1"] = 2  # the store was restored, or the node was deleted and added anew
    await world.ask(generation=2, boot_id="b2")
    assert world.hub.get("n1").seen.generation == 2  # type: ignore[union-attr]


async def test_an_agent_in_whose_name_somebody_counted_too_far_is_still_told_what_to_do(world: World) -> None:
    await world.ask()
    await world.ask(seq=2**53)
    command = world.hub.send("n1", "stop")
    assert [c["id"] for c in (await world.ask(seq=2)).commands] == [command.id]
    assert (await world.ask(results=ok(command.id))).acked == (command.id,)


async def test_a_result_that_nobody_waits_for_is_acknowledged(world: World) -> None:
    assert (await world.ask(results=ok("before-restart"))).acked == ("before-restart",)


async def test_nobody_is_told_who_is_not_there_and_nobody_is_told_too_much(world: World) -> None:
    with pytest.raises(Unavailable, match="not attached"):
        world.hub.send("n1", "stop")
    await world.ask()
    for _ in range(MOST_PENDING):
        world.hub.send("n1", "stop")
    with pytest.raises(Unavailable, match="wait for this node already"):
        world.hub.send("n1", "stop")


async def test_what_a_person_says_has_no_fence(world: World) -> None:
    await world.ask()
    world.hub.send("n1", "exec", {"argv": ["true"]})
    assert "epoch" not in (await world.ask()).commands[0]


async def test_a_node_that_lost_its_power_is_not_attached_until_it_speaks(world: World) -> None:
    await world.ask()
    world.hub.cut_off("n1")
    assert not world.hub.attached("n1")
    await world.ask()
    assert world.hub.attached("n1")


async def test_a_cancelled_command_is_not_sent_or_the_agent_is_told_to_end_it(world: World) -> None:
    await world.ask()
    unsent = world.hub.send("n1", "exec")
    world.hub.cancel(unsent)
    assert (await world.ask()).commands == () and await unsent.result is None
    sent = world.hub.send("n1", "exec")
    await world.ask()
    world.hub.cancel(sent)
    assert [(c["kind"], c["of"]) for c in (await world.ask()).commands] == [("cancel", sent.id)]


async def test_a_command_that_is_never_answered_ends_by_itself(world: World) -> None:
    await world.ask()
    command = world.hub.send("n1", "exec", timeout=-15)  # its time, and the slack, are over at once
    assert await command.result is None


async def test_changes_are_told_together_and_only_changes(world: World) -> None:
    await asyncio.gather(*(world.ask(f"n{i}") for i in range(10)))
    await asyncio.sleep(0.1)
    assert world.told == [{f"n{i}" for i in range(10)}]
    await world.ask("n3")
    await world.ask("n4", state={"set": {"state": "error", "reason": "it broke"}})
    await asyncio.sleep(0.1)
    assert world.told[1:] == [{"n4"}]


async def test_where_another_controller_leads_the_agent_is_sent_there_and_still_heard(world: World) -> None:
    world.leads = False
    with pytest.raises(Misdirected):
        await world.ask(state={"profile": "p"})
    assert world.hub.attached("n1"), "it lives, and that is known"


async def test_more_than_can_be_held_are_told_when_to_come_again() -> None:
    world = World(hold_most=2)
    try:
        held = [asyncio.create_task(world.ask(f"n{i}", wait=20)) for i in range(2)]
        await asyncio.sleep(0)
        reply = await world.ask("n9", wait=20, results=ok("x1"))
        assert world.hub.attached("n9") and reply.acked == ("x1",), "it was heard"
        assert 0.5 * LEAST_PAUSE < reply.pause <= LEAST_PAUSE
        command = world.hub.send("n9", "stop")
        told = await world.ask("n9", wait=20)
        assert [one["id"] for one in told.commands] == [command.id], "and is told what there is to do"
        assert told.pause == 0.0, "what comes of it is wanted at once"
        assert (await world.ask("n9", wait=0)).pause == 0.0, "who does not want to wait is not too many"
    finally:
        await world.hub.stop()
    assert {reply.pause for reply in await asyncio.gather(*held)} == {0.0}


async def test_the_more_are_too_many_the_later_they_come_again_and_not_all_at_once() -> None:
    world = World(hold_most=0)
    try:
        for i in range(2000):
            await world.ask(f"n{i}")
        pauses = [(await world.ask(f"n{i}", wait=20)).pause for i in range(200)]
        assert 7 < min(pauses) < 8 < max(pauses) <= 10, "two hundred a second"
        for i in range(2000, 8000):
            await world.ask(f"n{i}")
        pauses = [(await world.ask(f"n{i}", wait=20)).pause for i in range(200)]
        assert max(pauses) <= LONGEST_PAUSE < SILENT_AFTER / 2
    finally:
        await world.hub.stop()


async def test_an_agent_that_is_held_and_has_news_keeps_its_place() -> None:
    world = World(hold_most=1)
    try:
        old = asyncio.create_task(world.ask(wait=20))
        await asyncio.sleep(0)
        new = asyncio.create_task(world.ask(wait=20))
        assert (await old).pause == 0.0
        assert world.hub.held == 1 and not new.done()
        assert (await world.ask("n2", wait=20)).pause > 0
    finally:
        await world.hub.stop()
    await new
    assert world.hub.held == 0


async def test_a_short_command_for_one_that_stays_away_is_kept_until_it_comes() -> None:
    world = World(hold_most=0)
    try:
        pause = (await world.ask(wait=20)).pause
        before = asyncio.get_running_loop().time()
        command = world.hub.send("n1", "exec", timeout=1.0)
        assert command.expiry is not None and command.expiry.when() >= before + pause + 1.0 + 15.0
    finally:
        await world.hub.stop()


async def test_a_node_that_is_gone_is_forgotten_and_its_agent_let_go(world: World) -> None:
    held = asyncio.create_task(world.ask(wait=20))
    await asyncio.sleep(0)
    command = world.hub.send("n1", "stop")
    assert (await held).commands
    held = asyncio.create_task(world.ask(wait=20))
    await asyncio.sleep(0)
    world.hub.forget("n1")
    assert (await held).commands == () and await command.result is None
    assert world.hub.get("n1") is None and world.hub.attached_count == 0 and world.hub.held == 0
    await world.ask(seq=1, generation=0, boot_id="b0")
    assert world.hub.attached("n1"), "another node of that name begins anew"


async def test_an_agent_that_is_started_again_within_its_boot_is_told_of() -> None:
    again: list[str] = []
    world = World(restarted=again.append)
    try:
        for started in (1.0, 1.0):
            await world.ask(state={"agent": {"started": started}})
        assert again == []
        await world.ask(seq=1, state={"agent": {"started": 2.0}})
        assert again == ["n1"]
        await world.ask(state={"agent": {"started": 2.0}})
        await world.ask(seq=1, boot_id="b2", generation=2, state={"agent": {"started": 3.0}})
        assert again == ["n1"], "a new boot has a new agent"
        world.hub.cut_off("n1")
        await world.ask(seq=1, boot_id="b2", generation=2, state={"agent": {"started": 4.0}})
        assert again == ["n1"], "another controller may have seen it meanwhile"
    finally:
        await world.hub.stop()


async def test_many_that_fall_silent_together_are_our_own_fault(world: World) -> None:
    for i in range(10):
        await world.ask(f"n{i}")
    world.clock.now += SILENT_AFTER - 1
    for i in range(8):
        await world.ask(f"n{i}")
    world.clock.now += 2
    world.hub.sweep()
    assert world.hub.attached_count == 8 and not world.hub.many_lost()
    world.clock.now += SILENT_AFTER
    world.hub.sweep()
    assert world.hub.many_lost()
    world.clock.now += 10 * SILENT_AFTER
    world.hub.sweep()
    assert not world.hub.many_lost(), "it is over some time"


async def test_agents_that_went_to_another_leader_are_not_lost(world: World) -> None:
    for i in range(10):
        await world.ask(f"n{i}")
    world.leads = False
    for i in range(10, 20):
        with pytest.raises(Misdirected):
            await world.ask(f"n{i}")
    world.clock.now += SILENT_AFTER + 1
    world.hub.sweep()
    assert world.hub.attached_count == 0 and not world.hub.many_lost()


async def test_what_is_measured_is_handed_on(world: World) -> None:
    await world.ask(state={"metrics": {"energy_j": {"package-0": 5.0}}})
    assert world.measured == [("n1", {"energy_j": {"package-0": 5.0}})]


async def test_a_hub_that_stops_sends_everybody_away(world: World) -> None:
    held = asyncio.create_task(world.ask(wait=20))
    other = asyncio.create_task(world.ask("n2", wait=20))
    await asyncio.sleep(0)
    world.hub.quiet()
    assert (await held).commands == (await other).commands == ()
    with pytest.raises(Unavailable):
        await world.ask(wait=20)
    command = world.hub.send("n1", "exec")
    await world.hub.stop()
    assert await command.result is None


async def test_a_command_of_an_agent_that_is_gone_is_not_waited_for(world: World) -> None:
    """Whoever waits would not look at the node meanwhile, and not see that it lost its power."""
    await world.ask()
    command = world.hub.send("n1", "switch", timeout=300)
    world.hub.cut_off("n1")
    assert command.result.result() is None
    await world.ask()
    silent = world.hub.send("n1", "switch", timeout=300)
    world.clock.now += SILENT_AFTER + 1
    world.hub.sweep()
    assert silent.result.result() is None


async def test_an_agent_that_is_held_while_the_lead_moves_is_let_go_so_that_it_finds_the_new_leader(
    world: World,
) -> None:
    await world.ask()
    held = asyncio.create_task(world.ask(wait=20.0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert world.hub.held == 1
    world.hub.sweep()
    assert not held.done(), "who leads it keeps it"
    world.leads = False
    world.hub.sweep()
    assert (await asyncio.wait_for(held, 120)).commands == ()
    with pytest.raises(Misdirected):
        await world.ask()
