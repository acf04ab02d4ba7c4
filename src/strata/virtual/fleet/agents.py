"""The agent gateway: one place that speaks for the agents and workload manager of many nodes, in batches.

It stands in for node agents, so that the whole built-in model can converge over sockets. The wire form is here,
for both sides: ``agent_driver`` is its client. Knows neither sockets nor HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from strata.core.column import Column, Indices
from strata.core.errors import BadRequest
from strata.core.state import Outcome
from strata.virtual.fleet.model import BMC_STEPS, OUT, REASONS
from strata.virtual.fleet.nodes import SimNodes


class WireColumn(msgspec.Struct, frozen=True):
    """A ``Column`` on the wire; the codes are 32-bit little-endian integers."""

    words: tuple[str, ...]
    codes: bytes

    @classmethod
    def of(cls, column: Column) -> WireColumn:
        """From a column."""
        return cls(column.words, column.codes.astype("<i4").tobytes())

    def column(self, count: int) -> Column:
        """Back to a column; raises ``BadRequest`` unless it has ``count`` codes, all with a word."""
        if len(self.codes) != 4 * count:
            raise BadRequest(f"{len(self.codes)} bytes of codes for {count} nodes", where="codes")
        codes = np.frombuffer(self.codes, dtype="<i4").astype(np.int32)
        if count and (codes.min() < 0 or codes.max() > len(self.words)):
            raise BadRequest("a code without a word", where="codes")
        return Column(self.words, codes)


class ObserveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Look at ``variables`` of ``nodes``."""

    variables: tuple[str, ...]
    nodes: tuple[str, ...]


class ActRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Carry out ``mutation`` on ``nodes``; ``epochs`` are 64-bit little-endian integers."""

    mutation: str
    nodes: tuple[str, ...]
    epochs: bytes
    generation: int
    goals: Mapping[str, WireColumn] = {}


class ActReply(msgspec.Struct, frozen=True):
    """One ``Outcome`` per node as a byte, and reasons by position."""

    codes: bytes
    reasons: Mapping[int, str]


class PermitsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """May ``guard`` let ``nodes`` pass?"""

    guard: str
    nodes: tuple[str, ...]


class Gateway:
    """Answers for the agents of ``nodes``. Requests and replies are MessagePack."""

    def __init__(self, nodes: SimNodes) -> None:
        self._nodes = nodes

    def answer(self, route: str, body: bytes, now: float) -> bytes | None:
        """The reply to one request; None for a route that there isn't. Raises ``BadRequest``."""
        try:
            if route == "observe":
                return self._observe(msgspec.msgpack.decode(body, type=ObserveRequest), now)
            if route == "act":
                return self._act(msgspec.msgpack.decode(body, type=ActRequest), now)
            if route == "permits":
                return self._permits(msgspec.msgpack.decode(body, type=PermitsRequest), now)
        except msgspec.DecodeError as wrong:
            raise BadRequest(str(wrong), where=route) from wrong
        return None

    def _observe(self, request: ObserveRequest, now: float) -> bytes:
        idx, known = self._find(request.nodes)
        seen = {}
        for variable in request.variables:
            column = self._nodes.observe(variable, idx[known], now)
            # The workload manager gives nobody what it has never heard of (an outlet, a chassis): that is out.
            codes = np.full(len(idx), OUT if variable == "workload" else 0, dtype=np.int32)
            codes[known] = column.codes
            seen[variable] = WireColumn.of(Column(column.words, codes))
        return msgspec.msgpack.encode(seen)

    def _act(self, request: ActRequest, now: float) -> bytes:
        if request.mutation in BMC_STEPS:
            raise BadRequest("agents do not switch power: ask the controller", where=request.mutation)
        count = len(request.nodes)
        if len(request.epochs) != 8 * count:
            raise BadRequest(f"{len(request.epochs)} bytes of epochs for {count} nodes", where="epochs")
        idx, known = self._find(request.nodes)
        acted = self._nodes.act(
            request.mutation,
            idx[known],
            now=now,
            goals={name: column.column(count).take(known) for name, column in request.goals.items()},
            epochs=np.frombuffer(request.epochs, dtype="<i8").astype(np.int64)[known],
            generation=request.generation,
        )
        codes = np.full(count, Outcome.FAILED, dtype=np.int8)
        codes[known] = acted.codes
        why = np.zeros(count, dtype=np.int8)
        why[known] = acted.why
        reasons = {position: REASONS[why[position]] for position in np.flatnonzero(why).tolist()}
        reasons |= dict.fromkeys(np.flatnonzero(~known).tolist(), "no such simulated node")
        return msgspec.msgpack.encode(ActReply(codes.tobytes(), reasons))

    def _permits(self, request: PermitsRequest, now: float) -> bytes:
        if request.guard != "no-running-job":
            raise BadRequest("the simulated workload manager knows only no-running-job", where=request.guard)
        idx, known = self._find(request.nodes)
        busy = np.zeros(len(idx), dtype=np.bool_)
        busy[known] = self._nodes.job_running(idx[known], now)
        names = request.nodes
        return msgspec.msgpack.encode(
            [f"a job runs on {names[i]}" if runs else "" for i, runs in enumerate(busy.tolist())]
        )

    def _find(self, names: Sequence[str]) -> tuple[Indices, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        if len(set(names)) != len(names):
            raise BadRequest("a node is named twice", where="nodes")
        index = self._nodes.index
        idx = np.fromiter((index.get(name, -1) for name in names), dtype=np.int64, count=len(names))
        return idx, idx >= 0
