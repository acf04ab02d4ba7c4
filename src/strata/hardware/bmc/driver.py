"""The ``bmc`` driver: switches and reads power through nodes' BMCs, many at a time.

Whoever does not answer holds nobody up: a request that takes long gives its place to the next, and a BMC
that was silent is left out of sweeps and tried in the background until it answers again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest, Conflict, DeviceError, OutcomeUnknown, StrataError, Unavailable
from strata.core.fault_isolation import contained
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.fleet.tasks import all_cancelled
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.pace import Pace, Place
from strata.hardware.bmc.protocol import PowerAction

POWER_WORDS = ("off", "on")

Told = Callable[[Sequence[str]], None]

_OFF = POWER_WORDS.index("off") + 1  # in a column, after "unknown"


class BmcDriverSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How many at a time. Times in seconds."""

    at_once: int = 128
    """Requests under way to BMCs that answer promptly."""
    patience: float = 0.1
    """A request that takes longer gives its place up (and goes on)."""
    at_most: int = 4096
    """Requests under way, the slow ones included."""
    probes: int = 32
    """Silent BMCs tried again at a time."""
    look: float = 30.0
    """For a look at one, all in all: whoever takes longer is unknown, and the others are known in time."""


class BmcDriver:
    """Drives power through BMCs. Close it: that ends its probes. The BMCs are the caller's to close."""

    name = "bmc"

    def __init__(self, bmcs: Bmcs, *, settings: BmcDriverSettings | None = None) -> None:
        self._bmcs = bmcs
        self._settings = settings or BmcDriverSettings()
        chosen = self._settings
        self._pace = Pace(at_once=chosen.at_once, patience=chosen.patience, at_most=chosen.at_most)
        self._probes: dict[str, asyncio.Task[str | None]] = {}
        self.dark: list[Told] = []
        """Told the names of nodes that were seen without power, or are about to lose it."""
        self.lit: list[Told] = []
        """Told the names of nodes that were switched on just now."""
        self.before_on: list[Callable[[Batch], Awaitable[None]]] = []
        """Waited for before nodes are switched on: who boots them has something to prepare."""
        self._troubles: dict[str, str] = {}
        """Address → what the matter was with the last look at it, where it showed nothing."""

    async def close(self) -> None:
        """Stop probing."""
        await all_cancelled(self._probes.values())

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """``power-on`` and ``power-off``. Nothing is ever sent twice; no answer is ``UNKNOWN``."""
        if mutation.variable != "power" or mutation.to not in POWER_WORDS:
            raise BadRequest("the bmc driver switches power on and off", where=mutation.name)
        codes = np.full(len(batch), Outcome.UNKNOWN, dtype=np.int8)
        reasons: dict[int, str] = {}
        give_up = self._bmcs.clock() + mutation.timeout
        if mutation.to == "off":
            _tell(self.dark, batch.names)
        else:
            for prepare in self.before_on:
                await prepare(batch)

        async def one(position: int, _: Place) -> None:
            await self._switch(batch, position, mutation.to, min(batch.valid_until, give_up))
            codes[position] = Outcome.DONE

        def lost(position: int, wrong: StrataError) -> None:
            codes[position] = _outcome(wrong)
            reasons[position] = str(wrong)

        await self._pace.each(range(len(batch)), one, lost)
        if mutation.to == "on":
            begun = np.flatnonzero((codes == Outcome.DONE) | (codes == Outcome.UNKNOWN))
            _tell(self.lit, [batch.names[place] for place in begun.tolist()])
        return Outcomes(codes, reasons)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """``power``; unknown where the BMC does not say, with the reason. Other variables are left out."""
        if "power" not in variables:
            return {}
        codes = np.zeros(len(batch), dtype=np.int32)

        async def one(position: int, _: Place) -> None:
            seen = await self._look(batch.bmcs[position])
            codes[position] = 0 if seen is None else POWER_WORDS.index(seen) + 1

        def lost(position: int, wrong: StrataError) -> None:
            """Nothing was seen, and that is what the fact says; why is told with it."""
            self._troubles[batch.bmcs[position]] = str(wrong)

        there = [i for i in range(len(batch)) if not self._silent(_address(batch, i))]
        await self._pace.each(there, one, lost, limit=self._settings.look)
        _tell(self.dark, [batch.names[place] for place in np.flatnonzero(codes == _OFF).tolist()])
        reasons = {i: self._trouble(_address(batch, i)) for i in np.flatnonzero(codes == 0).tolist()}
        return {"power": Column(POWER_WORDS, codes, reasons)}

    def was_told(self, power: Mapping[str, tuple[str, str]]) -> None:
        """BMCs said by themselves how power is: name of the node → address, and ``on`` or ``off``."""
        for address, word in power.values():
            self._bmcs.saw(address, word)
        _tell(self.dark, [name for name, (_, word) in power.items() if word == "off"])

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """BMCs answer no guards, and that is a no."""
        return [f"the bmc driver does not know the guard {guard}"] * len(batch)

    # -- one node

    async def _switch(self, batch: Batch, position: int, to: str, begin_before: float) -> None:
        address = _address(batch, position)
        bmc = self._bmcs.open(address)
        silence, now = self._bmcs.silence(address), self._bmcs.clock()
        if now > batch.valid_until:
            raise Conflict("not begun: this controller no longer leads the node", where=address)
        if silence and now < silence.until:
            told = f"not tried: it has not answered for {now - silence.since:.0f} s"
            raise DeviceError(told, node=address, hint=f"next try in {silence.until - now:.0f} s")
        try:
            on: PowerAction = "on" if to == "on" else "off"
            with contained(address):
                await bmc.set_power(on, fence=batch.fence(position), begin_before=begin_before)
        except Unavailable as late:
            if self._bmcs.clock() > batch.valid_until:
                raise Conflict("not begun: this controller no longer leads the node", where=address) from late
            raise
        except (OutcomeUnknown, DeviceError) as wrong:
            self._bmcs.failed(address, wrong)
            raise
        self._bmcs.answered(address)
        self._bmcs.told(address, to)

    async def _look(self, address: str) -> str | None:
        try:
            with contained(address):
                seen = await self._bmcs.open(address).power()
        except StrataError as error:
            self._bmcs.failed(address, error)
            self._troubles[address] = str(error)
            return None  # nothing was seen, and that is what the fact says
        self._bmcs.answered(address)
        self._bmcs.saw(address, seen)
        self._troubles.pop(address, None)
        return seen

    def _trouble(self, address: str) -> str:
        """Why nothing was seen there."""
        if not address:
            return "the node has no BMC"
        try:
            locked, silent = self._bmcs.locked(address), self._bmcs.silent(address)
        except DeviceError as wrong:
            return str(wrong)
        if locked:
            return f"{address}: not tried: it {locked}"
        return self._troubles.get(address) or f"{address}: it {'does not answer' if silent else 'does not say'}"

    def _silent(self, address: str) -> bool:
        """Whether to leave it out. One whose time has come is tried, but nobody waits for it."""
        due = self._bmcs.is_due(address)
        if due and address not in self._probes and len(self._probes) < self._settings.probes:
            probe = asyncio.get_running_loop().create_task(self._look(address))
            self._probes[address] = probe
            probe.add_done_callback(lambda _: self._probes.pop(address, None))
        return due is not False


def _address(batch: Batch, position: int) -> str:
    return batch.bmcs[position] if position < len(batch.bmcs) else ""


def _outcome(wrong: StrataError) -> Outcome:
    if isinstance(wrong, Conflict):
        return Outcome.FENCED
    return Outcome.UNKNOWN if isinstance(wrong, OutcomeUnknown) else Outcome.FAILED


def _tell(listeners: Iterable[Told], names: Sequence[str]) -> None:
    if names:
        for told in listeners:
            told(names)
