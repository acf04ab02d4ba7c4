"""The ``node`` driver for real nodes: looks through the agents that are attached, and acts by telling them.

A boot is the exception: there is no agent yet, so the node's BMC is told from where to boot before its
power goes on, and to start it anew where it is not on its way then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import Conflict, NotOffered, OutcomeUnknown, StrataError
from strata.core.fault_isolation import contained
from strata.core.model import ABSENT, UNKNOWN, Mutation
from strata.core.node import Node
from strata.core.state import Outcome
from strata.hardware.bmc.pace import Pace, Place
from strata.hardware.bmc.protocol import Bmc, Boot
from strata.provisioning.agents.agent import Agent, Command, Seen
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.life import Signs, Word, os_word
from strata.provisioning.identity.identity import Identity
from strata.provisioning.images.release import build_of
from strata.provisioning.personalities.resolve import Personalities

log = logging.getLogger(__name__)

ON_ITS_WAY = 120.0
"""Seconds for which a node that was switched on, or asked for something to boot, is left to boot by itself."""
PATIENCE = 20.0
"""Seconds that a call waits for agents' results where other calls wait too; later ones show in the facts."""
CALM = 3
"""Calls that may wait for as long as their mutation lasts."""

_FENCED = ("fenced", "refused: epoch")  # how agents begin when somebody newer has told them something

SEES = ("os", "minos", "identity", "image", "personality")
PERSONALITY = ("idle", "active", "update", "error", "fatal")
TROUBLES = ("error", "fatal")
"""Those of which an agent says why."""


AT_MOST = 20.0
"""Seconds for which nodes wait for their power until their BMCs were told; who was not is told by the boot."""


class Aim:
    """Remembers which nodes' BMCs took what they were told for the boot that is under way."""

    def __init__(self, open_bmc: Callable[[str], Bmc], ahead: Callable[[str], Boot | None]) -> None:
        """``ahead``: what is to be told before a node gets its power; None: nothing."""
        self._open = open_bmc
        self._ahead = ahead
        self.taken: set[str] = set()
        """Nodes whose BMC took it, so that their next start is the boot that is wanted."""
        self._pace = Pace(at_once=64, patience=0.1, at_most=1024)

    async def before_power(self, batch: Batch) -> None:
        """These are about to be switched on: tell their BMCs. Nobody is kept from the power by this."""
        self.taken.difference_update(batch.names)

        async def one(place: int, _: Place) -> None:
            name, address = batch.names[place], batch.bmcs[place]
            boot = self._ahead(name)
            if boot is not None and time.monotonic() <= batch.valid_until:
                await self.point(name, self._open(address), boot)

        def lost(place: int, error: StrataError) -> None:
            log.info("not told what to boot before its power", extra={"node": batch.names[place], "error": str(error)})

        try:
            async with asyncio.timeout(AT_MOST):
                await self._pace.each([place for place, address in enumerate(batch.bmcs) if address], one, lost)
        except TimeoutError:
            log.warning("controllers are slow to take what nodes shall boot", extra={"nodes": len(batch)})

    async def point(self, name: str, controller: Bmc, boot: Boot) -> None:
        """Have the node's next start be this boot."""
        try:
            await controller.set_boot(boot)
        except NotOffered:
            if not boot.uri:
                raise
            # It takes no address: its DHCP will tell it.
            await controller.set_boot(msgspec.structs.replace(boot, uri=""))
        self.taken.add(name)


