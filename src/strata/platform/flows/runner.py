"""Carries out the steps of a flow as an operation: from the position that was written down, whoever wrote it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from strata.core import intset
from strata.core.errors import BadRequest, Conflict, StrataError, Unavailable
from strata.core.nodeset import fold
from strata.core.texts import WantedMap, wanted_values
from strata.fleet.access.principal import Principal
from strata.fleet.columns import Indices, Mask
from strata.fleet.drivers.subprocesses import run_command
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Step
from strata.platform.flows.records import FlowStep, StepState
from strata.platform.settings import PlatformSettings
from strata.provisioning.boot.requests import BootControl
from strata.provisioning.exec.records import ExecRequest
from strata.provisioning.exec.service import ExecService

LOOK_EVERY = 0.5
"""Seconds between two looks at facts that are waited for."""
AT_ONCE = 10_000
"""Nodes whose desires are changed in one go."""
REVOKED_AT_ONCE = 64
MOST_SAID = 64 * 1024
"""Bytes that a command of the site may say."""
_LOST = "not known whether it was run: the controller was restarted meanwhile"

Failed = list[tuple[str, str]]


class Position(msgspec.Struct, kw_only=True):
    """Where a run is. ``log``: how the steps before went."""

    step: int = 0
    attempt: int = 0
    began: float = 0.0
    """When the present try of the present step began; 0: it has not."""
    uids: list[tuple[int, int]] = []
    """The nodes that the step is about, as they were selected when it began."""
    sent: bool = False
    """A command may have been sent."""
    log: list[StepState] = []


class FlowArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is: as it was when it began, whatever becomes of the flow meanwhile."""

    flow: str
    steps: tuple[FlowStep, ...]
    author: str
    now: bool = False
    """Nothing is waited for."""


