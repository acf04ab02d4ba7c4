"""What BMCs say now, asked once for everybody who wants to know within a few seconds.

A reader that walks over the sensors of a node, and ten readers that do, are one question to its BMC. A
BMC that does not answer is not asked again meanwhile either.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from strata.api.redfish.protocol.route import Call
from strata.api.redfish.resources.forms import worst
from strata.api.redfish.resources.needs import READ_ALERT, READ_BMC, READ_HARDWARE
from strata.core.errors import BadRequest, DeviceError, NotOffered, StrataError, Unavailable
from strata.hardware.alerts.service import AlertService
from strata.hardware.bmc.protocol import PowerLimit, Severity
from strata.hardware.bmc.records import BmcView, NodeReadings
from strata.hardware.bmc.service import BmcService
from strata.hardware.inventory.records import ComponentView, NodeHardware
from strata.hardware.inventory.service import InventoryService

SECONDS = 5.0
"""How long an answer is good for."""
PATIENCE = 2.0
"""Seconds that a resource waits for what it can do without."""
_MOST = 4096
"""Answers that are kept at one time."""
_ALERTS = 10_000

_Value = TypeVar("_Value")


class Kept:
    """Answers by question, for a while; the same question is not asked twice at a time."""

    def __init__(
        self, seconds: float = SECONDS, most: int = _MOST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._answers: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()

    async def get(self, question: Hashable, ask: Callable[[], Awaitable[_Value]]) -> _Value:
        """The answer, or the error that was the answer."""
        now = self._clock()
        until, task = self._answers.get(question, (0.0, None))
        if task is None or (task.done() and now >= until):
            task = asyncio.create_task(self._asked(question, ask))
            # An error that nobody waits for any more is no news.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._answers[question] = (now + self._seconds, task)
            self._answers.move_to_end(question)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        # Who stops waiting does not take the answer away from the others.
        return cast("_Value", await asyncio.shield(task))

    def at_hand(self, question: Hashable) -> Any:
        """The answer that is there already; None: there is none."""
        until, task = self._answers.get(question, (0.0, None))
        if task is None or not task.done() or self._clock() >= until or task.cancelled() or task.exception():
            return None
        return task.result()

    def forget(self, question: Hashable) -> None:
        """It has been changed: the next one asks anew."""
        self._answers.pop(question, None)

    async def _asked(self, question: Hashable, ask: Callable[[], Awaitable[_Value]]) -> _Value:
        try:
            return await ask()
        finally:
            if question in self._answers:
                self._answers[question] = (self._clock() + self._seconds, self._answers[question][1])


_kept: WeakKeyDictionary[Any, Kept] = WeakKeyDictionary()


def kept(call: Call) -> Kept:
    """The answers of the service that a call is for."""
    found = _kept.get(call.of(BmcService))
    if found is None:
        found = _kept[call.of(BmcService)] = Kept()
    return found


async def readings(call: Call, node: str) -> NodeReadings:
    """The sensors of a node that the caller may see. Fails where its BMC does."""

    async def ask() -> NodeReadings:
        found = await call.of(BmcService).sensors(call.who, node)
        if not found:
            raise NotOffered("no BMC is known", node=node)
        return found[0]

    try:
        said = await kept(call).get(("readings", node), ask)
    except (NotOffered, BadRequest):
        return NodeReadings(node=node, time=time.time(), readings=())
    if said.trouble and not said.readings:
        raise Unavailable(said.trouble, where=node, hint="see why: strata hardware show")
    return said


async def limits(call: Call, node: str) -> Sequence[PowerLimit]:
    """What can be capped; nothing where the hardware has no such thing."""
    try:
        return await kept(call).get(("limits", node), lambda: call.of(BmcService).limits(call.who, node))
    except (NotOffered, BadRequest):
        return ()


async def bmc(call: Call, node: str) -> BmcView | None:
    """The node's BMC, if it answers soon. For one node of many only what is at hand."""
    if call.services.find(BmcService) is None or not call.who.may(READ_BMC):
        return None
    if call.one_of_many:
        found: BmcView | None = kept(call).at_hand(("bmc", node))
        return found
    try:
        async with asyncio.timeout(PATIENCE):
            return await kept(call).get(("bmc", node), lambda: call.of(BmcService).info(call.who, node))
    except (TimeoutError, StrataError):
        return None


async def hardware(call: Call, node: str) -> NodeHardware | None:
    """What a node is made of; None: it was not discovered, or that is not for the caller."""
    if call.services.find(BmcService) is None or not call.who.may(READ_HARDWARE):
        return None
    try:
        return await call.of(InventoryService).of_node(call.who, node)
    except (BadRequest, Unavailable, DeviceError):
        return None


async def components(call: Call, node: str, *kinds: str) -> Sequence[ComponentView]:
    """The parts of a node (of these kinds, where any are named); none where it was not discovered."""
    found = await hardware(call, node)
    parts = found.components if found is not None else ()
    return [part for part in parts if part.kind in kinds] if kinds else parts


async def troubles(call: Call) -> Mapping[str, Severity]:
    """The worst open alert of each node that has one."""
    if call.services.find(BmcService) is None or not call.who.may(READ_ALERT):
        return {}

    async def ask() -> Mapping[str, Severity]:
        page = await call.of(AlertService).alerts(call.who, all_=False, limit=_ALERTS, after="")
        found: dict[str, Severity] = {}
        for alert in page.items:
            if alert.node:
                found[alert.node] = worst((found.get(alert.node), alert.severity)) or "ok"
        return found

    return await kept(call).get(("troubles", call.who.scope), ask)
