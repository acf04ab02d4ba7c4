"""Where what nodes say of their checks comes from, and who runs these: real agents, or the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np

from strata.core.driver import Batch, Driver, Outcomes
from strata.core.errors import StrataError
from strata.core.input.decoding import UNREADABLE
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.platform.health.records import Checked
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.wire import Checks

Heard = Callable[[str, Checks | None], bool]
"""Takes what a node says of its checks; None: nobody speaks for it. Returns whether that is news."""

AT_ONCE = 90.0
"""Seconds that an agent gets to run all its checks."""

_NOT_WELL = "the simulator says that it is not well"
_results = msgspec.json.Decoder(dict[str, str | None]).decode


class Nodes(Protocol):
    """Those who can be asked about checks."""

    async def look(self, batch: Batch) -> None:
        """See to it that what the nodes say now was heard."""

    async def check(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Have them run their checks anew; does not wait for what comes of it."""

    async def run(self, names: Sequence[str]) -> list[Checked]:
        """Have them run their checks now; what came of it."""


class AgentNodes:
    """The agents that are attached to this controller. What they say comes by itself."""

    def __init__(
        self, hub: Hub, heard: Heard, tell: Callable[[Sequence[str]], None], deal: Callable[[str], None]
    ) -> None:
        """``tell``: told of whom there is news. ``deal``: has a node told its checks, if it runs others."""
        self._hub = hub
        self._heard = heard
        self._tell = tell
        self._deal = deal
        hub.changed.append(self.changed)

    def changed(self, names: Collection[str]) -> None:
        """Agents came, went or are different now."""
        news = []
        for name in names:
            agent = self._hub.get(name)
            said = agent.seen.checks if agent is not None and agent.seen is not None else None
            if self._heard(name, said if self._hub.attached(name) else None):
                news.append(name)
        self._tell(news)

    def tell(self, name: str, digest: str, checks: Sequence[Mapping[str, object]]) -> None:
        """Have a node run these, if it does not."""
        agent = self._hub.get(name)
        if agent is None or agent.seen is None or agent.seen.checks.digest == digest or not self._hub.attached(name):
            return
        if any(command.kind == "checks" and command.wire["digest"] == digest for command in agent.outbox.values()):
            return
        try:
            self._hub.send(name, "checks", {"digest": digest, "checks": checks})
        except StrataError:
            return  # too much is before it: it is told when it has spoken again

    async def look(self, batch: Batch) -> None:
        """Those who are gone without a word, and those whom what they should run has not reached."""
        for name in batch.names:
            if self._hub.attached(name):
                self._deal(name)
            else:
                self._heard(name, None)

    async def check(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Tell every agent."""
        outcomes = Outcomes.all(Outcome.DONE, len(batch))
        for at, name in enumerate(batch.names):
            try:
                self._hub.send(name, "check", timeout=AT_ONCE)
            except StrataError as error:
                outcomes.codes[at], outcomes.reasons = Outcome.FAILED, {**outcomes.reasons, at: error.detail}
        return outcomes

    async def run(self, names: Sequence[str]) -> list[Checked]:
        """Side by side."""
        return list(await asyncio.gather(*(self._one(name) for name in names)))

    async def reboot(self, batch: Batch) -> Outcomes:
        """Have every agent reboot its node."""
        codes, reasons = np.full(len(batch), Outcome.DONE, dtype=np.int8), dict[int, str]()

        async def one(at: int, name: str) -> None:
            try:
                told = await self._hub.send(name, "reboot", epoch=int(batch.epochs[at]), timeout=20.0).result
            except StrataError as error:
                codes[at], reasons[at] = Outcome.FAILED, error.detail
                return
            if told is None or not told.ok:
                codes[at] = Outcome.UNKNOWN if told is None else Outcome.FAILED
                reasons[at] = told.error if told else "its agent gave no answer"

        await asyncio.gather(*(one(at, name) for at, name in enumerate(batch.names)))
        return Outcomes(codes, reasons)

    async def _one(self, name: str) -> Checked:
        try:
            told = await self._hub.send(name, "check", timeout=AT_ONCE).result
            if told is not None and told.ok:
                return Checked(node=name, results=_results(told.output))
            why = told.error if told is not None else "its agent gave no answer"
        except StrataError as error:
            why = error.detail
        except UNREADABLE:
            why = "its agent's answer cannot be read"
        return Checked(node=name, results={}, error=why)


class SimulatedNodes:
    """Nodes that aren't there: the simulator's driver says who is well, whatever checks are declared."""

    CHECK = "simulated"
    """What the one check is called that they fail."""

    def __init__(self, driver: Driver, heard: Heard) -> None:
        self._driver = driver
        self._heard = heard

    async def look(self, batch: Batch) -> None:
        """Ask the simulator."""
        for name, word in zip(batch.names, await self._words(batch), strict=True):
            failing = {self.CHECK: _NOT_WELL} if word == "failing" else {}
            self._heard(name, Checks(ran=word in ("ok", "failing"), failing=failing))

    async def check(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """They are as they are: looked at again and again."""
        return Outcomes.all(Outcome.DONE, len(batch))

    async def run(self, names: Sequence[str]) -> list[Checked]:
        """The same."""
        words = await self._words(Batch(names=names, uids=np.zeros(len(names), dtype=np.int64)))
        said = {"ok": {self.CHECK: ""}, "failing": {self.CHECK: _NOT_WELL}}
        return [
            Checked(node=name, results=said.get(word, {}), error="" if word in said else "no agent is connected")
            for name, word in zip(names, words, strict=True)
        ]

    async def _words(self, batch: Batch) -> Sequence[str]:
        seen = (await self._driver.observe(("health",), batch)).get("health")
        return [""] * len(batch) if seen is None else list(seen.values())
