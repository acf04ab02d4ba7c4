"""Driver ``health``: says how nodes are, has their checks run anew, and does what the policy has next for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.platform.health.nodes import Nodes
from strata.platform.health.records import Repair

NAME = "health"

Judged = Callable[[str], tuple[str, str]]
"""How a node is, and why."""
Next = Callable[[str], tuple[Repair | None, str]]
"""What is to be done about a node; None: nothing, and why."""


class HealthDriver:
    """Implements ``strata.core.driver.Driver``. ``note`` writes repairs down before they are done, by what is done."""

    name = NAME

    def __init__(
        self,
        nodes: Nodes,
        judged: Judged,
        next_: Next,
        note: Callable[[Mapping[Repair, Sequence[str]]], Awaitable[None]],
        do: Callable[[Repair, Batch], Awaitable[Outcomes]],
        clock: Callable[[], float],
    ) -> None:
        self._nodes, self._judged, self._next = nodes, judged, next_
        self._note, self._do, self._clock = note, do, clock

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """What was heard of the nodes, weighed."""
        if NAME not in variables:
            return {}
        await self._nodes.look(batch)
        return {NAME: self.column(batch.names)}

    def column(self, names: Sequence[str]) -> Column:
        """How the nodes are."""
        found = [self._judged(name) for name in names]
        made = Column.of(word for word, _ in found)
        made.reasons = {at: why for at, (_, why) in enumerate(found) if why}
        return made

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Have the checks run, or repair."""
        if mutation.name == "check-health":
            return await self._nodes.check(mutation, batch)
        codes, reasons = np.full(len(batch), Outcome.UNTRIED, dtype=np.int8), dict[int, str]()
        wanted: dict[Repair, list[int]] = {}
        for at, name in enumerate(batch.names):
            action, why = self._next(name)
            if action is None:
                reasons[at] = why
            else:
                wanted.setdefault(action, []).append(at)
        if wanted and self._clock() > batch.valid_until:
            return Outcomes.all(
                Outcome.FENCED, len(batch), "this controller stopped leading the node before anything was done"
            )
        if wanted:
            await self._note({action: [batch.names[at] for at in places] for action, places in wanted.items()})
        for action, places in wanted.items():
            done = await self._do(action, batch.take(np.array(places, dtype=np.int64)))
            for at, code in zip(places, done.codes.tolist(), strict=True):
                codes[at] = code
            reasons.update({places[at]: f"{action}: {why}" for at, why in done.reasons.items()})
        return Outcomes(codes, reasons)

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """It answers for no guard."""
        return [f"nobody here knows the guard {guard}"] * len(batch)
