"""The engine's side of the agent gateway: the ``node`` and ``workload`` drivers over HTTP, a batch a request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import aiohttp
import msgspec
import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest, DeviceError, OutcomeUnknown
from strata.core.model import Mutation
from strata.core.state import Outcome
from strata.virtual.fleet.agents import ActReply, ActRequest, ObserveRequest, PermitsRequest, WireColumn
from strata.virtual.fleet.model import SEEN_BY
from strata.virtual.redfish.bmc import Account


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
            raise BadRequest("the gateway speaks for node and workload", where=name)
        self.name = name
        self._address = address.rstrip("/")
        self._account = account
        self._timeout = timeout
        self._clock = clock
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Tell the nodes' agents. No answer from the gateway is ``UNKNOWN`` for all."""
        if self._clock() > batch.valid_until:
            return Outcomes.all(Outcome.FENCED, len(batch), "the lead ran out before the request was sent")
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
            raise DeviceError("the gateway's reply makes no sense", node=self._address, request="observe") from wrong

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """The workload manager's word."""
        if self.name != "workload":
            return [f"the {self.name} driver does not know the guard {guard}"] * len(batch)
        body = await self._ask("permits", PermitsRequest(guard, tuple(batch.names)), self._timeout)
        try:
            answers = msgspec.msgpack.decode(body, type=list[str])
        except msgspec.DecodeError as wrong:
            raise DeviceError("the gateway's reply makes no sense", node=self._address, request="permits") from wrong
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
