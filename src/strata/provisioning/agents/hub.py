"""Who is attached: the agents that talk to this controller, what they last said, and what they are told.

All in memory: a controller that starts anew knows nobody, and agents come back by themselves and tell. A command is
kept until its result is there or its time is over; one whose delivery is in doubt is sent again, and an agent does
nothing twice. Knows neither HTTP nor what a command means.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from strata.core.errors import BadRequest, Denied, Unavailable
from strata.provisioning.agents.wire import MOST_WAIT, Exchange, Result, State

log = logging.getLogger(__name__)

SILENT_AFTER = 60.0
"""Seconds without a word after which an agent counts as gone."""
RESEND_AFTER = 5.0
"""Seconds after which a command that the agent does not seem to have is sent again."""
FORGET_AFTER = 7 * 86400.0
"""Seconds after which what a silent agent last said is forgotten."""
MOST_PENDING = 64
"""Commands that one agent may have before it."""

_SLACK = 15.0  # seconds beyond a command's own limit until its result is not waited for any more
_GATHER = 0.05  # seconds in which changes are gathered before they are told
_SWEEP = 5.0

_decode_state = msgspec.json.Decoder(State).decode


class Misdirected(Unavailable):
    """Another controller leads the node: its agent should talk to that one."""

    status = 421
    title = "Misdirected"


class Seen(msgspec.Struct, frozen=True):
    """The part of an agent's state that decisions rest on."""

    generation: int
    boot_id: str
    profile: str
    set_name: str
    set_digest: str
    set_state: str
    reason: str
    loaded: tuple[str, ...]
    healthy: bool