class BootWay(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is started: the boot override for its BMC, and the medium to insert first, if any."""

    boot: Boot
    media: str = ""


class Questions(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver asks of the rest of the controller, about nodes by name. Times are Unix seconds."""

    node: Callable[[str], Node | None]
    open: Callable[[str], Bmc]
    """The BMC at an address."""
    asked: Callable[[str], float]
    """When the node last asked for something to boot; 0: not since this service runs."""
    profile: Callable[[str, str], str]
    """A boot profile's name and an architecture → ``name@digest`` as it is now; empty where nothing can be booted."""
    desired: Callable[[str], str]
    """The personality that the owners want there; empty: none."""
    way: Callable[[str], Awaitable[BootWay]]
    """How the node is started. May prepare something, such as a medium."""
    may_lose: Callable[[Batch], Awaitable[Sequence[str]]]
    """For every node: empty if no job would be hurt by cutting its power, else why not."""
    by_itself: Callable[[str], bool] = lambda name: True
    """Whether the node finds what to boot when it is switched on, its BMC told or not; not if it needs a medium
    or boots over HTTP."""
    ahead: Callable[[str], Boot | None] = lambda name: None
    """What a node's BMC is told before the node is switched on to boot; None: nothing, because no boot follows
    or a medium has to be made first."""
    cannot_boot: Callable[[str], str] = lambda name: ""
    """Why there is nothing that the node could boot; empty: there is something."""


class Extension(Protocol):
    """What another layer has agents see and do: one variable, and the mutation that changes it."""

    variable: str
    mutation: str

    def word(self, name: str, seen: Seen) -> str:
        """The fact of a node whose agent speaks."""
        ...

    async def ready(self, names: Sequence[str]) -> None:
        """Until ``command`` can be asked about these."""
        ...

    def command(self, name: str, goal: str, seen: Seen | None) -> tuple[str, dict[str, Any]] | None:
        """What its agent is told, as kind and body; None: there is nothing left to do."""
        ...


class NodeDriver:
    """Driver ``node`` over the hub. ``lost_power`` and ``got_power`` tell it what others saw or did."""

    name = "node"

    def __init__(
        self,
        hub: Hub,
        identity: Identity,
        sets: Personalities,
        questions: Questions,
    ) -> None:
        self._hub = hub
        self._identity = identity
        self._sets = sets
        self._questions = questions
        self._dark: dict[str, float] = {}
        self._lit: dict[str, float] = {}
        self._crashed: dict[str, float] = {}
        self._watched: dict[str, tuple[float, float]] = {}
        self._waiting = 0
        self._stranded: dict[str, float] = {}
        self._pace = Pace(at_once=64, patience=0.1, at_most=1024)
        self._aim = Aim(questions.open, questions.ahead)
        self.about_to_get_power = self._aim.before_power
        """These are about to be switched on: they shall boot what is wanted then, and not only the next time."""
        self._seen_by: dict[str, Extension] = {}
        self._done_by: dict[str, Extension] = {}

    def extend(self, extension: Extension) -> None:
        """See and do more."""
        self._seen_by[extension.variable] = extension
        self._done_by[extension.mutation] = extension

    # -- what others saw

    def lost_power(self, names: Iterable[str]) -> None:
        """These have no power, or are about to lose it: no agent there speaks any more."""
        now = time.time()
        for name in names:
            self._dark[name] = now
            self._lit.pop(name, None)
            self._hub.cut_off(name)

    def got_power(self, names: Iterable[str]) -> None:
        """These were just switched on: they boot by themselves."""
        now = time.time()
        for name in names:
            self._lit[name] = now

    async def panicked(self, name: str) -> bool:
        """The node's kernel says on its console that it dies. A console may lie, or repeat itself: whether it has died
        is what its agent's silence tells; False: it lives."""
        self._crashed[name] = time.time()
        return not await self._hub.doubt(name)

    def forget(self, name: str) -> None:
        """The node is gone: nothing of it is true of another one of that name."""
        for known in (self._dark, self._lit, self._crashed, self._watched, self._stranded):
            known.pop(name, None)
        self._aim.taken.discard(name)
        self._hub.forget(name)

    # -- looking

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """What the agents said last; variables of other drivers are left out."""
        return self.facts(variables, batch.names)

    def facts(self, variables: Sequence[str], names: Sequence[str]) -> Mapping[str, Column]:
        """The same of nodes by name, without waiting for anything."""
        wanted = [name for name in variables if name in SEES or name in self._seen_by]
        words: dict[str, list[str]] = {name: [] for name in wanted}
        reasons: dict[int, str] = {}
        away = time.time() - time.monotonic()
        labels: dict[tuple[str, str], str] = {}
        for place, name in enumerate(names):
            agent = self._hub.get(name)
            seen = agent.seen if agent is not None else None
            os = os_word(self._signs(name, agent, away), time.time())
            said = self._said(name, seen, labels) if os == "up" and seen is not None else {}
            if said.get("personality") in TROUBLES and seen is not None:
                reasons[place] = seen.reason
            for variable in wanted:
                words[variable].append(os if variable == "os" else said.get(variable, UNKNOWN))
        found = {variable: Column.of(column) for variable, column in words.items()}
        if "personality" in found:
            found["personality"].reasons = reasons
        return found

    def builds(self, name: str) -> Mapping[str, str]:
        """Of which build the image is that a node's agent here says it holds; empty where it says nothing."""
        agent = self._hub.get(name)
        if agent is None or agent.seen is None or not agent.seen.set_digest:
            return {}
        return {"image": f"build {build_of(agent.seen.set_digest)}"}

    def _signs(self, name: str, agent: Agent | None, away: float) -> Signs:
        return Signs(
            contact=agent.contact + away if agent is not None and agent.seen is not None else 0.0,
            missed=agent.missed + away if agent is not None else 0.0,
            crashed=self._crashed.get(name, 0.0),
            redeemed=self._identity.record(name).redeemed,
            asked=self._questions.asked(name),
            dark=self._dark.get(name, 0.0),
            listening=self._listening(name) + away,
            all_silent=self._hub.many_lost(),
        )

    def _listening(self, name: str) -> float:
        """Since when we are the one whom the agent would speak to: it is looked at all the time while that is so."""
        now = time.monotonic()
        first, last = self._watched.get(name, (now, now))
        if now - last > 180.0:
            first = now
        self._watched[name] = (first, now)
        return max(first, self._hub.started)

    def _said(self, name: str, seen: Seen, labels: dict[tuple[str, str], str]) -> dict[str, str]:
        profile, _, _ = seen.profile.partition("@")
        node = self._questions.node(name)
        key = (profile, node.architecture if node is not None else "")
        if key not in labels:
            labels[key] = self._questions.profile(*key)
        return {
            **{variable: extension.word(name, seen) for variable, extension in self._seen_by.items()},
            # Where nothing can be booted by the profile now, what the node booted by it is as right as can be.
            "minos": profile if seen.profile and labels[key] in ("", seen.profile) else seen.profile or UNKNOWN,
            # It spoke, and only a certificate lets it; unless that was taken from it since.
            "identity": "none" if self._identity.record(name).is_revoked else "issued",
            "image": self._image(name, seen),
            "personality": seen.set_state if seen.set_state in PERSONALITY else UNKNOWN,
        }

    def _image(self, name: str, seen: Seen) -> str:
        digest, held = seen.set_digest, seen.set_name
        if not digest and seen.set_state == "idle" and seen.loaded:
            wanted = self._sets.digest(self._questions.desired(name))
            digest = wanted if wanted in seen.loaded else seen.loaded[-1]
            held = self._sets.name_of(digest) or "unnamed"
        if not digest:
            return ABSENT
        return held if self._sets.digest(held) == digest else f"{held}@{build_of(digest)}"

    # -- acting

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Carry out ``mutation``; what the agents could not be told, or said no to, has failed. Where there is nothing
        to tell them (a personality that cannot be run), nothing was tried."""
        if mutation.name == "boot":
            return await self._boot(mutation, batch)
        if mutation.name == "enrol":
            return self._enrol(batch)
        if time.monotonic() > batch.valid_until:
            return Outcomes.all(
                Outcome.FENCED, len(batch), "this controller stopped leading the node before the agents were told"
            )
        outcomes = Outcomes.all(Outcome.UNKNOWN, len(batch))
        outcomes.reasons = {}
        told: dict[int, Command] = {}
        extension = self._done_by.get(mutation.name)
        if extension is not None:
            await extension.ready(batch.names)
        variable = extension.variable if extension is not None else "image"
        goals = batch.goals[variable].values() if variable in batch.goals else [UNKNOWN] * len(batch)
        for place, name in enumerate(batch.names):
            try:
                told_what = self._command(mutation, name, goals[place])
            except StrataError as error:
                outcomes.codes[place], outcomes.reasons[place] = Outcome.UNTRIED, str(error)
                continue
            if told_what is None:
                outcomes.codes[place] = Outcome.DONE
                continue
            kind, body = told_what
            try:
                epoch = int(batch.epochs[place])
                told[place] = self._hub.send(name, kind, body, epoch=epoch, timeout=mutation.timeout)
            except StrataError as error:
                outcomes.codes[place], outcomes.reasons[place] = Outcome.FAILED, str(error)
        await self._wait([command.result for command in told.values()], mutation.timeout)
        for place, command in told.items():
            outcomes.codes[place], reason = _outcome(command)
            if reason:
                outcomes.reasons[place] = reason
        return outcomes

    def _command(self, mutation: Mutation, name: str, goal: str) -> tuple[str, dict[str, Any]] | None:
        if mutation.name in self._done_by:
            known = self._hub.get(name)
            return self._done_by[mutation.name].command(name, goal, known.seen if known is not None else None)
        if mutation.name in ("load-image", "switch-image"):
            node = self._questions.node(name)
            if node is None:
                raise StrataError("there is no such node", where=name)
            kind = "load" if mutation.name == "load-image" else "switch"
            return kind, {"set": self._sets.for_node(goal, node)}
        if mutation.name == "start-personality":
            agent = self._hub.get(name)
            held = self._image(name, agent.seen) if agent is not None and agent.seen is not None else ""
            return "start", {"digest": self._sets.digest(held)}
        if mutation.name == "stop-personality":
            return "stop", {}
        raise StrataError("agents cannot do this", where=mutation.name)

    async def _wait(self, results: Sequence[asyncio.Future[Any]], limit: float) -> None:
        """Until all have answered; no longer than ``limit``, and only a little while where many calls wait."""
        begun = time.monotonic()
        pending: set[asyncio.Future[Any]] = set(results)
        self._waiting += 1
        try:
            while pending:
                passed = time.monotonic() - begun
                if passed >= limit or (passed >= PATIENCE and self._waiting > CALM):
                    return
                _, pending = await asyncio.wait(pending, timeout=min(1.0, limit - passed))
        finally:
            self._waiting -= 1

    def _enrol(self, batch: Batch) -> Outcomes:
        """Nodes enrol by themselves while they boot; here one only learns whether they have."""
        codes = np.full(len(batch), Outcome.DONE, dtype=np.int8)
        reasons: dict[int, str] = {}
        for place, name in enumerate(batch.names):
            record = self._identity.record(name)
            if record.is_revoked:
                codes[place] = Outcome.UNTRIED
                reasons[place] = f"its certificate was revoked by {record.revoked_by}: it gets another when it boots"
            elif not self._hub.attached(name):
                codes[place], reasons[place] = Outcome.FAILED, "its agent is not attached"
        return Outcomes(codes, reasons)

    async def _boot(self, mutation: Mutation, batch: Batch) -> Outcomes:
        codes = np.full(len(batch), Outcome.DONE, dtype=np.int8)
        reasons: dict[int, str] = {}
        await self._known([name for name in batch.names if not self._questions.by_itself(name)], mutation.timeout)
        cold = []
        for place, name in enumerate(batch.names):
            if self._word(name) != "down":
                continue  # Up: there is nothing to do. Unknown or hung: it may run, and is left alone; the fact tells.
            if why := self._questions.cannot_boot(name):
                codes[place], reasons[place] = Outcome.UNTRIED, why
            elif not self._is_on_its_way(name):
                cold.append(place)

        if cold:
            # It has power, and who knows what runs there: a system that is not ours, or an agent that we fail to hear.
            refusals = await self._questions.may_lose(batch.take(np.array(cold, dtype=np.int64)))
            for place, why in zip(cold, refusals, strict=True):
                if why:
                    codes[place], reasons[place] = Outcome.UNTRIED, f"not started anew: {why}"
            cold = [place for place in cold if place not in reasons]

        async def one(place: int, _: Place) -> None:
            try:
                way, address = await self._way(batch, place)
            except StrataError as error:
                codes[place], reasons[place] = Outcome.UNTRIED, str(error)
                return
            with contained(address):
                await self._start(batch, place, way, address, mutation.timeout)

        def lost(place: int, error: StrataError) -> None:
            unknown, fenced = isinstance(error, OutcomeUnknown), isinstance(error, Conflict)
            if not unknown:
                self._stranded[batch.names[place]] = time.time()
                self._aim.taken.discard(batch.names[place])
            codes[place] = Outcome.UNKNOWN if unknown else Outcome.FENCED if fenced else Outcome.FAILED
            reasons[place] = str(error)

        await self._pace.each(cold, one, lost)
        return Outcomes(codes, reasons)

    def _word(self, name: str) -> Word:
        away = time.time() - time.monotonic()
        return os_word(self._signs(name, self._hub.get(name), away), time.time())

    async def _known(self, names: Sequence[str], limit: float) -> None:
        """Until it is known whether these run. Who boots by itself may be left alone meanwhile; these would be for
        ever."""
        for _ in range(int(limit)):
            if all(self._word(name) != "unknown" for name in names):
                return
            await asyncio.sleep(1.0)

    def _is_on_its_way(self, name: str) -> bool:
        record = self._identity.record(name)
        lit = self._lit.get(name, 0.0) if name in self._aim.taken or self._questions.by_itself(name) else 0.0
        # What it asked for before it arrived, lost its power or could not be started belongs to a boot that is over.
        over = max(record.redeemed, self._dark.get(name, 0.0), self._stranded.get(name, 0.0))
        # A kernel that died may write down why, and then starts anew by itself.
        begun = [at for at in (self._questions.asked(name), record.opened, self._crashed.get(name, 0.0)) if at > over]
        return time.time() - max(lit, *begun, 0.0) <= ON_ITS_WAY

    async def _way(self, batch: Batch, place: int) -> tuple[BootWay, str]:
        """How the node is to be started, and where its BMC is."""
        address = batch.bmcs[place] if place < len(batch.bmcs) else ""
        if not address:
            raise StrataError("it does not boot by itself, and has no controller", where=batch.names[place])
        return await self._questions.way(batch.names[place]), address

    async def _start(self, batch: Batch, place: int, way: BootWay, address: str, limit: float) -> None:
        """Have the node's BMC start it from the network."""
        controller = self._questions.open(address)
        if way.media:
            await controller.insert_media("")  # what is in the drive would be in the way
            await controller.insert_media(way.media)
        await self._aim.point(batch.names[place], controller, way.boot)
        begin_before = min(batch.valid_until, time.monotonic() + limit)
        if time.monotonic() > begin_before:
            raise Conflict("not begun: this controller no longer leads the node", where=address)
        await controller.set_power("cycle", fence=batch.fence(place), begin_before=begin_before)
        self.got_power([batch.names[place]])

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """Agents answer no guards, and that is a no."""
        return [f"the node driver does not know the guard {guard}"] * len(batch)


def _outcome(command: Command) -> tuple[Outcome, str]:
    if not command.result.done():
        # It has it, and is at it: the fact will show.
        return (Outcome.DONE, "") if command.received else (Outcome.UNKNOWN, "its agent has not answered yet")
    result = command.result.result()
    if result is None:
        return Outcome.UNKNOWN, "its agent gave no answer"
    if result.ok:
        return Outcome.DONE, ""
    reason = result.error or "its agent said no"
    if result.unknown:
        return Outcome.UNKNOWN, reason
    return (Outcome.FENCED if reason.startswith(_FENCED) else Outcome.FAILED), reason
