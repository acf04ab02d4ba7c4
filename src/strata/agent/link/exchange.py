"""The long poll that is report, heartbeat and command channel.

A request waits at the controller; when something changed on the node a second one is sent over another connection and
the controller ends the first. Both stay open, so that a change costs no new TLS session. Replies are taken from either.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable

from ..errors import AgentError, Refused, Unreachable
from .http import Connection, answer
from .identity import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WAIT = 20
_GRACE = 15.0
_OVERTAKEN = 0.5
_LONGEST_PAUSE = 30.0


class Exchange:
    """Keeps the node attached to one of its controllers, for as long as the agent runs."""

    def __init__(
        self,
        controllers: list[str],
        identity: Identity,
        report: Callable[[], dict[str, Any]],
        take: Callable[[dict[str, Any], str], None],
        learn: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._controllers = controllers
        self._identity = identity
        self._report = report
        self._take = take
        self._learn = learn
        self._say = say
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._sequence = 0
        self._due = False  # something is to be told
        self._stay_away_until = 0.0  # a controller with too many open requests asks us to come back later
        self._ended = False
        self._heard = False
        self._held: list[tuple[Connection, float]] = []  # a request waits there, since when
        self._idle: list[Connection] = []
        self.url = controllers[0]

    def changed(self) -> None:
        """Something is worth telling at once."""
        os.eventfd_write(self._wake, 1)

    def end(self) -> None:
        """Leave `run`; for a test or a reboot."""
        self._ended = True
        self.changed()

    def run(self) -> None:
        """Stay attached: each controller in turn, with back-off while none answers."""
        failures = turn = 0
        while not self._ended:
            self.url = self._controllers[turn % len(self._controllers)]
            self._heard = False
            try:
                self._stay()
                continue
            except AgentError as error:
                self._say(f"not attached to {self.url}: {error}")
            finally:
                for connection in [held for held, _ in self._held] + self._idle:
                    connection.close()
                self._held, self._idle = [], []
            failures = 1 if self._heard else failures + 1
            turn += 1
            self._back_off(failures)

    def _back_off(self, failures: int) -> None:
        """Back off, a little differently on every node; within a round the next controller is tried almost at once."""
        rounds, more = divmod(failures, len(self._controllers))
        longest = 0.2 if more else min(_LONGEST_PAUSE, 0.5 * 2.0 ** min(rounds, 10))
        deadline = time.monotonic() + longest * (0.5 + os.urandom(1)[0] / 512)
        while not self._ended and (left := deadline - time.monotonic()) > 0:
            select.select([], [], [], min(left, 1.0))

    def _stay(self) -> None:
        self._context = self._identity.context()
        self._ask()
        while not self._ended:
            try:
                if self._identity.renew_if_due(self.url):
                    return  # come back with the new certificate
            except (AgentError, OSError) as error:
                self._say(f"the certificate is not renewed yet: {error}")
            if self._wait():
                self._ask()

    def _wait(self) -> bool:
        """Sleep until a reply came or something changed; whether a new request is due."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        for connection, _ in self._held:
            poll.register(connection.fileno(), select.POLLIN)
        late = self._held[0][1] + WAIT + _GRACE if self._held else self._stay_away_until
        until = self._room_at() if self._due else late
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, min(until, late) - time.monotonic()) * 1000)}
        if self._held and not ready and time.monotonic() >= late:
            raise Unreachable(f"no answer for {WAIT + _GRACE:.0f} s")
        for entry in [entry for entry in self._held if entry[0].fileno() in ready]:
            self._answered(entry)
        if self._wake in ready:
            os.eventfd_read(self._wake)
            self._due = True
        if self._due:
            return time.monotonic() >= self._room_at()
        return not self._held and time.monotonic() >= self._stay_away_until

    def _room_at(self) -> float:
        """When a further request may be sent: the controller ends the older of two, but needs a moment for it."""
        return self._held[-1][1] + _OVERTAKEN if len(self._held) >= 2 else 0.0

    def _answered(self, entry: tuple[Connection, float]) -> None:
        connection = entry[0]
        try:
            if not connection.arrived():
                return
            self._held.remove(entry)
            reply = connection.head()
            # A refusal tells too: whoever sends us elsewhere says where that may be.
            self._learn(reply.headers.get("x-strata-controllers", ""))
            value = answer(connection, reply)
        except Unreachable:
            connection.close()
            self._held = [other for other in self._held if other is not entry]
            if not self._held:  # an older request that a controller cut off is no loss
                raise
            return
        except Refused:
            connection.close()
            raise
        if reply.headers.get("connection", "").lower() == "close":
            connection.close()
        else:
            self._idle.append(connection)
        self._heard = True
        pause = value.get("pause")
        if isinstance(pause, (int, float)) and 0 < pause <= _LONGEST_PAUSE * 2:
            self._stay_away_until = time.monotonic() + pause
        self._take(value, reply.headers.get("date", ""))

    def _ask(self) -> None:
        if len(self._held) >= 2:  # the controller did not end the older one: it is not waited for
            self._held.pop(0)[0].close()
        self._sequence += 1
        self._stay_away_until = 0.0
        self._due = False
        wait = WAIT if self._heard else 0  # the first answer comes at once: then we know that we are attached
        body = {**self._report(), "seq": self._sequence, "wait": wait}
        data = json.dumps(body, separators=(",", ":")).encode()
        connection = self._connection()
        connection.send("POST", "/agent/v1/exchange", data, "Content-Type: application/json\r\n")
        self._held.append((connection, time.monotonic()))

    def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.close()
        return Connection(self.url, self._context, timeout=WAIT + _GRACE)
