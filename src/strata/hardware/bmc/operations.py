"""One thing done through the BMCs of many nodes: at once for some, as an operation for very many.

Some of these must not be done twice (a power cycle, a firmware update): their jobs write down what they are about to
begin, and after a crash say that they do not know what became of it instead of doing it again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

from strata.core import intset
from strata.core.driver import Batch
from strata.core.errors import Conflict, DeviceError, NotOffered, OutcomeUnknown, StrataError
from strata.core.fault_isolation import contained
from strata.core.nodeset import fold
from strata.fleet.access.sealing import Seal
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.fleet.nodes.batches import batch_of
from strata.fleet.operations.records import Step
from strata.hardware.bmc import caps
from strata.hardware.bmc.pace import Pace, Place
from strata.hardware.bmc.protocol import Bmc, Boot, PowerAction, ServiceSettings, Task
from strata.hardware.bmc.records import Failed, ManyOutcome
from strata.hardware.model import CAPS_FREE, POWER_ROOM

AT_ONCE, PATIENCE, AT_MOST = 128, 0.5, 4096
"""BMCs that are spoken to at a time, as long as they answer within so many seconds; and the most in all."""

LIMIT = 60.0
"""Seconds for one BMC, all in all: whoever takes longer is given up, and does not hold up the answer."""

_T = TypeVar("_T")
_CONTEXT = "job/bmc"  # what arguments are sealed for
_CHUNK = 1000  # nodes per step of an operation
_UPDATE_TAKES = 3600.0
_POLL = 2.0
_OFF = ("off", "graceful-off")
_RESTARTS = ("cycle", "graceful-restart")
_LOST = "the service was restarted meanwhile: look whether it was done, then ask again"


class BmcOrder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do. Only the fields of its kind count."""

    what: Literal["power", "boot", "identify", "limit", "bios", "settings", "media"]
    action: PowerAction = "cycle"
    force: bool = False
    boot: Boot | None = None
    on: bool = False
    text: str = ""
    watts: float | None = None
    attributes: dict[str, str | int | float | bool | None] = {}
    settings: ServiceSettings | None = None

    @property
    def title(self) -> str:
        """For the audit log."""
        return f"power.{self.action}" if self.what == "power" else f"bmc.{self.what}"

    @property
    def repeatable(self) -> bool:
        """Whether doing it twice is the same as once."""
        return self.what != "power"


