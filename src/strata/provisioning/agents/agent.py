"""One agent as a controller knows it: what it last said, and the commands that it was told and has not answered."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from strata.provisioning.agents.wire import Checks, Drifted, Result

RESEND_AFTER = 5.0
"""Seconds after which a command that the agent does not seem to have is sent again."""
MOST_PENDING = 64
"""Commands that one agent may have before it."""


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
    damaged: tuple[str, ...] = ()
    revision: str = ""
    config: str = ""
    """The digest of the configuration that is in force; empty: none is."""
    drift: tuple[Drifted, ...] = ()
    checks: Checks = Checks()


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


class Agent:
    """One agent, as this controller knows it."""

    __slots__ = (
        "attached",
        "contact",
        "failure",
        "missed",
        "name",
        "outbox",
        "pause",
        "poll",
        "problems",
        "seen",
        "seq",
        "since",
        "started",
        "state",
    )

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.attached = False
        self.contact = now
        """When it last spoke (monotonic)."""
        self.since = now
        """When it attached."""
        self.missed = -math.inf
        """When it last did not speak though it was asked to (monotonic)."""
        self.started = 0.0
        self.seq = -1
        self.seen: Seen | None = None
        self.state = b""
        """What it last said, as it said it."""
        self.poll: asyncio.Future[bool] | None = None
        """Done with True when there is something to say, False when the time is over or a newer request came."""
        self.pause = 0.0
        """Seconds that it was told to stay away, when it last came; 0: it was not."""
        self.problems: tuple[str, ...] | None = None
        """What it last said of its machine, without the numbers in it; None: nothing yet."""
        self.outbox: dict[str, Command] = {}
        self.failure = ""
        """What went wrong with the last command that failed, until one succeeds."""

    def ready(self, now: float) -> list[Command]:
        """The commands to put into a reply now: those that it was not told, and those that it does not seem to have."""
        out = [
            command
            for command in self.outbox.values()
            if not command.received and (not command.sent or now - command.sent >= RESEND_AFTER)
        ]
        for command in out:
            command.sent = now
        return out

    @property
    def in_doubt(self) -> bool:
        """Whether it was told something that it may not have."""
        return any(command.sent and not command.received for command in self.outbox.values())

    def end(self, command: Command, result: Result | None) -> None:
        """The command is over: with its result, or with None where none is waited for any more."""
        self.outbox.pop(command.id, None)
        if command.expiry is not None:
            command.expiry.cancel()
        if not command.result.done():
            command.result.set_result(result)

    def end_all(self) -> None:
        """Wait for no result any more."""
        for command in list(self.outbox.values()):
            self.end(command, None)
