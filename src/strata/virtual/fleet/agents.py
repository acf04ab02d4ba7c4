"""The agent gateway: one place that speaks for the agents and workload manager of many nodes, in batches.

It stands in for node agents, so that all that the layers declare can converge over sockets. Both sides are here: the
``Gateway`` in the simulator (which knows neither sockets nor HTTP), and the engine's drivers that ask it over HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import aiohttp
import msgspec
import numpy as np

from strata.core.column import Column, Indices
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest, DeviceError, OutcomeUnknown
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.virtual.fleet.driver import act, find, jobs_on, look
from strata.virtual.fleet.model import BMC_STEPS, SEEN_BY
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.redfish.bmc import Account


class WireColumn(msgspec.Struct, frozen=True):
    """A ``Column`` on the wire; the codes are 32-bit little-endian integers."""

    words: tuple[str, ...]
    codes: bytes

    @classmethod
    def of(cls, column: Column) -> WireColumn:
        return cls(column.words, column.codes.astype("<i4").tobytes())

    def column(self, count: int) -> Column:
        """Back to a column; raises ``BadRequest`` unless it has ``count`` codes, all with a word."""
        if len(self.codes) != 4 * count:
            raise BadRequest(f"{len(self.codes)} bytes of codes for {count} nodes", where="codes")
        codes = np.frombuffer(self.codes, dtype="<i4").astype(np.int32)
        if count and (codes.min() < 0 or codes.max() > len(self.words)):
            raise BadRequest("a code that stands for no value", where="codes")
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
        idx = self._find(request.nodes)
        seen = {name: WireColumn.of(look(self._nodes, name, idx, now)) for name in request.variables}
        return msgspec.msgpack.encode(seen)

    def _act(self, request: ActRequest, now: float) -> bytes:
        if request.mutation in BMC_STEPS:
            raise BadRequest("agents do not switch power: ask the BMC", where=request.mutation)
        count = len(request.nodes)
        if len(request.epochs) != 8 * count:
            raise BadRequest(f"{len(request.epochs)} bytes of epochs for {count} nodes", where="epochs")
        outcomes = act(
            self._nodes,
            request.mutation,
            self._find(request.nodes),
            now=now,
            goals={name: column.column(count) for name, column in request.goals.items()},
            epochs=np.frombuffer(request.epochs, dtype="<i8").astype(np.int64),
            generation=request.generation,
        )
        return msgspec.msgpack.encode(ActReply(outcomes.codes.tobytes(), outcomes.reasons))

    def _permits(self, request: PermitsRequest, now: float) -> bytes:
        if request.guard != "no-running-job":
            raise BadRequest("the simulated workload manager knows only no-running-job", where=request.guard)
        return msgspec.msgpack.encode(jobs_on(self._nodes, request.nodes, self._find(request.nodes), now))

    def _find(self, names: Sequence[str]) -> Indices:
        if len(set(names)) != len(names):
            raise BadRequest("a node is named twice", where="nodes")
        return find(self._nodes, names)


class AgentDriver:
    """Speaks for driver ``name`` to the gateway at ``address`` (``http://127.0.0.1:PORT``)."""

    def __init__(
        self,
        name: str,
        address: str,
        account: Account,
        *,
        timeout: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if name not in SEEN_BY or name == "bmc":
            raise BadRequest("the gateway speaks for node, workload and health", where=name)
        self.name = name
        self._address = address.rstrip("/")
        self._account = account
        self._timeout = timeout
        self._clock = clock
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Tell the nodes' agents. No answer from the gateway is ``UNKNOWN`` for all."""
        if self._clock() > batch.valid_until:
            return Outcomes.all(
                Outcome.FENCED, len(batch), "this controller stopped leading the node before the request was sent"
            )
        request = ActRequest(
            mutation=mutation.name,
            nodes=tuple(batch.names),
            epochs=batch.epochs.astype("<i8").tobytes(),
            generation=batch.generation,
            goals={name: WireColumn.of(column) for name, column in batch.goals.items()},
        )
        try:
            reply = msgspec.msgpack.decode(await self._ask("act", request, mutation.timeout), type=ActReply)
        except DeviceError as wrong:
            return Outcomes.all(Outcome.FAILED, len(batch), str(wrong))
        except (OutcomeUnknown, msgspec.DecodeError) as wrong:
            return Outcomes.all(Outcome.UNKNOWN, len(batch), str(wrong))
        codes = np.frombuffer(reply.codes, dtype=np.int8).copy()
        if len(codes) != len(batch) or (len(codes) and not 0 <= codes.min() <= codes.max() <= max(Outcome)):
            return Outcomes.all(Outcome.UNKNOWN, len(batch), "the gateway answered for other nodes than were asked")
        return Outcomes(codes, dict(reply.reasons))

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """What the agents say; variables of other drivers are left out."""
        mine = tuple(name for name in variables if name in SEEN_BY[self.name])
        if not mine:
            return {}
        body = await self._ask("observe", ObserveRequest(mine, tuple(batch.names)), self._timeout)
        try:
            seen = msgspec.msgpack.decode(body, type=dict[str, WireColumn])
            return {name: column.column(len(batch)) for name, column in seen.items()}
        except (msgspec.DecodeError, BadRequest) as wrong:
            raise DeviceError("the gateway's reply cannot be read", node=self._address, request="observe") from wrong

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        if self.name != "workload":
            return [f"the {self.name} driver does not know the guard {guard}"] * len(batch)
        body = await self._ask("permits", PermitsRequest(guard, tuple(batch.names)), self._timeout)
        try:
            answers = msgspec.msgpack.decode(body, type=list[str])
        except msgspec.DecodeError as wrong:
            raise DeviceError("the gateway's reply cannot be read", node=self._address, request="permits") from wrong
        if len(answers) != len(batch):
            raise DeviceError("the gateway answered for other nodes", node=self._address, request="permits")
        return answers

    async def _ask(self, route: str, request: msgspec.Struct, limit: float) -> bytes:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=64),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Authorization": self._account.basic, "Content-Type": "application/msgpack"},
            )
        try:
            async with self._http.post(
                f"{self._address}/agents/{route}",
                data=msgspec.msgpack.encode(request),
                timeout=aiohttp.ClientTimeout(total=min(limit, self._timeout)),
                allow_redirects=False,
            ) as response:
                body = await response.read()
        except aiohttp.ClientConnectorError as wrong:
            raise DeviceError("nobody answers at the gateway", node=self._address, request=route) from wrong
        except (aiohttp.ClientError, TimeoutError, OSError) as wrong:
            raise OutcomeUnknown(f"the gateway did not answer ({type(wrong).__name__})", where=self._address) from wrong
        if response.status != 200:
            said = body[:200].decode("utf-8", "replace")
            raise DeviceError(f"the gateway answered {response.status}: {said}", node=self._address, request=route)
        return body
