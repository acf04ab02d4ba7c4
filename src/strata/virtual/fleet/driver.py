"""The simulated fleet behind the engine's seam, in process: no sockets, no waiting, whole batches at once.

One ``SimDriver`` per driver name (``bmc``, ``node``, ``workload``), all over one ``SimNodes``. What they answer for
nodes of which some may not be there is in functions, which ``agents`` puts behind a socket.
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


def find(nodes: SimNodes, names: Sequence[str]) -> Indices:
    """The index of each; -1: there is no such node."""
    return np.fromiter((nodes.index.get(name, -1) for name in names), dtype=np.int64, count=len(names))


def act(
    nodes: SimNodes,
    mutation: str,
    idx: Indices,
    *,
    now: float,
    goals: Mapping[str, Column],
    epochs: Indices,
    generation: int,
) -> Outcomes:
    known = idx >= 0
    here = {name: column.take(known) for name, column in goals.items()}
    acted = nodes.act(mutation, idx[known], now=now, goals=here, epochs=epochs[known], generation=generation)
    codes = np.full(len(idx), Outcome.FAILED, dtype=np.int8)
    codes[known] = acted.codes
    reasons = dict.fromkeys(np.flatnonzero(~known).tolist(), "no such simulated node")
    told = acted.why > 0
    places, why = np.flatnonzero(known)[told].tolist(), acted.why[told].tolist()
    reasons |= {place: REASONS[code] for place, code in zip(places, why, strict=True)}
    return Outcomes(codes, reasons)


def look(nodes: SimNodes, variable: str, idx: Indices, now: float) -> Column:
    """What the source of truth for ``variable`` says of the nodes at ``idx``."""
    known = idx >= 0
    column = nodes.observe(variable, idx[known], now)
    if known.all():
        return column
    # The workload manager gives nobody what it has never heard of (an outlet, a chassis): that is out.
    codes = np.full(len(idx), OUT if variable == "workload" else 0, dtype=np.int32)
    codes[known] = column.codes
    return Column(column.words, codes)


def jobs_on(nodes: SimNodes, names: Sequence[str], idx: Indices, now: float) -> list[str]:
    """The workload manager's word on ``no-running-job``: empty, or what runs."""
    busy = np.zeros(len(idx), dtype=np.bool_)
    busy[idx >= 0] = nodes.job_running(idx[idx >= 0], now)
    answers = [""] * len(idx)
    for position in np.flatnonzero(busy).tolist():
        answers[position] = f"a job runs on {names[position]}"
    return answers


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
            return Outcomes.all(
                Outcome.FENCED, len(batch), "this controller stopped leading the node before the request was sent"
            )
        idx, goals, generation = self._find(batch), batch.goals, batch.generation
        return act(self._nodes, mutation.name, idx, now=now, goals=goals, epochs=batch.epochs, generation=generation)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """What each source of truth says; variables of other drivers are left out."""
        now, idx = self._clock(), self._find(batch)
        seen = {name: look(self._nodes, name, idx, now) for name in variables if name in SEEN_BY[self.name]}
        if "power" in seen and self._nodes.bmc_dead.any():
            dead = np.flatnonzero((idx >= 0) & self._nodes.bmc_dead[idx])
            seen["power"] = Column(seen["power"].words, seen["power"].codes, dict.fromkeys(dead.tolist(), DEAD))
        return seen

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """The workload manager's word on ``no-running-job``; every other guard is unknown here, and that is a no."""
        if guard != "no-running-job" or self.name != "workload":
            return [f"the simulated {self.name} driver does not know the guard {guard}"] * len(batch)
        return jobs_on(self._nodes, batch.names, self._find(batch), self._clock())

    def _find(self, batch: Batch) -> Indices:
        if self._by_uid is not None:
            return self._by_uid[np.minimum(batch.uids, len(self._by_uid) - 1)]
        return find(self._nodes, batch.names)


def sim_drivers(
    nodes: SimNodes, clock: Callable[[], float], *, uids: npt.NDArray[np.int64] | None = None
) -> dict[str, SimDriver]:
    return {name: SimDriver(name, nodes, clock, uids=uids) for name in SEEN_BY}