class Command:
    """One thing that an agent was told to do. ``result`` is done with None where no answer came."""

    __slots__ = ("_body", "expiry", "id", "kind", "node", "received", "result", "sent")

    def __init__(
        self, node: str, ident: str, kind: str, body: Mapping[str, Any], result: asyncio.Future[Result | None]
    ):
        self.node = node
        self.id = ident
        self.kind = kind
        self._body = body
        self.result = result
        self.sent = 0.0
        """When it last was put into a reply (monotonic); 0: never."""
        self.received = False
        self.expiry: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Command({self.id}, {self.kind}, {self.node})"

    @property
    def wire(self) -> Mapping[str, Any]:
        """As it is sent."""
        return {"id": self.id, "kind": self.kind, **self._body}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is answered."""

    acked: tuple[str, ...]
    commands: tuple[Mapping[str, Any], ...]
    wait: float


class Agent:
    """One agent, as this controller knows it."""

    __slots__ = ("attached", "contact", "failure", "name", "outbox", "poll", "seen", "seq", "since", "started", "state")

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.attached = False
        self.contact = now
        """When it last spoke (monotonic)."""
        self.since = now
        """When it attached."""
        self.started = 0.0
        self.seq = -1
        self.seen: Seen | None = None
        self.state = b""
        """What it last said, as it said it."""
        self.poll: asyncio.Future[bool] | None = None
        """Done with True when there is something to say, False when the time is over or a newer request came."""
        self.outbox: dict[str, Command] = {}
        self.failure = ""
        """What went wrong with the last command that failed, until one succeeds."""


class Hub:
    """The agents of one controller. ``start``, then ``stop``."""

    def __init__(
        self,
        *,
        known: Callable[[str], bool] = lambda name: True,
        leads: Callable[[str], bool] = lambda name: True,
        changed: Callable[[Collection[str]], None] = lambda names: None,
        measured: Callable[[str, Mapping[str, Any]], None] = lambda name, metrics: None,
        hold_most: int = 4000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``known``: whether there is such a node. ``leads``: whether this controller acts for it. ``changed``: takes
        the nodes whose agents came, went or are different now. ``measured``: takes what an agent measured.
        ``hold_most``: requests that are held open at one time; who comes beyond them is heard, and told to come again.
        Each costs the front door two connections."""
        self._known = known
        self._leads = leads
        self._tell = changed
        self._measured = measured
        self._hold_most = hold_most
        self._clock = clock
        self._agents: OrderedDict[str, Agent] = OrderedDict()  # the one that was silent longest first
        self._instance = secrets.token_hex(4)
        self._count = 0
        self._news: set[str] = set()
        self._telling: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._lost: OrderedDict[str, float] = OrderedDict()
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
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
            self._sweeper = None
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        for agent in self._agents.values():
            for command in list(agent.outbox.values()):
                self._end(agent, command, None)

    def quiet(self) -> None:
        """Hold nobody any more: the service is about to stop."""
        self._stopping = True
        for agent in self._agents.values():
            if agent.poll is not None:
                _resolve(agent.poll, False)

    # -- who is there --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._agents)

    def get(self, name: str) -> Agent | None:
        """What is known of the node's agent; None: it has not spoken to this controller."""
        return self._agents.get(name)

    def attached(self, name: str) -> bool:
        """Whether the node's agent speaks to this controller now."""
        agent = self._agents.get(name)
        return agent is not None and agent.attached and self._clock() - agent.contact <= SILENT_AFTER

    def many_lost(self) -> bool:
        """Whether so many agents fell silent lately that the fault is likely on our side: the network, or ourselves."""
        return len(self._lost) >= 3 and len(self._lost) > 0.2 * (self.attached_count + len(self._lost))

    def cut_off(self, name: str) -> None:
        """The node has no power: its agent is not attached until it speaks again."""
        agent = self._agents.get(name)
        if agent is not None:
            self._detach(agent)

    def begins_anew(self, name: str) -> None:
        """A new boot of the node has begun: whatever ran there is over, and is to be looked at so."""
        self.cut_off(name)
        self._note(name)

    def forget(self, name: str) -> None:
        """The node is gone for good."""
        agent = self._agents.pop(name, None)
        if agent is not None:
            self._detach(agent)

    # -- what they say -------------------------------------------------------------------------------------------------

    async def exchange(self, name: str, request: Exchange) -> Reply:
        """Take what the agent says; answer when there is something for it to do, or its time is over."""
        if not self._known(name):
            raise Denied("there is no such node any more", where=name)
        state = _decode(request.state)
        arrived = self._clock()
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
        commands = self._ready(agent, arrived)
        if not commands and request.wait > 0:
            if self._stopping or self.held >= self._hold_most:
                # It was heard. An agent that is refused backs off, and one that is answered at once asks at once.
                raise Unavailable("nobody is held here now", where=name, hint="come again in a while")
            if await self._hold(agent, self._patience(agent, request.wait)):
                commands = self._ready(agent, self._clock())
        return Reply(
            acked=acked, commands=tuple(command.wire for command in commands), wait=min(request.wait, MOST_WAIT)
        )

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
            self.held -= 1
            timer.cancel()
            if agent.poll is poll:
                agent.poll = None

    def _patience(self, agent: Agent, wanted: float) -> float:
        doubtful = any(command.sent and not command.received for command in agent.outbox.values())
        return min(wanted, MOST_WAIT, RESEND_AFTER if doubtful else MOST_WAIT)

    def _hear(self, name: str, request: Exchange, state: State, now: float) -> tuple[Agent, bool]:
        """Note what was said. Second: whether it is news, and not a request that a newer one has overtaken."""
        agent = self._agents.get(name)
        if agent is None:
            agent = self._agents[name] = Agent(name, now)
        before = agent.seen
        started = state.agent.started
        same_boot = before is not None and before.boot_id == request.boot_id
        if before is not None and request.generation < before.generation:
            raise Denied("a newer boot of this node has spoken", where=name)
        agent.contact = now
        self._agents.move_to_end(name)
        if same_boot and started == agent.started and request.seq <= agent.seq:
            return agent, False
        if before is not None and not same_boot:
            for command in list(agent.outbox.values()):
                self._end(agent, command, None)  # whatever it was doing ended with the boot
        if agent.poll is not None:
            _resolve(agent.poll, False)
            agent.poll = None
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
        )
        if not agent.attached:
            agent.attached, agent.since = True, now
            self.attached_count += 1
            self._lost.pop(name, None)
            self._note(name)
        elif agent.seen != before:
            self._note(name)
        if state.metrics:
            self._measured(name, state.metrics)
        return agent, True

    def _take(self, agent: Agent, result: Result) -> None:
        command = agent.outbox.get(result.id)
        if command is None:
            return  # told before, or before we began: acknowledged all the same
        agent.failure = "" if result.ok else f"{command.kind}: {result.error}"[:500]
        self._end(agent, command, result)
        self._note(agent.name)

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
            raise Unavailable(f"{MOST_PENDING} commands are before it already", where=name, hint="try again later")
        loop = asyncio.get_running_loop()
        self._count += 1
        ident = f"{self._instance}-{self._count}"
        fence = {"epoch": epoch} if epoch else {}
        command = Command(name, ident, kind, {**(body or {}), **fence, "timeout": timeout}, loop.create_future())
        command.expiry = loop.call_later(timeout + _SLACK, self._expire, agent, command)
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
        self._end(agent, command, None)
        if sent and self.attached(command.node) and len(agent.outbox) < MOST_PENDING:
            self.send(command.node, "cancel", {"of": command.id}, timeout=30.0)

    def _ready(self, agent: Agent, now: float) -> list[Command]:
        """What to put into a reply now."""
        out = [
            command
            for command in agent.outbox.values()
            if not command.received and (not command.sent or now - command.sent >= RESEND_AFTER)
        ]
        for command in out:
            command.sent = now
        return out

    def _end(self, agent: Agent, command: Command, result: Result | None) -> None:
        agent.outbox.pop(command.id, None)
        if command.expiry is not None:
            command.expiry.cancel()
        if not command.result.done():
            command.result.set_result(result)

    def _expire(self, agent: Agent, command: Command) -> None:
        self._end(agent, command, None)

    # -- who fell silent -----------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            self.sweep()

    def sweep(self) -> None:
        """Note who has been silent for too long, and send those away whose nodes others lead now."""
        now = self._clock()
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
            self._note(agent.name)
        for command in list(agent.outbox.values()):
            self._end(agent, command, None)  # who waits for it looks at the node instead

    def _note(self, name: str) -> None:
        """Something changed about the node: tell soon, together with what else changes."""
        self._news.add(name)
        if self._telling is None and not self._stopping:
            self._telling = asyncio.get_running_loop().call_later(_GATHER, self._told)

    def _told(self) -> None:
        self._telling = None
        news, self._news = self._news, set()
        self._tell(news)


def _resolve(poll: asyncio.Future[bool], value: bool) -> None:
    if not poll.done():
        poll.set_result(value)


def _decode(raw: msgspec.Raw) -> State:
    try:
        return _decode_state(raw)
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)[:200], where="state") from None
