"""The red button: power goes away now, without asking guards or budgets, and stays away.

First it is written down who pressed it and why, then the selection is frozen, so that no controller switches anything
on again; only then power is taken away, everywhere at once. What does not answer holds nobody up. Lifting the freeze is
a person's decision: the desires still stand.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from strata.core.column import Column
from strata.core.errors import BadRequest, Refused, StrataError
from strata.core.fault_isolation import contained
from strata.core.node import Freeze, Node
from strata.core.units import is_confirmed, many
from strata.fleet.access.principal import Principal
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.fleet.registry.editor import check_words, encode, folded
from strata.fleet.tasks import all_cancelled, beside
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.operations import many_outcome
from strata.hardware.bmc.pace import Pace
from strata.hardware.emergency.records import EmergencyReport, EmergencyRequest
from strata.hardware.feeds.driver import FeedDriver
from strata.hardware.feeds.feeds import CHASSIS, OUTLET
from strata.store.protocol import Op, Put

log = logging.getLogger(__name__)

AT_ONCE = 128
"""Requests under way to BMCs that answer promptly."""
SLOW = 0.1
"""Seconds after which a request gives its place up (and goes on)."""
AT_MOST = 4096
"""Requests under way, the slow ones included."""
PATIENCE = 10.0
"""Seconds until a BMC that accepted it must say that its node is off; halfway it is told again."""
LIMIT = 45.0
"""Seconds after which the answer is given; whoever has not answered by then goes on being told."""

_LOOKS = (0.0, 0.25, 0.5, 1.0, 2.0)  # seconds before each look, then the last again


class EmergencyService:
    """Takes power away."""

    def __init__(
        self,
        service: Fleet,
        bmcs: Bmcs,
        *,
        patience: float = PATIENCE,
        limit: float = LIMIT,
    ) -> None:
        self._service = service
        self._bmcs = bmcs
        self._patience = patience
        self._limit = limit
        self._feeds = FeedDriver(service.registry, service.controller.engine, service.controller.clock.now)
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Tell nobody any more."""
        await all_cancelled(self._tasks)

    async def power_off(self, who: Principal, request: EmergencyRequest) -> EmergencyReport:
        """Freeze the selected nodes and take their power away at once: no guard, no budget. ``confirm`` must say
        ``power off N nodes`` with the right number. Doing it again is safe."""
        begun = time.monotonic()
        indices = self._service.owned(who, request.select)
        if not len(indices):
            raise BadRequest("no node is selected", where="select")
        reason = check_words("reason", request.reason)
        words = confirmation(len(indices))
        if not is_confirmed(request.confirm, words):
            raise Refused(
                f"this takes the power of {many(len(indices), 'node')} away, and what runs on them dies",
                by="confirmation",
                where="confirm",
                hint=f"if you mean it, confirm with: {words}",
            )
        nodes = [self._service.registry.node_at(index) for index in indices.tolist()]
        frozen = await self._freeze(who, indices, nodes, reason)
        for told in self._service.controller.switched:
            told(indices)
        log.warning("emergency off", extra={"author": who.name, "nodes": len(nodes), "reason": reason})
        failed = await self._switch_off(nodes)
        self._forgive_fed(nodes, failed)
        self._tell_engine(nodes, failed)
        seconds = time.monotonic() - begun
        done = [node.name for node in nodes if node.name not in failed]
        with contextlib.suppress(StrataError):  # what was done is done, and is reported
            detail = {"off": len(done), "failed": len(failed)}
            await self._service.ledger.commit(who.name, "emergency.ended", folded(done), [], None, detail)
        return EmergencyReport(outcome=many_outcome(done, failed), frozen=frozen, seconds=round(seconds, 3))

    async def _freeze(self, who: Principal, indices: Indices, nodes: Sequence[Node], reason: str) -> tuple[str, ...]:
        """Write down what is about to happen, then the freezes; return when the engine knows of them."""
        scopes = self._scopes(who, indices, nodes)
        since = self._service.controller.clock.wall()
        said = f"emergency off: {reason}"[:500]
        ops: list[Op] = [
            Put(f"freeze/{scope}", encode(Freeze(scope=scope, reason=said, author=who.name, since=since)))
            for scope in scopes
            if scope not in self._service.registry.brakes.freezes
        ]
        names, ledger = folded(node.name for node in nodes), self._service.ledger
        detail = {"reason": reason, "nodes": len(nodes)}
        revision = await ledger.commit(who.name, "emergency.off", names, [], None, detail)
        if ops:
            revision = await ledger.commit_many(who.name, "freeze.set", names, ops, None, {"reason": said})
        await self._service.considered(revision)
        return tuple(scopes)

    def _scopes(self, who: Principal, indices: Indices, nodes: Sequence[Node]) -> list[str]:
        """As few freezes as say the same: the fleet, a group, or each node."""
        registry = self._service.registry
        if len(indices) == len(registry) and not who.scope:
            return ["fleet"]
        # A group that is not the caller's is none of its business, and may have other members tomorrow.
        for name in sorted(set(registry.groups).intersection(who.scope) if who.scope else registry.groups):
            mask = registry.groups.mask(name)
            if int(mask.sum()) == len(indices) and mask[indices].all():
                return [f"group:{name}"]
        return [f"node:{node.name}" for node in nodes]

    async def _switch_off(self, nodes: Sequence[Node]) -> dict[str, str]:
        """Everything at once; why not, by name of node, where it is not known to be off."""
        failed = {node.name: "it has no BMC" for node in nodes if not node.bmc}
        there = [node for node in nodes if node.bmc]
        # What feeds many goes first, and whom nobody expects to answer last.
        there.sort(key=lambda node: (node.role not in (OUTLET, CHASSIS), self._bmcs.silent(node.bmc)))
        pace = Pace(at_once=AT_ONCE, patience=SLOW, at_most=AT_MOST)
        all_begun, left = asyncio.Event(), len(there)

        async def one(node: Node) -> None:
            nonlocal left
            async with pace.turn():
                left -= 1
                if not left:
                    all_begun.set()
                told = await self._tell(node.bmc)
            await all_begun.wait()  # nobody is looked at before everybody was told
            told = await self._confirm(node.bmc, told, pace)
            if told:
                failed[node.name] = told
            else:
                del failed[node.name]

        failed |= {node.name: "it has not answered yet; it is asked again and again" for node in there}
        tasks = {beside(self._tasks, one(node)) for node in there}
        if tasks:
            await asyncio.wait(tasks, timeout=self._limit)
        return dict(failed)

    async def _tell(self, address: str) -> str:
        """Tell one BMC; what it made of it."""
        try:
            with contained(address):
                await self._bmcs.open(address).set_power("off")
        except StrataError as error:
            return str(error)  # some refuse to switch off what is off, some do it and do not answer: look
        self._bmcs.told(address, "off")
        return "it accepted, but does not report that it is off"

    async def _confirm(self, address: str, trouble: str, pace: Pace) -> str:
        """Look until it says that it is off, and tell it once more on the way; why it does not."""
        begun, again = time.monotonic(), False
        for turn in range(1000):
            await asyncio.sleep(_LOOKS[min(turn, len(_LOOKS) - 1)])
            try:
                async with pace.turn():
                    with contained(address):
                        power = await self._bmcs.open(address).power()
                self._bmcs.saw(address, power)
                if power == "off":
                    return ""
            except StrataError:
                if self._bmcs.silent(address):
                    return trouble
            waited = time.monotonic() - begun
            if waited > self._patience:
                break
            if waited > self._patience / 2 and not again:
                again, trouble = True, await self._tell(address)
        return trouble

    def _forgive_fed(self, nodes: Sequence[Node], failed: dict[str, str]) -> None:
        """What cannot answer any more because all that feeds it was just switched off, is off."""
        feeds = self._feeds.feeds()
        if not feeds or not failed:
            return
        registry = self._service.registry
        off = {registry.find(node.name) for node in nodes if node.name not in failed}
        again = True
        while again:
            again = False
            for name in list(failed):
                index = registry.find(name)
                feeders = feeds.feeders[feeds.kinds[index]] if 0 <= index < len(feeds.kinds) else ()
                if feeders and off.issuperset(feeders):
                    del failed[name]
                    off.add(index)
                    again = True

    def _tell_engine(self, nodes: Sequence[Node], failed: Mapping[str, str]) -> None:
        """What was believed of these nodes before is old news: those that were seen to be off are off."""
        controller = self._service.controller
        now, engine = controller.clock.now(), controller.engine
        off = self._led(node for node in nodes if node.name not in failed)
        engine.progress.acted_at[off] = now  # a look that was begun before saw the world before
        engine.facts.believe(off, {"power": Column.same("off", len(off))}, "bmc", now)
        engine.facts.schedule_look(self._led(node for node in nodes if node.name in failed), ("bmc",), now)
        controller.wake()

    def _led(self, nodes: Iterable[Node]) -> Indices:
        """Those that this controller leads: others look for themselves."""
        uids = np.array([node.uid for node in nodes], dtype=np.int64)
        known = self._service.registry.indices_of(uids)
        known = known[known >= 0]
        led: Indices = known[self._service.controller.engine.progress.epoch[known] > 0]
        return led


def confirmation(count: int) -> str:
    """What a person must say who wants to take power away from ``count`` nodes."""
    return f"power off {many(count, 'node')}"