class FlowRunner:
    """Does operations of kind ``flow``."""

    KIND = "flow"

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        fleet.operations.register(self.KIND, self.work)
        self._wall = fleet.controller.clock.wall

    async def work(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        """All steps from ``position`` on."""
        told = msgspec.convert(arguments, FlowArguments)
        at = msgspec.convert(position, Position) if position else Position()
        while at.step < len(told.steps):
            step = told.steps[at.step]
            if not at.began:
                uids = self._fleet.registry.uids[self.selected(step)]
                at = msgspec.structs.replace(at, uids=intset.pack(uids), began=self._wall(), attempt=0, sent=False)
                yield Step(position=at, durable=True)
            if not len(intset.unpack(at.uids)) and not step.run:
                at = self._after(at, StepState(name=step.name, does=step.does, state="skipped"))
                yield Step(position=at)
                continue
            failed: Failed = []
            async with contextlib.aclosing(self._try(step, at, told)) as tries:
                async for found in tries:
                    if isinstance(found, Position):
                        begins, at = found.sent and not at.sent, found
                        yield Step(position=at, durable=begins)
                    else:
                        failed = found
            count = len(intset.unpack(at.uids))
            allowed = step.allowed(count)
            if len(failed) > allowed and at.attempt < step.retries:
                at = msgspec.structs.replace(at, attempt=at.attempt + 1, began=self._wall(), sent=False)
                await self._forgive(failed, told.author)
                yield Step(position=at, durable=True)
                continue
            broke = len(failed) > allowed
            state = StepState(
                name=step.name,
                does=step.does,
                state="failed" if broke else "done",
                nodes=count,
                reached=count - len(failed) if count else 0,
                failed=len(failed),
                began=at.began,
                ended=self._wall(),
            )
            at = self._after(at, state, stays=broke)
            yield Step(position=at, done=state.reached, failed=[(name, f"{step.name}: {why}") for name, why in failed])
            if broke:
                told_of = (
                    f"{len(failed)} of {count} nodes failed ({failed[0][0]}: {failed[0][1]})" if count else failed[0][1]
                )
                raise Conflict(
                    f"{told_of}; allowed are {allowed}",
                    where=f"step {step.name}",
                    hint=f"mend it, then go on with: strata flow run {told.flow} --from {step.name}",
                )

    def selected(self, step: FlowStep) -> Indices:
        """The nodes that a step is about now."""
        return self._fleet.registry.select(f"{step.nodes} {step.when}".strip(), self._fleet.view)

    def reached(self, nodes: Indices, wanted: WantedMap) -> Mask:
        """Of which nodes the facts are as wanted."""
        found: Mask = np.ones(len(nodes), dtype=np.bool_)
        for variable, value in wanted.items():
            masks = [self._fleet.view.fact_mask(variable, word)[nodes] for word in wanted_values(value)]
            found &= np.logical_or.reduce(masks)
        return found

    def _after(self, at: Position, state: StepState, *, stays: bool = False) -> Position:
        step = at.step if stays else at.step + 1
        return Position(step=step, log=[*at.log, state])

    async def _forgive(self, failed: Failed, author: str) -> None:
        """Nodes that gave up are to try again."""
        found = np.array([self._fleet.registry.find(name) for name, _ in failed], dtype=np.int64)
        found = found[found >= 0]
        faulted = found[self._fleet.controller.engine.progress.fault[found]]
        if len(faulted):
            await self._fleet.edits.retry(faulted, author)

    # -- what steps do; each gives positions on the way, and what failed at the end

    async def _try(self, step: FlowStep, at: Position, told: FlowArguments) -> AsyncGenerator[Position | Failed, None]:
        if step.exec or step.run:
            if at.sent and not step.repeatable:
                yield [(name, _LOST) for name in self._names(at)] or [("", _LOST)]
                return
            at = msgspec.structs.replace(at, sent=True)
            yield at
            work = self._exec(step, at, told) if step.exec else self._run(step, at, told)
            doing = asyncio.create_task(work, name=f"step {step.name}")
            try:
                while not doing.done():
                    yield at  # here a cancel is seen
                    await asyncio.wait({doing}, timeout=LOOK_EVERY)
                yield doing.result()
            finally:
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
            return
        if step.revoke:
            yield await self._revoke(self._names(at), told.author)
            return
        failed: Failed = []
        if step.set or step.unset:
            failed = await self._set(step, at, told.author)
        wanted = step.waits_for
        if told.now or not wanted:
            yield failed
            return
        deadline = at.began + step.timeout
        while True:
            nodes = self._nodes(at)
            missing = nodes[~self.reached(nodes, wanted)]
            hopeless = self._fleet.controller.engine.progress.fault[missing]
            if not len(missing) or hopeless.all() or self._wall() >= deadline:
                yield [*failed, *self._why(missing, wanted)]
                return
            yield at  # here a cancel is seen
            await asyncio.sleep(LOOK_EVERY)

    async def _set(self, step: FlowStep, at: Position, author: str) -> Failed:
        failed: Failed = []
        nodes = self._nodes(at)
        uids = self._fleet.registry.uids[nodes]
        for start in range(0, len(uids), AT_ONCE):
            some = self._fleet.registry.indices_of(uids[start : start + AT_ONCE])
            some = some[some >= 0]
            names = self._fleet.view.names(some)
            done = await self._fleet.edits.set_desires(some, step.set, step.unset, author)
            failed += [(names[place], why) for place, why in done.conflicts.items()]
            await self._fleet.considered(done.revision)
        return failed

    async def _exec(self, step: FlowStep, at: Position, told: FlowArguments) -> Failed:
        """By the nodes' agents. Each has the step's time; those that are not heard of have failed."""
        service = self._fleet.services.find(ExecService)
        names = self._names(at)
        if service is None:
            raise Conflict("no agents are known here", where=f"step {step.name}", hint="run the provisioning layer")
        who = Principal(name=told.author, role="admin")
        request = ExecRequest(select=fold(names), argv=step.exec, where=step.where, timeout=min(step.timeout, 3600.0))
        view = await service.begin(who, request)
        failed: Failed = []
        after = 0
        try:
            while view.state == "running" or after < view.done:
                view = await service.show(who, view.id, after, 10.0)
                after = view.next
                failed += [
                    (one.node, one.error or f"exit status {one.exit}") for one in view.items if one.error or one.exit
                ]
        finally:
            if view.state == "running":
                await service.cancel(who, view.id)
        return failed

    async def _run(self, step: FlowStep, at: Position, told: FlowArguments) -> Failed:
        """A command that the site's configuration file names."""
        command = self._fleet.section(PlatformSettings).commands.get(step.run)
        if command is None:
            hint = "name it under platform.commands in the configuration file"
            raise BadRequest(f"the site has no command {step.run!r}", where=f"step {step.name}", hint=hint)
        env = {"STRATA_FLOW": told.flow, "STRATA_STEP": step.name}
        body = "\n".join(self._names(at)).encode()
        ended = await run_command(command, body, step.timeout, MOST_SAID, env)
        if isinstance(ended, str):
            return [("", ended)]
        return [("", f"exit status {ended.status}: {ended.errors[:200]}")] if ended.status else []

    async def _revoke(self, names: Sequence[str], author: str) -> Failed:
        """Side by side; doing it twice is the same as once."""
        control = boot_control(self._fleet)
        who, failed = Principal(name=author, role="admin"), []

        async def one(name: str) -> None:
            try:
                await control.revoke(who, name)
            except Unavailable:
                raise
            except StrataError as error:
                failed.append((name, error.detail))

        for start in range(0, len(names), REVOKED_AT_ONCE):
            await asyncio.gather(*(one(name) for name in names[start : start + REVOKED_AT_ONCE]))
        return failed

    def _nodes(self, at: Position) -> Indices:
        found: Indices = self._fleet.registry.indices_of(intset.unpack(at.uids))
        return found[found >= 0]

    def _names(self, at: Position) -> list[str]:
        return list(self._fleet.view.names(self._nodes(at)))

    def _why(self, nodes: Indices, wanted: WantedMap) -> Failed:
        """What is not as wanted, of each."""
        columns, reasons = self._fleet.controller.engine.table.columns, self._fleet.controller.engine.progress.reasons
        found: Failed = []
        for index in nodes.tolist():
            facts = {name: columns[name].words[columns[name].fact[index]] for name in wanted}
            wrong = [f"{name} is {fact}" for name, fact in facts.items() if fact not in wanted_values(wanted[name])]
            more = f" ({reasons[index]})" if index in reasons else ""
            found.append((self._fleet.registry.names[index], f"{', '.join(wrong)}{more}"[:300]))
        return found


def boot_control(fleet: Fleet) -> BootControl:
    """Who gives certificates to nodes, and takes them away; ``Conflict`` where nobody here does."""
    control = fleet.services.find(BootControl)
    if control is None:
        raise Conflict(
            "no boots are known here", hint="ask a controller that runs the provisioning layer, with networks"
        )
    return control
