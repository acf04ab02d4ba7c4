"""Carries rollouts on: time and again, what each does next is found out and done. Only one controller does so, of those
that have the platform layer; the next one goes on from what is kept.

Everything that is done here may be done twice. Desires are set only where nobody has set others since; a record is
replaced only where it is still the one that was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import msgspec
import numpy as np

from strata.core.errors import Conflict, NotFound, StrataError
from strata.core.intset import pack, union, unpack
from strata.core.nodeset import fold
from strata.core.units import many, show_seconds
from strata.engine.decisions import Kind
from strata.fleet.alarm import Alarm
from strata.fleet.columns import Indices, Mask
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.batches import batch_of
from strata.fleet.recurring import Recurring
from strata.fleet.tasks import cancelled
from strata.platform.duty import PLATFORM
from strata.platform.no_workload import NoWorkload
from strata.platform.rollouts import next_step as course
from strata.platform.rollouts.checks import run_check
from strata.platform.rollouts.observation import Members, Uids, counts, sight, to_be_off
from strata.platform.rollouts.records import ENDED, Rollout, RolloutEvent
from strata.platform.settings import PlatformSettings
from strata.platform.workload.service import WorkloadService
from strata.store.protocol import Delete, Op
from strata.store.records import Records

log = logging.getLogger(__name__)

PAUSE = 2.0
"""Seconds between two looks at a rollout."""
_IDLE = 60.0
_STEPS = 20
"""Things done for one rollout before it is looked at anew after a pause."""
_EVENTS = 200
"""So many are kept of each: the first and the last."""
_OVER = ("running", *ENDED)
"""States in which nobody has to decide anything of one that had stopped."""


def limit_key(name: str) -> str:
    """Where the limits of a rollout are: a brake that every controller knows of before it hears of a desire."""
    return f"limit/rollout:{name}"


def author_of(name: str) -> str:
    """Who says what a rollout says."""
    return f"rollout:{name}"


class Conductor:
    """``start``, then ``stop``."""

    def __init__(self, fleet: Fleet, records: Records[Rollout]) -> None:
        self._fleet = fleet
        self.duty = fleet.controller.leadership.duty(PLATFORM)
        self._records = records
        self._settings = fleet.section(PlatformSettings)
        self._members: dict[str, tuple[float, Members]] = {}
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._round = Recurring("rollouts", self._go_round, self._pause, trouble="rollouts cannot be carried on")
        self.waits: dict[str, str] = {}
        """Rollout → what it waits for, as far as this controller carries it on."""
        self.start = self._round.start
        self.soon = self._round.soon

    async def stop(self) -> None:
        """Leave all as it is."""
        await self._round.stop()
        for task in list(self._turns.values()):
            await cancelled(task)

    def members(self, name: str, rollout: Rollout) -> Members:
        """Its nodes."""
        known = self._members.get(name)
        if known is None or known[0] != rollout.started:
            known = self._members[name] = (rollout.started, Members(rollout))
        return known[1]

    # the rounds

    def _active(self) -> list[str]:
        return [name for name, rollout in self._records.sorted if rollout.state not in ENDED]

    def _pause(self) -> float:
        return PAUSE if self._active() else _IDLE

    async def _go_round(self) -> None:
        if not self.duty.here:
            self.waits.clear()
            return
        for name in self._active():
            if name not in self._turns:
                self._turns[name] = task = asyncio.create_task(self._turn(name), name=name)
                task.add_done_callback(self._turned)

    def _turned(self, task: asyncio.Task[None]) -> None:
        self._turns.pop(task.get_name(), None)

    async def _turn(self, name: str) -> None:
        try:
            for _ in range(_STEPS):
                rollout = await self._records.fetch(name)
                if rollout is None or rollout.state in ENDED or not self.duty.here:
                    self.waits.pop(name, None)
                    return
                try:
                    if not await self._step(name, rollout):
                        return
                except Conflict:
                    continue  # a person was faster: what follows now may be something else
        except StrataError as error:
            self.waits[name] = f"trouble to be over: {error}"
            log.warning("a rollout cannot go on for now", extra={"rollout": name, "reason": str(error)})
        except Exception:
            self.waits[name] = "trouble to be over: an internal error; the log has it"
            log.exception("a rollout cannot go on", extra={"rollout": name})

    async def _step(self, name: str, rollout: Rollout) -> bool:
        """Do the next thing; whether another may follow at once."""
        fleet = self._fleet
        # What was written of it, its limits too, is known here and to the engine before anything follows from it.
        await fleet.considered(max(self._records.revision(name), fleet.registry.revision))
        seen = sight(fleet, rollout, self.members(name, rollout))
        match course.following(rollout, seen, fleet.controller.clock.wall()):
            case course.Set(nodes):
                due, busy = await self._due(rollout, seen, seen.uids[nodes])
                if not len(due):
                    self.waits[name] = self._waits_for_moment(rollout, int(nodes.sum()))
                    return False
                await self._set(name, rollout, due)
                if busy:
                    long = show_seconds(rollout.spec.drain_after)
                    text = f"{many(busy, 'node')} of wave {rollout.wave + 1} never without a job in {long}: drained"
                    await self.become(name, rollout, rollout, text)
            case course.Restore(nodes):
                await self.restore(name, rollout, nodes, seen.uids)
            case course.Check(check):
                await self._check(name, rollout, check)
            case course.Finish(late):
                await self._finish(name, rollout, seen.uids[late])
            case course.Become(text, fields):
                await self.become(name, rollout, msgspec.structs.replace(rollout, **fields), text)
            case course.Wait(words):
                self.waits[name] = words
                return False
        return True

    # what can be done

    async def become(
        self, name: str, old: Rollout, new: Rollout, text: str, *, author: str = "", action: str = "go-on"
    ) -> Rollout:
        """Keep ``new`` in the place of ``old``; ``Conflict`` where that is not what is kept any more."""
        fleet, clock = self._fleet, self._fleet.controller.clock
        author = author or author_of(name)
        event = RolloutEvent(time=clock.wall(), author=author, text=text)
        events = (*old.events, event)
        if len(events) > _EVENTS:
            events = (*events[: _EVENTS // 2], *events[-_EVENTS // 2 :])
        new = msgspec.structs.replace(new, events=events)
        also: list[Op] = []
        if new.wave != old.wave:
            broken = union(new.excused, self._broken(new, new.wave))
            new = msgspec.structs.replace(new, excused=broken, wave_began=clock.wall())
        if new.state == "rolling-back" != old.state:
            turned = counts(fleet, old, self.members(name, old))
            new = msgspec.structs.replace(new, turned=msgspec.structs.replace(turned, ready=0))
        if new.state in ENDED:
            final = new.final or new.turned or counts(fleet, old, self.members(name, old))
            new = msgspec.structs.replace(new, ended=clock.wall(), final=final)
            also.append(Delete(limit_key(name)))
        expected = self._records.revision(name)
        await self._records.put(author, name, new, expected=expected, action=action, detail={"what": text}, also=also)
        log.info("rollout: %s", text, extra={"rollout": name, "state": new.state})
        self._alarm(name, old, new, text, asked=author != author_of(name))
        self.soon()
        return new

    def broken(self, rollout: Rollout) -> Rollout:
        """With the nodes of the first wave excused that are broken already."""
        return msgspec.structs.replace(rollout, excused=self._broken(rollout, 0))

    def _broken(self, rollout: Rollout, wave: int) -> tuple[tuple[int, int], ...]:
        """The nodes of a wave of which nobody can expect that they get through it: those that are in trouble, that a
        person has, or that are to be off. They catch up when that is over."""
        uids = unpack(rollout.waves[wave])
        registry = self._fleet.registry
        nodes = registry.indices_of(uids)
        progress = self._fleet.controller.engine.progress
        bad = progress.fault[nodes] | progress.held[nodes] | (progress.kind[nodes] == Kind.STUCK)
        return pack(uids[(nodes >= 0) & (bad | to_be_off(self._fleet, rollout, nodes))])

    def _alarm(self, name: str, old: Rollout, new: Rollout, text: str, *, asked: bool) -> None:
        """Tell of what nobody ``asked`` for. One that stopped waits for a person; one that goes back by itself waits
        for nobody, so that nothing would ever say that its alert is over: it is something that happened."""
        if new.state == old.state:
            return
        alarm = Alarm(kind="rollout", message=f"{name}: {text}", about=name)
        if new.state == "stopped":
            self._fleet.alarm(alarm)
        elif new.state == "rolling-back" and not asked:
            self._fleet.alarm(msgspec.structs.replace(alarm, kind="rollout-failed"))
        elif new.state in _OVER and old.state != "running":
            self._fleet.alarm(msgspec.structs.replace(alarm, severity="ok"))

    async def _set(self, name: str, rollout: Rollout, uids: Uids) -> None:
        fleet = self._fleet
        revision = 0
        for some, off in self._by_power(rollout, uids):
            nodes = fleet.registry.indices_of(some)
            done = await fleet.edits.set_desires(
                nodes[nodes >= 0], rollout.set, (), author_of(name), if_match=rollout.seen, amend=off
            )
            revision = max(revision, done.revision)
        await fleet.considered(revision)

    def _by_power(self, rollout: Rollout, uids: Uids) -> Iterator[tuple[Uids, bool]]:
        """The nodes that are to be on, and those that are to be off, where there are any: what is set on the latter
        counts as said before."""
        nodes = self._fleet.registry.indices_of(uids)
        uids, nodes = uids[nodes >= 0], nodes[nodes >= 0]
        off = to_be_off(self._fleet, rollout, nodes)
        return ((uids[some], amend) for some, amend in ((~off, False), (off, True)) if some.any())

    async def restore(self, name: str, rollout: Rollout, mask: Mask, uids: Uids) -> None:
        """Want of these nodes what was wanted of them before."""
        fleet, members = self._fleet, self.members(name, rollout)
        read = fleet.registry.revision
        classes = members.before[np.searchsorted(members.uids, uids[mask])]
        revision = read
        for at, before in enumerate(rollout.before):
            unset = [variable for variable in rollout.set if variable not in before.set]
            for some, off in self._by_power(rollout, uids[mask][classes == at]):
                nodes = fleet.registry.indices_of(some)
                # Whoever says something else in this very moment, or has switched the node off, has the last word.
                done = await fleet.edits.set_desires(
                    nodes[nodes >= 0], before.set, unset, author_of(name), if_match=read, amend=off
                )
                revision = max(revision, done.revision)
        await fleet.considered(revision)

    async def _check(self, name: str, rollout: Rollout, check: str) -> None:
        command = self._settings.rollout_checks.get(check)
        if command is None:
            why = "this controller's configuration file does not name it"
        else:
            nodes = self._fleet.registry.indices_of(unpack(rollout.waves[rollout.wave]))
            names = fold(self._fleet.view.names(nodes[nodes >= 0]))
            self.waits[name] = f"check {check}"
            why = await run_check(command, name, rollout.wave + 1, names)
        if why:
            step = course.stop(rollout, f"check {check} failed for wave {rollout.wave + 1}: {why}")
        else:
            checked = (*rollout.checked, check)
            step = course.Become(f"check {check} passed for wave {rollout.wave + 1}", {"checked": checked})
        await self.become(name, rollout, msgspec.structs.replace(rollout, **step.fields), step.text)

    async def _finish(self, name: str, rollout: Rollout, late: Uids) -> None:
        fleet = self._fleet
        if len(late):
            await self._set(name, rollout, late)
        final = counts(fleet, rollout, self.members(name, rollout))
        passed = f"; {final.failed} failed" if final.failed else ""
        said = rollout.spec.document
        standing = fleet.registry.desires.documents.get(said) if said else None
        if standing is None:
            gone = f"; the document {said} is gone, so the nodes say it themselves" if said else ""
            new = msgspec.structs.replace(rollout, state="done", final=final)
            await self.become(name, rollout, new, f"done: {final.ready} of {final.nodes} nodes have it{passed}{gone}")
            return
        document = standing.document
        merged = msgspec.structs.replace(document, set={**document.set, **rollout.set})
        await fleet.considered(await fleet.edits.put_document(merged, author_of(name)))
        new = msgspec.structs.replace(rollout, state="finishing", final=final)
        await self.become(name, rollout, new, f"{final.ready} of {final.nodes} nodes have it{passed}")

    # when

    async def _due(self, rollout: Rollout, seen: course.Sight, uids: Uids) -> tuple[Uids, int]:
        """Those of the nodes whose moment it is, and how many of them have a job still."""
        if rollout.spec.when == "now":
            return uids, 0
        nodes = self._fleet.registry.indices_of(uids)
        uids, nodes = uids[nodes >= 0], nodes[nodes >= 0]
        if rollout.spec.when == "next-reboot":
            return uids[self._down(nodes)], 0
        try:
            busy = await self._busy(nodes)
        except NotFound:
            return uids[:0], 0  # a node went meanwhile: the next look knows
        idle = uids[~busy]
        overdue = uids[busy] if self._drains_in(rollout) <= 0 else uids[:0]
        # No more than have room: who waits for a place may have a job again when it gets one.
        engine = self._fleet.controller.engine
        room = engine.admission.budgets.places_left(engine.places) - int((seen.wanted & ~seen.begun).sum())
        due = np.concatenate((idle, overdue))[: max(0, int(min(room, len(uids))))]
        return due, max(0, len(due) - len(idle))

    def _drains_in(self, rollout: Rollout) -> float:
        """Seconds until nodes of the wave are drained that are never without a job."""
        began = rollout.started if rollout.wave_began is None else rollout.wave_began
        return began + rollout.spec.drain_after - self._fleet.controller.clock.wall()

    def _waits_for_moment(self, rollout: Rollout, nodes: int) -> str:
        """What the nodes wait for whose turn it is, in words."""
        of = f"{many(nodes, 'node')} of wave {rollout.wave + 1}"
        if rollout.spec.when == "next-reboot":
            return f"the next reboot of {of}"
        left = self._drains_in(rollout)
        if left > 0:
            return f"the jobs on {of} to end; those that are never without one are drained in {show_seconds(left)}"
        return f"a place for {of} that are never without a job: they are drained one after the other"

    def _down(self, nodes: Indices) -> Mask:
        """Which nodes run nothing now."""
        view, variables = self._fleet.view, self._fleet.controller.model.variables
        down = np.zeros(len(nodes), dtype=np.bool_)
        if "power" in variables:
            down |= view.fact_mask("power", "off")[nodes]
        if "os" in variables:
            down |= view.fact_mask("os", "down")[nodes]
        return down

    async def _busy(self, nodes: Indices) -> Mask:
        """On which nodes a job runs, as far as anybody knows."""
        fleet = self._fleet
        workload = fleet.services.find(WorkloadService)
        if workload is not None and fleet.driver(NoWorkload.name) is workload.driver:
            return np.array(await workload.busy(fleet.view.names(nodes)), dtype=np.bool_)
        said = await fleet.controller.permits("no-running-job", batch_of(fleet.registry, nodes))
        return np.array([bool(word) for word in said], dtype=np.bool_)
