"""The simulated fleet behind the engine's seam, in process: no sockets, no waiting, whole batches at once.

One ``SimDriver`` per driver name (``bmc``, ``node``, ``workload``), all over one ``SimNodes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from strata.core.column import Column, Indices
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.virtual.fleet.model import OUT, REASONS, SEEN_BY
from strata.virtual.fleet.nodes import SimNodes

DEAD = "its BMC does not answer"


class SimDriver:
    """Answers as the devices of ``nodes`` would, at the time that ``clock`` gives.

    Nodes are found by name, or by uid where ``uids`` says which uid each simulated node has (faster: no look-up
    per node).
    """

    def __init__(
        self, name: str, nodes: SimNodes, clock: Callable[[], float], *, uids: npt.NDArray[np.int64] | None = None
    ) -> None:
        if name not in SEEN_BY:
            raise BadRequest(f"simulated drivers are {', '.join(SEEN_BY)}", where=name)
        self.name = name
        self._nodes = nodes
        self._clock = clock
        self._by_uid: Indices | None = None
        if uids is not None:
            self._by_uid = np.full(int(uids.max(initial=-1)) + 2, -1, dtype=np.int64)
            self._by_uid[uids] = nodes.all

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Tell the nodes, unless the lead has run out."""
        now = self._clock()
        if now > batch.valid_until:
            return Outcomes.all(Outcome.FENCED, len(batch), "the lead ran out before the request was sent")
        idx = self._find(batch)
        known = idx >= 0
        codes = np.full(len(batch), Outcome.FAILED, dtype=np.int8)
        goals = {name: column.take(known) for name, column in batch.goals.items()}
        acted = self._nodes.act(
            mutation.name,
            idx[known],
            now=now,
            goals=goals,
            epochs=batch.epochs[known],
            generation=batch.generation,
        )
        codes[known] = acted.codes
        reasons = dict.fromkeys(np.flatnonzero(~known).tolist(), "no such simulated node")
        positions = np.flatnonzero(known)
        for place in np.flatnonzero(acted.why).tolist():
            reasons[int(positions[place])] = REASONS[acted.why[place]]
        return Outcomes(codes, reasons)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """What each source of truth says; variables of other drivers are left out."""
        now = self._clock()
        idx = self._find(batch)
        known = idx >= 0
        seen = {}
        for variable in variables:
            if variable in SEEN_BY[self.name]:
                column = self._nodes.observe(variable, idx[known], now)
                if not known.all():
                    # The workload manager gives nobody what it has never heard of: that is out.
                    codes = np.full(len(batch), OUT if variable == "workload" else 0, dtype=np.int32)
                    codes[known] = column.codes
                    column = Column(column.words, codes)
                if variable == "power" and self._nodes.bmc_dead.any():
                    dead = np.flatnonzero(known)[self._nodes.bmc_dead[idx[known]]]
                    column = Column(column.words, column.codes, dict.fromkeys(dead.tolist(), DEAD))
                seen[variable] = column
        return seen

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """The workload manager's word on ``no-running-job``; every other guard is unknown here, and that is a no."""
        if guard != "no-running-job" or self.name != "workload":
            return [f"the simulated {self.name} driver does not know the guard {guard}"] * len(batch)
        idx = self._find(batch)
        busy = np.zeros(len(batch), dtype=np.bool_)
        busy[idx >= 0] = self._nodes.job_running(idx[idx >= 0], self._clock())
        answers = [""] * len(batch)
        for position in np.flatnonzero(busy).tolist():
            answers[position] = f"a job runs on {batch.names[position]}"
        return answers

    def _find(self, batch: Batch) -> Indices:
        if self._by_uid is not None:
            return self._by_uid[np.clip(batch.uids, -1, len(self._by_uid) - 1)]
        index = self._nodes.index
        return np.fromiter((index.get(name, -1) for name in batch.names), dtype=np.int64, count=len(batch))


def sim_drivers(
    nodes: SimNodes, clock: Callable[[], float], *, uids: npt.NDArray[np.int64] | None = None
) -> dict[str, SimDriver]:
    """All three, by name."""
    return {name: SimDriver(name, nodes, clock, uids=uids) for name in SEEN_BY}
