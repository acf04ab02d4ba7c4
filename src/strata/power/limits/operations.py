"""Setting limits in the kernels of many nodes as tracked work: accepted, cancellable between chunks, resumed.

It survives a restart: setting a limit twice is the same as once. A node that is frozen when its turn comes is left
alone, and so is one whose limits a later request has given meanwhile.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from strata.core import intset
from strata.core.errors import NotFound, OutcomeUnknown, Refused, StrataError
from strata.core.nodeset import fold
from strata.fleet.columns import Mask
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Step
from strata.power.capping.operations import FROZEN, unfinished
from strata.power.limits.inband import Change, Inband, Value, troubles
from strata.power.telemetry.columns import Uids

KIND = "node-limits"
_OVERTAKEN = "not set: a later request gave the node other limits"
_CHUNK = 256

Became = Sequence[Value] | StrataError
"""What became of each change of a node; or why the node could not be asked."""


class _Run(msgspec.Struct, eq=False):
    """A job that is worked on, or that may have overtaken one which is."""

    asked: float
    uids: Uids
    words: frozenset[str]
    over: bool = False


class LimitOperations:
    """Sets limits with ``inband``."""

    def __init__(self, fleet: Fleet, inband: Inband) -> None:
        self._fleet = fleet
        self._inband = inband
        self._open: dict[str, dict[int, Became]] = {}
        """Ticket → what an operation has to tell whoever waits for it, by uid."""
        self._runs: list[_Run] = []
        fleet.operations.register(KIND, self._work)

    async def set_limits(self, author: str, uids: Uids, changes: Sequence[Change]) -> Mapping[int, Became]:
        """Set them; what became of it, by uid. What has not ended within ``PATIENCE`` goes on as an operation, and is
        told so."""
        if not len(uids):
            return {}
        names = fold(self._fleet.view.names(self._fleet.registry.indices_of(uids)))
        detail = {"limits": dict(changes), "nodes": len(uids)}
        await self._fleet.ledger.commit(author, "limits.set", names[:1000], [], None, detail)
        ticket = secrets.token_hex(8)
        arguments = {
            "uids": intset.pack(np.sort(uids)),
            "changes": list(changes),
            "ticket": ticket,
            "asked": time.time(),
        }
        told = self._open[ticket] = {}
        try:
            why = await unfinished(self._fleet, KIND, author, len(uids), arguments)
            return {uid: told.get(uid, OutcomeUnknown(why)) for uid in uids.tolist()}
        finally:
            del self._open[ticket]

    async def _work(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        told = self._open.get(arguments["ticket"], {})
        changes = msgspec.convert(arguments["changes"], list[Change])
        words = [attribute for attribute, _ in changes]
        uids = intset.unpack(arguments["uids"])
        with self._entered(_Run(arguments["asked"], uids, frozenset(words))) as run:
            for begin in range(position or 0, len(uids), _CHUNK):
                some = uids[begin : begin + _CHUNK]
                became = await self._set(run, some, changes)
                told |= {uid: one for uid, (_, one) in became.items()}
                failed = [(name, why) for name, one in became.values() if (why := _why(words, one))]
                yield Step(position=begin + _CHUNK, done=len(some) - len(failed), failed=failed)

    @contextlib.contextmanager
    def _entered(self, run: _Run) -> Iterator[_Run]:
        """One that is over is remembered as long as an older one is not."""
        self._runs.append(run)
        try:
            yield run
        finally:
            run.over = True
            oldest = min((one.asked for one in self._runs if not one.over), default=np.inf)
            self._runs = [one for one in self._runs if one.asked >= oldest]

    def _overtaken(self, run: _Run, uids: Uids) -> Mask:
        newer = [one.uids for one in self._runs if one.asked > run.asked and one.words & run.words]
        mask: Mask = np.isin(uids, np.concatenate(newer) if newer else ())
        return mask

    async def _set(self, run: _Run, uids: Uids, changes: Sequence[Change]) -> Mapping[int, tuple[str, Became]]:
        """(name, what became of it) of each, by uid."""
        nodes = self._fleet.registry.indices_of(uids)
        late = (nodes >= 0) & self._overtaken(run, uids)
        frozen = (nodes >= 0) & ~late & self._fleet.registry.brakes.frozen[nodes]
        free = (nodes >= 0) & ~late & ~frozen
        found: dict[int, tuple[str, Became]] = dict.fromkeys(
            uids[nodes < 0].tolist(), ("", NotFound("there is no such node any more"))
        )
        for some, why in ((late, _OVERTAKEN), (frozen, FROZEN)):
            for uid, name in zip(uids[some].tolist(), self._fleet.view.names(nodes[some]), strict=True):
                found[uid] = name, Refused(why)
        names = self._fleet.view.names(nodes[free])
        done = await self._inband.set(names, changes)
        for uid, name in zip(uids[free].tolist(), names, strict=True):
            found[uid] = name, done[name]
        return found


def _why(words: Sequence[str], became: Became) -> str:
    return str(became) if isinstance(became, StrataError) else troubles(words, became)
