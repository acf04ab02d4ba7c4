"""Who is attached: the agents that talk to this controller, what they last said, and what they are told.

All in memory: a controller that starts anew knows nobody, and agents come back by themselves and tell. A command is
kept until its result is there or its time is over; one whose delivery is in doubt is sent again, and an agent does
nothing twice. Knows neither HTTP nor what a command means.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from strata.core.errors import Denied, Unavailable
from strata.core.input.decoding import decoded
from strata.fleet.alarm import Alarm, AlarmSeverity, AlarmSink
from strata.fleet.tasks import all_cancelled
from strata.provisioning.agents.agent import MOST_PENDING, RESEND_AFTER, Agent, Command, Seen
from strata.provisioning.agents.wire import MOST_WAIT, Exchange, Reply, Result, State

SILENT_AFTER = 60.0
"""Seconds without a word after which an agent counts as gone."""
FORGET_AFTER = 7 * 86400.0
"""Seconds after which what a silent agent last said is forgotten."""

ANSWERS_WITHIN = 5.0
"""Seconds in which an agent whose node is said to have died must speak: one that lives does so at once."""
LEAST_PAUSE, LONGEST_PAUSE = 2.0, 20.0
"""Seconds after which an agent that cannot be held comes again; well under ``SILENT_AFTER``."""

_COMING = 200.0  # agents a second that come again, as long as that keeps the pause under the longest
_OVERTAKEN = 16  # requests that one can be behind the newest: an agent has one or two under way
_SLACK = 15.0  # seconds beyond a command's own limit until its result is not waited for any more
_SWEEP = 5.0
_GATHER = 0.05  # seconds between tellings at the least: what changes meanwhile is gathered

_NUMBERS = re.compile(r"[0-9]+")

_decode_state = msgspec.json.Decoder(State).decode


class News:
    """Gathers names for ``tell``. ``note`` must be called in the loop."""

    def __init__(self, tell: Callable[[Collection[str]], None]) -> None:
        self._tell = tell
        self._names: set[str] = set()
        self._telling: asyncio.TimerHandle | None = None
        self._last = 0.0
        self._over = False

    def note(self, name: str) -> None:
        """Something changed about it: tell at once, or together with what else changes where much does."""
        self._names.add(name)
        if self._telling is None and not self._over:
            loop = asyncio.get_running_loop()
            self._telling = loop.call_at(max(loop.time(), self._last + _GATHER), self._told)

    def hush(self) -> None:
        """What is noted from now on is not told; what was noted before still is, unless ``stop`` comes first."""
        self._over = True

    def stop(self) -> None:
        """Tell nothing any more."""
        self._over = True
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _told(self) -> None:
        self._telling, self._last = None, asyncio.get_running_loop().time()
        names, self._names = self._names, set()
        self._tell(names)


class Misdirected(Unavailable):
    """Another controller leads the node: its agent should talk to that one."""

    status = 421
    title = "Misdirected"


class Hub:
    """The agents of one controller. ``start``, then ``stop``."""

    def __init__(
        self,
        *,
        known: Callable[[str], bool] = lambda name: True,
        leads: Callable[[str], bool] = lambda name: True,
        measured: Callable[[str, Mapping[str, Any]], None] = lambda name, metrics: None,
        restarted: Callable[[str], None] = lambda name: None,
        damaged: Callable[[str, Mapping[str, str]], None] = lambda name, images: None,
        issued: Callable[[str], int] = lambda name: 2**53,
        alarm: AlarmSink = lambda alarm: None,
        unwell: AlarmSink = lambda alarm: None,
        hold_most: int = 4000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``known``: whether there is such a node. ``leads``: whether this controller acts for it. ``measured``: takes
        what an agent measured. ``restarted``: takes a node whose agent was started again while its boot went on.
        ``damaged``: takes the images that newly came to an agent otherwise than signed, and how. ``issued``: the newest
        boot generation that was handed out to a node: nobody speaks for one that was not, and ``alarm`` is told who
        does. ``unwell``: told what is wrong with a node as its agent sees it, whenever that has changed. ``hold_most``:
        requests that are held open at one time; who comes beyond them is heard, told what there is to do, and when to
        come again."""
        self._known = known
        self._leads = leads
        self.changed: list[Callable[[Collection[str]], None]] = []
        """Take the nodes whose agents came, went or are different now."""
        self._news = News(self._tell)
        self._measured = measured
        self._restarted = restarted
        self._damaged = damaged
        self._issued = issued
        self._alarm = alarm
        self._unwell = unwell
        self._hold_most = hold_most
        self.clock = clock
        """What the times of agents are of."""
        self._agents: OrderedDict[str, Agent] = OrderedDict()  # the one that was silent longest first
        self._instance = secrets.token_hex(4)
        self._count = 0
        self._sweeper: asyncio.Task[None] | None = None
        self._lost: OrderedDict[str, float] = OrderedDict()
        self._doubted: dict[str, asyncio.Future[bool]] = {}
        self._stopping = False
        self.started = clock()
        """When this controller began to listen (monotonic)."""
        self.held = 0
        """Requests that are held open now."""
        self.attached_count = 0

    async def start(self) -> None:
        """Begin to notice who falls silent."""
        self._sweeper = asyncio.create_task(self._sweep(), name="agents that fell silent")

    async def stop(self) -> None:
        """Send everybody away: they go on by themselves, and come back to whoever listens next."""
        self.quiet()
        if self._sweeper is not None:
            await all_cancelled([self._sweeper])
            self._sweeper = None
        self._news.stop()
        for doubt in self._doubted.values():
            _resolve(doubt, True)
        for agent in self._agents.values():
            agent.end_all()

    def quiet(self) -> None:
        """Hold nobody any more: the service is about to stop."""
        self._stopping = True
        self._news.hush()
        for agent in self._agents.values():
            if agent.poll is not None:
                _resolve(agent.poll, False)

    # -- who is there --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._agents)

    def get(self, name: str) -> Agent | None:
        """What is known of the node's agent; None: it has not spoken to this controller."""
        return self._agents.get(name)

    def agents(self) -> list[Agent]:
        """All that have spoken to this controller, attached or not."""
        return list(self._agents.values())

    def attached(self, name: str) -> bool:
        """Whether the node's agent speaks to this controller now."""
        agent = self._agents.get(name)
        return agent is not None and agent.attached and self.clock() - agent.contact <= SILENT_AFTER

    def many_lost(self) -> bool:
        """Whether so many agents fell silent lately that the fault is likely on our side: the network, or ourselves."""
        return len(self._lost) >= 3 and len(self._lost) > 0.2 * (self.attached_count + len(self._lost))

    def cut_off(self, name: str) -> None:
        """The node has no power: its agent is not attached until it speaks again."""
        agent = self._agents.get(name)
        if agent is not None:
            self._detach(agent)

    def doubt(self, name: str) -> asyncio.Future[bool]:
        """Somebody says that what runs on the node has died: done with whether its agent speaks, which it does at once
        if it lives. One that does not is not attached any more. Must be called in the loop."""
        loop, agent = asyncio.get_running_loop(), self._agents.get(name)
        if name in self._doubted:
            return self._doubted[name]
        answer: asyncio.Future[bool] = loop.create_future()
        if agent is None or not self.attached(name):
            answer.set_result(False)
            return answer
        self._doubted[name] = answer
        loop.call_later(agent.pause + ANSWERS_WITHIN, self._give_up, agent, answer)
        if agent.poll is not None:
            _resolve(agent.poll, False)
        return answer

    def _give_up(self, agent: Agent, answer: asyncio.Future[bool]) -> None:
        if not answer.done():
            del self._doubted[agent.name]
            agent.missed = self.clock()
            self._detach(agent)
            answer.set_result(False)

    def begins_anew(self, name: str) -> None:
        """A new boot of the node has begun: whatever ran there is over, and is to be looked at so."""
        self.cut_off(name)
        self._news.note(name)

    def forget(self, name: str) -> None:
        """The node is gone for good: another one of that name has an agent when that speaks."""
        agent = self._agents.pop(name, None)
        self._lost.pop(name, None)
        if agent is not None:
            self._detach(agent)
            if agent.poll is not None:
                _resolve(agent.poll, False)

    # -- what they say -------------------------------------------------------------------------------------------------

    async def exchange(self, name: str, request: Exchange) -> Reply:
        """Take what the agent says; answer when there is something for it to do, or its time is over."""
        if not self._known(name):
            raise Denied("there is no such node any more", where=name)
        state = decoded(_decode_state, request.state, "state")
        arrived = self.clock()
        agent, fresh = self._hear(name, request, state, arrived)
        acked = tuple(result.id for result in request.results)
        if not fresh:
            return Reply(acked=(), commands=(), wait=request.wait)
        for result in request.results:
            self._take(agent, result)
        for ident in request.doing:
            if ident in agent.outbox:
                agent.outbox[ident].received = True
        if not self._leads(name):
            raise Misdirected("another controller leads this node", where=name, hint="try the next controller")
        commands = agent.ready(arrived)
        agent.pause = 0.0
        if not commands and request.wait > 0:
            if self._stopping:
                # It was heard. An agent that is refused goes elsewhere, and one that is answered at once asks at once.
                raise Unavailable("this controller does not take agents now", where=name, hint="try again in a while")
            if self.held >= self._hold_most:
                agent.pause = self._pause()
            elif await self._hold(agent, min(request.wait, RESEND_AFTER if agent.in_doubt else MOST_WAIT)):
                commands = agent.ready(self.clock())
        return Reply(
            acked=acked,
            commands=tuple(command.wire for command in commands),
            wait=min(request.wait, MOST_WAIT),
            pause=agent.pause,
        )

    def _pause(self) -> float:
        """Seconds after which one that is too many comes again: longer the more there are, and not all at once."""
        too_many = self.attached_count - self._hold_most
        return min(max(too_many / _COMING, LEAST_PAUSE), LONGEST_PAUSE) * random.uniform(0.75, 1.0)

    async def _hold(self, agent: Agent, seconds: float) -> bool:
        """Keep the request open. False: a newer one took its place, or the time is over."""
        loop = asyncio.get_running_loop()
        poll = agent.poll = loop.create_future()
        timer = loop.call_later(seconds, _resolve, poll, False)
        self.held += 1
        try:
            woken: bool = await poll
            return woken
        finally:
            timer.cancel()
            if agent.poll is poll:
                agent.poll = None
                self.held -= 1

    def _hear(self, name: str, request: Exchange, state: State, now: float) -> tuple[Agent, bool]:
        """Note what was said. Second: whether it is news, and not a request that a newer one has overtaken."""
        issued = self._issued(name)
        if request.generation > issued:
            told = f"its agent reports boot {request.generation}; the newest that was handed out is {issued}"
            self._alarm(Alarm(kind="generation-refused", message=told, node=name))
            raise Denied("no such boot was handed out", where=name, hint="the node must boot anew")
        agent = self._agents.get(name)
        if agent is None:
            agent = self._agents[name] = Agent(name, now)
        before = agent.seen
        started = state.agent.started
        same_boot = before is not None and before.boot_id == request.boot_id
        # What was handed out counts, and not what somebody said: a store that was restored begins further back.
        if before is not None and request.generation < min(before.generation, issued):
            raise Denied("a newer boot of this node has reported already", where=name)
        agent.contact = now
        if (doubt := self._doubted.pop(name, None)) is not None:
            _resolve(doubt, True)
        self._agents.move_to_end(name)
        # Only just behind: who is far behind was not overtaken, but another counted for it in its name.
        if same_boot and started == agent.started and agent.seq - _OVERTAKEN < request.seq <= agent.seq:
            return agent, False
        if before is not None and not same_boot:
            agent.end_all()  # whatever it was doing ended with the boot
        if agent.poll is not None:
            _resolve(agent.poll, False)
            agent.poll = None
            self.held -= 1  # at once: the newer request may take its place
        if agent.attached and same_boot and started != agent.started:
            self._restarted(name)
        agent.seq, agent.started, agent.state = request.seq, started, bytes(request.state)
        held = state.set
        agent.seen = Seen(
            generation=request.generation,
            boot_id=request.boot_id,
            profile=state.profile,
            set_name=held.name,
            set_digest=held.digest,
            set_state=held.state,
            reason=held.reason,
            loaded=state.loaded,
            healthy=state.health.ok,
            damaged=tuple(state.damaged),
            revision=state.config.revision,
            config=state.config.digest,
            drift=state.config.drift,
            checks=state.checks,
        )
        if not agent.attached:
            agent.attached, agent.since = True, now
            self.attached_count += 1
            self._lost.pop(name, None)
            self._news.note(name)
        elif agent.seen != before:
            self._news.note(name)
        if state.metrics:
            self._measured(name, state.metrics)
        self._judge(agent, state.health.problems)
        if state.damaged and (before is None or before.damaged != agent.seen.damaged):
            self._damaged(name, state.damaged)
        return agent, True

    def _judge(self, agent: Agent, problems: Sequence[str]) -> None:
        """Tell what is wrong with a node, where that is not what was wrong with it before."""
        told = tuple(sorted(_NUMBERS.sub("#", problem) for problem in problems))
        if told != agent.problems:
            agent.problems = told
            message = "; ".join(problems)[:500] or "its agent finds nothing wrong"
            severity: AlarmSeverity = "warning" if problems else "ok"
            self._unwell(Alarm(kind="node-unhealthy", message=message, node=agent.name, severity=severity))

    def _tell(self, names: Collection[str]) -> None:
        for take in self.changed:
            take(names)

    def _take(self, agent: Agent, result: Result) -> None:
        command = agent.outbox.get(result.id)
        if command is None:
            return  # told before, or before we began: acknowledged all the same
        agent.failure = "" if result.ok else f"{command.kind}: {result.error}"[:500]
        agent.end(command, result)
        self._news.note(agent.name)

    # -- what they are told --------------------------------------------------------------------------------------------

    def send(
        self, name: str, kind: str, body: Mapping[str, Any] | None = None, *, epoch: int = 0, timeout: float = 60.0
    ) -> Command:
        """Tell the node's agent; the command's ``result`` is done when it answers, or with None when it does not.

        ``epoch`` 0: a person's command, which no fence stops. Raises ``Unavailable`` where nobody is attached, or too
        much is before it already. Must be called in the loop.
        """
        agent = self._agents.get(name)
        if agent is None or not self.attached(name):
            raise Unavailable("its agent is not attached to this controller", where=name)
        if len(agent.outbox) >= MOST_PENDING:
            raise Unavailable(f"{MOST_PENDING} commands wait for this node already", where=name, hint="try again later")
        loop = asyncio.get_running_loop()
        self._count += 1
        ident = f"{self._instance}-{self._count}"
        fence = {"epoch": epoch} if epoch else {}
        command = Command(name, ident, kind, {**(body or {}), **fence, "timeout": timeout}, loop.create_future())
        command.expiry = loop.call_later(agent.pause + timeout + _SLACK, agent.end, command, None)
        agent.outbox[ident] = command
        if agent.poll is not None:
            _resolve(agent.poll, True)
        return command

    def cancel(self, command: Command) -> None:
        """It is not wanted any more: not sent if it was not yet, else the agent is told to end it."""
        agent = self._agents.get(command.node)
        if agent is None or command.id not in agent.outbox:
            return
        sent = command.sent
        agent.end(command, None)
        if sent and self.attached(command.node) and len(agent.outbox) < MOST_PENDING:
            self.send(command.node, "cancel", {"of": command.id}, timeout=30.0)

    # -- who fell silent -----------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            self.sweep()

    def sweep(self) -> None:
        """Note who has been silent for too long, and send those away whose nodes others lead now."""
        now = self.clock()
        gone = []
        for agent in self._agents.values():
            if agent.poll is not None and not self._leads(agent.name):
                _resolve(agent.poll, False)
        for agent in self._agents.values():
            silence = now - agent.contact
            if silence <= SILENT_AFTER:
                break
            if agent.attached:
                self._detach(agent)
                if self._leads(agent.name):  # else it speaks to whoever does
                    self._lost[agent.name] = now
            if silence > FORGET_AFTER:
                gone.append(agent.name)
        for name in gone:
            del self._agents[name]
        while self._lost and now - next(iter(self._lost.values())) > 5 * SILENT_AFTER:
            self._lost.popitem(last=False)

    def _detach(self, agent: Agent) -> None:
        if agent.attached:
            agent.attached = False
            self.attached_count -= 1
            self._news.note(agent.name)
        agent.end_all()  # who waits for it looks at the node instead


def _resolve(poll: asyncio.Future[bool], value: bool) -> None:
    if not poll.done():
        poll.set_result(value)
