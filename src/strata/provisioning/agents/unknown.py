"""Machines that nobody knows: they were let boot to say what they are, and wait until somebody adopts them.

In memory, bounded and aged: what is not adopted says hello again. Everything here was said by strangers.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from strata.core.errors import BadRequest, NotFound, Unavailable
from strata.provisioning.agents.records import UnknownMachine
from strata.provisioning.agents.wire import Hello

MOST = 1000
"""Machines that are remembered; beyond them the one that was silent longest is forgotten."""
FORGET_AFTER = 3600.0
RATE = 50.0
"""Hellos a second that are listened to."""
WAIT = 20.0
"""Seconds until a machine says hello again."""


class UnknownMachines:
    """All of them. ``owner``: the name of the node that has a MAC address now, if one has."""

    def __init__(self, owner: Callable[[str], str | None], *, clock: Callable[[], float] = time.time) -> None:
        self._owner = owner
        self._clock = clock
        self._machines: OrderedDict[str, UnknownMachine] = OrderedDict()
        self._allowance = RATE
        self._at = clock()

    def hello(self, said: Hello, peer: str) -> bool:
        """Take what a machine says of itself. True: it is a node by now, and should boot as such."""
        now = self._clock()
        self._allowance = min(RATE, self._allowance + max(0.0, now - self._at) * RATE)
        self._at = now
        if self._allowance < 1:
            raise Unavailable("too many unknown machines report", hint="report again later")
        self._allowance -= 1
        if not said.macs:
            raise BadRequest("a machine has at least one MAC address", where="macs")
        mac = said.macs[0]
        if any(self._owner(address) for address in said.macs):
            self._machines.pop(mac, None)
            return True
        before = self._machines.get(mac)
        first = before.first if before else now
        self._machines[mac] = UnknownMachine.of(said, mac=mac, peer=peer, first=first, last=now)
        self._machines.move_to_end(mac)
        while len(self._machines) > MOST:
            self._machines.popitem(last=False)
        return False

    def all(self) -> list[UnknownMachine]:
        """Those that spoke lately and are still nobody's, the newest first."""
        now = self._clock()
        for mac, machine in list(self._machines.items()):
            if now - machine.last > FORGET_AFTER or any(self._owner(address) for address in machine.macs):
                del self._machines[mac]
        return sorted(self._machines.values(), key=lambda machine: -machine.first)

    def get(self, mac: str) -> UnknownMachine:
        """One of them, by any of its MAC addresses."""
        for machine in self._machines.values():
            if mac.lower() in machine.macs:
                return machine
        raise NotFound(
            "no such machine has reported", where=mac[:40], hint="strata boot unknown list shows those that have"
        )

    def forget(self, mac: str) -> None:
        """Not to be shown any more, until it says hello again."""
        self._machines.pop(self.get(mac).mac, None)
