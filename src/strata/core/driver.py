"""The seam between the engine and the world: who carries out mutations, looks, and answers guards.

A driver works on batches, reports what it saw and never what it hoped, and honours the fence: it does
not begin on a node once the batch's lead has run out, and hands the fence on to devices that can check it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from strata.core.column import Column
from strata.core.model import Mutation
from strata.core.state import Fence, Outcome


class Batch:
    """Some nodes, in order, with what a driver needs to act on them."""

    __slots__ = ("_valid_until", "bmcs", "epochs", "generation", "goals", "names", "uids")

    def __init__(
        self,
        *,
        names: Sequence[str],
        uids: npt.NDArray[np.int64],
        bmcs: Sequence[str] = (),
        goals: Mapping[str, Column] | None = None,
        epochs: npt.NDArray[np.int64] | None = None,
        generation: int = 0,
        valid_until: float | Callable[[], float] = float("inf"),
    ) -> None:
        self.names = names
        self.uids = uids
        self.bmcs = bmcs
        """Where each node's BMC answers; empty where no driver of the batch needs it."""
        self.goals = goals or {}
        """For the variables that the mutation touches: what is desired, per node."""
        self.epochs = epochs if epochs is not None else np.zeros(len(names), dtype=np.int64)
        self.generation = generation
        self._valid_until = valid_until

    def __len__(self) -> int:
        return len(self.names)

    @property
    def valid_until(self) -> float:
        """On the monotonic clock: do not begin on a node after this. Ask anew for each: a lead is prolonged or lost."""
        return self._valid_until() if callable(self._valid_until) else self._valid_until

    def take(self, positions: npt.NDArray[np.int64]) -> Batch:
        """The part of the batch at ``positions``."""
        here = positions.tolist()
        return Batch(
            names=[self.names[place] for place in here],
            uids=self.uids[positions],
            bmcs=[self.bmcs[place] for place in here] if self.bmcs else (),
            goals={name: column.take(positions) for name, column in self.goals.items()},
            epochs=self.epochs[positions],
            generation=self.generation,
            valid_until=self._valid_until,
        )

    def fence(self, position: int) -> Fence:
        """The fence for the node at ``position``."""
        return Fence(int(self.epochs[position]), self.generation)


class Outcomes:
    """One ``Outcome`` per node of a batch, with a reason where there is something to say."""

    __slots__ = ("codes", "reasons")

    def __init__(self, codes: npt.NDArray[np.int8], reasons: Mapping[int, str] | None = None) -> None:
        self.codes = codes
        self.reasons = reasons or {}
        """Position in the batch → what the device said."""

    @classmethod
    def all(cls, outcome: Outcome, count: int, reason: str = "") -> Outcomes:
        """The same outcome for everybody."""
        return cls(np.full(count, outcome, dtype=np.int8), dict.fromkeys(range(count), reason) if reason else {})


class Driver(Protocol):
    """Carries out mutations, observes variables, answers guards; for a batch at a time.

    An exception that escapes ``act`` means that the outcome of the whole batch is unknown; one that escapes
    ``observe`` means that nothing was seen; one that escapes ``permits`` means no.
    """

    name: str

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Carry out ``mutation`` on every node of the batch, within the mutation's timeout."""
        ...

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """Look at ``variables``; each returned column is aligned with the batch."""
        ...

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """For every node: empty for yes, or why not."""
        ...
