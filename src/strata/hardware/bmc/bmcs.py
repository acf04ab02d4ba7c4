"""Every BMC by its address, whichever protocol it speaks, and which are silent, locked or behave badly."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from strata.core.errors import DeviceError, InternalFault, NotOffered, StrataError
from strata.hardware.bmc.dialects import Dialect
from strata.hardware.bmc.protocol import Bmc
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import RedfishClient

DEAD_FOR, DEAD_MOST = 5.0, 60.0
"""Seconds for which a silent BMC is left alone: at first, and at most."""

SHOWS_WITHIN = 90.0
"""Seconds after which a BMC that took an order to switch power must say that it is so."""
HELD_AGAINST = 3600.0
"""Seconds for which it is held against a BMC that it did not, unless it is told again."""


class Silence(NamedTuple):
    """A BMC did not answer since a time, and is left alone until another (of ``Bmcs.clock``)."""

    since: float
    until: float
    why: str = ""
    """What the matter was when it was last asked, where more is known than that no answer came."""


class _Order(NamedTuple):
    """An order to switch power that a BMC accepted."""

    power: str
    since: float
    """When the first was accepted of those that did not show."""
    last: float


class Bmcs:
    """Opens BMCs by the scheme of their address: http and https are Redfish, others as given. Close it."""

    def __init__(self, redfish: RedfishClient, others: Mapping[str, Dialect] | None = None) -> None:
        self.redfish = redfish
        self.clock = redfish.clock
        self._others = dict(others or {})
        self._opened: dict[str, Bmc] = {}
        self._silences: dict[str, tuple[Silence, int]] = {}
        self._orders: dict[str, _Order] = {}
        """By address, those that have not shown yet."""
        self.shows_within = SHOWS_WITHIN

    async def close(self) -> None:
        """Log out everywhere, close the connections."""
        self._opened.clear()
        await asyncio.gather(self.redfish.close(), *(dialect.close() for dialect in self._others.values()))

    def open(self, address: str) -> Bmc:
        """The BMC at ``address``. Raises ``DeviceError`` for what is no address."""
        found = self._opened.get(address)
        if found is None:
            dialect = self._dialect(address)
            found = dialect.open(address) if dialect else RedfishBmc(self.redfish, address)
            self._opened[address] = found
        return found

    def locked(self, address: str) -> str:
        """Why it is not tried any more; empty: it is."""
        return "" if self._dialect(address) else self.redfish.bmc(address).locked

    def unlock(self, address: str) -> None:
        """A person has set the password right: try it again."""
        dialect = self._dialect(address)
        if dialect:
            dialect.forget(address)
        else:
            self.redfish.unlock(address)

    def silent(self, address: str) -> bool:
        """Whether it did not answer when last asked."""
        return self.silence(address) is not None

    def silence(self, address: str) -> Silence | None:
        """Since when it has not answered, and until when to leave it alone; None where it did answer, or where nobody
        can answer: at what is no address."""
        if self._dialect(address):
            known = self._silences.get(address)
            return known[0] if known else None
        try:
            bmc = self.redfish.bmc(address)
        except DeviceError:
            return None
        return Silence(bmc.dead_since, bmc.dead_until) if bmc.dead else None

    def is_due(self, address: str) -> bool | None:
        """Whether it did not answer when last asked, and may be tried again now; None: leave it alone."""
        try:
            if not address or self.locked(address):
                return None
        except DeviceError:
            return None
        silence = self.silence(address)
        if silence is None:
            return False
        return True if self.clock() >= silence.until else None

    def answered(self, address: str) -> None:
        """It did. Redfish keeps this itself; of other protocols it is kept here."""
        if self._silences:
            self._silences.pop(address, None)

    def failed(self, address: str, error: StrataError) -> None:
        """What it was asked came to nothing. An answer is an answer, also one that says no: only silence is silence."""
        if isinstance(error, InternalFault):
            return  # that tells nothing of the BMC
        if isinstance(error, NotOffered) or (isinstance(error, DeviceError) and error.reply):
            self.answered(address)
        else:
            self.missed(address, error.detail)

    def missed(self, address: str, why: str) -> None:
        """It did not answer, or not so that it could be used. As ``answered``: not needed for Redfish."""
        if self._dialect(address):
            now = self.clock()
            before, misses = self._silences.get(address, (Silence(now, now), 0))
            until = now + min(DEAD_MOST, DEAD_FOR * 2**misses)
            self._silences[address] = (Silence(before.since, until, why), min(misses + 1, 16))

    # -- how it behaves

    def told(self, address: str, power: str) -> None:
        """It accepted to switch its node ``on`` or ``off``."""
        now, before = self.clock(), self._orders.get(address)
        since = before.since if before is not None and before.power == power else now
        self._orders[address] = _Order(power, since, now)

    def saw(self, address: str, power: str | None) -> None:
        """It says that its node is ``on`` or ``off``; None: it does not say."""
        order = self._orders.get(address)
        if order is not None and (order.power == power or self.clock() - order.last > HELD_AGAINST):
            del self._orders[address]

    def flaw(self, address: str) -> str:
        """What is wrong with how it answers: with what it did since this was last asked, or with what it did not do.
        Empty: nothing is known."""
        found = ""
        if not self._dialect(address):
            bmc = self.redfish.bmc(address)
            found, bmc.flaw = bmc.flaw, ""
        order = self._orders.get(address)
        if order is not None and (passed := self.clock() - order.since) > self.shows_within:
            return f"it accepted {passed:.0f} s ago to switch its node {order.power}, but does not report that it is"
        return found

    def _dialect(self, address: str) -> Dialect | None:
        return self._others.get(address.partition(":")[0]) if self._others else None