class BmcOperations:
    """Carries out orders."""

    def __init__(self, fleet: Fleet, open_: Callable[[str], Bmc], seal: Seal) -> None:
        self._fleet = fleet
        self._open = open_
        self._seal = seal
        self._pace = Pace(at_once=AT_ONCE, patience=PATIENCE, at_most=AT_MOST)
        fleet.operations.register("bmc", self._many)
        fleet.operations.register("firmware", self._update)

    def sealed(self, argument: BmcOrder | str) -> bytes:
        """An argument of a job as it is stored."""
        return self._seal.seal(msgspec.msgpack.encode(argument), _CONTEXT)

    def _opened(self, argument: Any, kind: type[_T]) -> _T:
        """As it was given; one of a job that was begun before arguments were sealed is as it is."""
        if not isinstance(argument, bytes):
            return msgspec.convert(argument, kind)
        return msgspec.msgpack.decode(self._seal.open(argument, _CONTEXT), type=kind)

    async def carry_out(self, order: BmcOrder, nodes: Indices) -> dict[str, str]:
        """Do it for every node, side by side; why it was not done, by name."""
        batch = batch_of(self._fleet.registry, nodes)
        failed = await self._refusals(order, batch, nodes)

        async def one(_: str, bmc: Bmc) -> None:
            await _do(bmc, order)

        if order.what == "power":
            for told in self._fleet.controller.switched:
                told(nodes)
        failed |= _words(await self.each(batch, one, without=failed))
        if order.what == "power":
            self._fleet.controller.look_at(nodes)
            if order.action in _RESTARTS:
                self._fleet.controller.note_restart(nodes[[name not in failed for name in batch.names]])
        return failed

    async def _refusals(self, order: BmcOrder, batch: Batch, nodes: Indices) -> dict[str, str]:
        """A brake that is on holds for what people ask for, too, unless they insist."""
        refused: dict[str, str] = {}
        # That the site has no power for it holds for everybody, insist as they may.
        asked = (
            [CAPS_FREE]
            if order.what == "limit"
            else [POWER_ROOM]
            if order.what == "power" and order.action not in _OFF
            else []
        )
        if order.what == "power" and not order.force:
            frozen = np.flatnonzero(self._fleet.registry.brakes.frozen[nodes]).tolist()
            refused = {batch.names[i]: "frozen: thaw it, or insist with force" for i in frozen}
            asked.insert(0, "no-running-job")
        for guard in asked:
            if guard not in self._fleet.controller.model.guards:
                continue
            for name, answer in zip(batch.names, await self._fleet.controller.permits(guard, batch), strict=True):
                if answer:
                    refused.setdefault(name, f"{guard} says no: {answer}")
        return refused

    async def each(
        self,
        batch: Batch,
        work: Callable[[str, Bmc], Awaitable[None]],
        *,
        without: Collection[str] = (),
        limit: float = LIMIT,
    ) -> dict[str, StrataError]:
        """``work`` with every node's name and BMC, side by side, but for those ``without``; what failed, by name."""
        failed: dict[str, StrataError] = {}

        async def one(which: tuple[str, str], _: Place) -> None:
            name, address = which
            if not address:
                raise NotOffered("it has no BMC's address", node=name)
            with contained(address):
                await work(name, self._open(address))

        def lost(which: tuple[str, str], error: StrataError) -> None:
            failed[which[0]] = error

        pairs = zip(batch.names, batch.bmcs, strict=True)
        await self._pace.each([pair for pair in pairs if pair[0] not in without], one, lost, limit=limit)
        return failed

    # -- jobs

    async def _many(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        order = self._opened(arguments["order"], BmcOrder)
        uids = intset.unpack(arguments["uids"])
        async for begin, nodes in self._chunks(uids, position, _CHUNK, careful=not order.repeatable):
            if isinstance(nodes, Step):
                yield nodes
                continue
            failed = await self.carry_out(order, nodes)
            yield Step(position=begin + _CHUNK, done=len(nodes) - len(failed), failed=sorted(failed.items()))

    async def _update(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        """A few at a time. Stops when more than a tenth of a batch fails: the image, not the node, may be bad."""
        uids = intset.unpack(arguments["uids"])
        size, uri = int(arguments["at_once"]), self._opened(arguments["uri"], str)
        async for begin, nodes in self._chunks(uids, position, size, careful=True):
            if isinstance(nodes, Step):
                yield nodes
                continue

            async def one(_: str, bmc: Bmc) -> None:
                task = await bmc.update_firmware(
                    uri=uri, targets=arguments["targets"], apply_time=arguments["apply_time"]
                )
                await _followed(bmc, task)

            batch = batch_of(self._fleet.registry, nodes)
            failed = _words(await self.each(batch, one, limit=2 * _UPDATE_TAKES))
            yield Step(position=begin + size, done=len(nodes) - len(failed), failed=sorted(failed.items()))
            if len(failed) > len(nodes) / 10:
                raise Conflict(
                    f"stopped: {len(failed)} of {len(nodes)} failed",
                    hint="see the errors; start it again for the rest when the reason is known",
                )

    async def _chunks(
        self, uids: np.ndarray[Any, np.dtype[np.int64]], position: Any, size: int, *, careful: bool
    ) -> AsyncIterator[tuple[int, Indices | Step]]:
        """The chunks that are left. ``careful``: before each comes a step that writes down that it is begun."""
        start, begun = position if isinstance(position, list | tuple) else (position or 0, False)
        if begun:
            # Begun before a crash; nobody knows how far it came.
            names = self._fleet.view.names(self._living(uids[start : start + size]))
            start += size
            yield start, Step(position=start, failed=[(name, _LOST) for name in names])
        for begin in range(start, len(uids), size):
            if careful:
                yield begin, Step(position=(begin, True), durable=True)
            yield begin, self._living(uids[begin : begin + size])

    def _living(self, uids: np.ndarray[Any, np.dtype[np.int64]]) -> Indices:
        nodes: Indices = self._fleet.registry.indices_of(uids)
        return nodes[nodes >= 0]


async def _do(bmc: Bmc, order: BmcOrder) -> None:
    match order.what:
        case "power":
            await bmc.set_power(order.action)
        case "boot":
            assert order.boot is not None
            await bmc.set_boot(order.boot)
        case "identify":
            await bmc.identify(order.on)
        case "limit":
            await bmc.set_power_limit(order.text or await _own_limit(bmc), order.watts)
        case "bios":
            await bmc.stage_bios(order.attributes)
        case "settings":
            assert order.settings is not None
            await bmc.set_settings(order.settings)
        case "media":
            await bmc.insert_media(order.text)


async def _own_limit(bmc: Bmc) -> str:
    """The cap of the node as a whole."""
    limit = caps.whole(await bmc.power_limits(), bmc.address)
    if limit is None:
        raise NotOffered("it cannot be capped", node=bmc.address)
    return limit.id


async def _followed(bmc: Bmc, task: Task) -> None:
    """Until the BMC says that the work has ended, as far as it can be followed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _UPDATE_TAKES
    while task.id and task.state == "running":
        if loop.time() > deadline:
            raise OutcomeUnknown(f"not finished after {_UPDATE_TAKES:.0f} s", where=bmc.address)
        await asyncio.sleep(_POLL)
        try:
            task = await bmc.task(task.id)
        except (DeviceError, OutcomeUnknown):
            continue  # it may be restarting with its new firmware
    if task.state == "failed":
        why = "; ".join(task.messages)[:300] or "no reason given"
        raise DeviceError(f"the update failed: {why}", node=bmc.address)


def _words(failed: Mapping[str, StrataError]) -> dict[str, str]:
    """What failed to be done, in words."""
    unknown = "not known whether it was done: "
    return {name: f"{unknown if isinstance(why, OutcomeUnknown) else ''}{why}" for name, why in failed.items()}


def many_outcome(done: Sequence[str], failed: Mapping[str, str], revision: int = 0) -> ManyOutcome:
    """What became of a request for many nodes; those that failed for the same reason come together."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in failed.items():
        by_reason[reason].append(name)
    return ManyOutcome(
        done=fold(done),
        done_count=len(done),
        failed=tuple(Failed(nodes=fold(names), reason=reason) for reason, names in by_reason.items()),
        failed_count=len(failed),
        revision=revision,
    )
