"""Requests to an etcd cluster: any member will do, and the next one is asked when one does not answer.

What matters about a failed request is whether it may have happened all the same: ``Unanswered`` says so, and
``NotAsked`` says that it has not.
"""

from __future__ import annotations

import asyncio
import io
import time
from typing import Any, TypeVar

import aiohttp
import msgspec

from strata.core.errors import BadRequest, NotFound, OutcomeUnknown, StrataError, Unavailable
from strata.store.etcd.wire import Failure

_T = TypeVar("_T")

_NOT_FOUND, _EXHAUSTED, _INVALID, _OUT_OF_RANGE, _PRECONDITION = 5, 8, 3, 11, 9


class EtcdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds."""

    attempt: float = 3.0
    """For one answer of one member. A healthy one takes milliseconds; a paused one takes for ever."""
    patience: float = 15.0
    """For an answer of anybody. Longer than a new leader's election (default 1 s) and a dropped proposal."""
    pause: float = 0.1
    """Between two rounds when nobody answers."""
    probe: float = 2.0
    """Silence on a watch after which its member is asked whether it still follows the leader."""


class Unanswered(Exception):
    """The request was sent and no usable answer came: it may have happened."""


class NotAsked(Exception):
    """The request did not reach a member that could have carried it out: nothing happened."""


class TooBig(Exception):
    """The answer is longer than the gateway passes on: ask for less."""


class AlreadyThere(Exception):
    """What was to be made exists."""


class OutOfRange(Exception):
    """The revision asked for is compacted, or in the future."""

    def __init__(self, compacted: bool) -> None:
        super().__init__("the revision is compacted" if compacted else "it has not come to the revision")
        self.compacted = compacted


class Gateway:
    """The members' JSON gateways, one of them in use."""

    def __init__(self, endpoints: list[str], settings: EtcdSettings) -> None:
        self.endpoints = endpoints
        self.settings = settings
        self._current = 0
        self._http: aiohttp.ClientSession | None = None
        self._closed = False

    @property
    def where(self) -> str:
        """For messages: whom we talk to."""
        return f"etcd {','.join(self.endpoints)}"

    def session(self) -> aiohttp.ClientSession:
        """The pool of connections, opened on first use."""
        if self._closed:
            raise Unavailable("the store is closed", where=self.where)
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.settings.attempt)
            self._http = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=64))
        return self._http

    def closed_meanwhile(self, error: RuntimeError) -> None:
        """Raise ``Unavailable`` if ``error`` is aiohttp's word for a connection that we closed ourselves."""
        if self._closed:
            raise Unavailable("the store is closed", where=self.where) from error

    def current(self) -> str:
        """The member in use."""
        return self.endpoints[self._current]

    def leave(self, endpoint: str) -> None:
        """``endpoint`` does not serve us: use the next one, unless somebody went on already."""
        if self.endpoints[self._current] == endpoint:
            self._current = (self._current + 1) % len(self.endpoints)

    async def once(self, endpoint: str, path: str, body: Any, reply: type[_T]) -> _T:
        """Ask one member, once."""
        try:
            async with asyncio.timeout(self.settings.attempt):
                # As a file, for aiohttp to send a large one in pieces.
                data = io.BytesIO(msgspec.json.encode(body))
                url = f"http://{endpoint}{path}"
                async with self.session().post(url, data=data, allow_redirects=False) as answer:
                    text = await answer.read()
                    status = answer.status
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotAsked(str(error)) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unanswered(f"{endpoint}: {error or type(error).__name__}") from error
        except RuntimeError as error:
            self.closed_meanwhile(error)
            raise
        if status != 200:
            raise _failure(endpoint, status, text)
        try:
            return msgspec.json.decode(text, type=reply, strict=False)
        except msgspec.MsgspecError as error:
            raise Unanswered(f"{endpoint}: an answer that is not etcd's: {error}") from error

    async def ask(self, path: str, body: Any, reply: type[_T]) -> _T:
        """Ask until somebody answers. Only for requests that may be done twice."""
        retry = Retry(self)
        while True:
            endpoint = self.current()
            try:
                return await self.once(endpoint, path, body, reply)
            except (NotAsked, Unanswered) as error:
                await retry.after(endpoint, error)

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._http is not None:
            await self._http.close()
            # aiohttp closes transports in the next turn of the loop.
            await asyncio.sleep(0)


class Retry:
    """Patience with a cluster: goes to the next member, and raises when it has taken too long."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._deadline = time.monotonic() + gateway.settings.patience
        self._tried = 0
        self.doubtful = False
        """Whether an earlier attempt may have happened."""

    async def after(self, endpoint: str, error: NotAsked | Unanswered) -> None:
        """An attempt at ``endpoint`` failed; wait a little where that makes sense."""
        gateway = self._gateway
        gateway.leave(endpoint)
        self._tried += 1
        self.doubtful |= isinstance(error, Unanswered)
        if time.monotonic() >= self._deadline:
            raise self.given_up(str(error)) from error
        if self._tried % len(gateway.endpoints) == 0:
            await asyncio.sleep(gateway.settings.pause)

    def given_up(self, reason: str) -> StrataError:
        """The error for having waited long enough."""
        where, hint = self._gateway.where, "look at the etcd cluster: most of its members must be up"
        if self.doubtful:
            return OutcomeUnknown(f"no answer: {reason}", where=where, hint=f"read before trying again; {hint}")
        return Unavailable(f"nobody answers: {reason}", where=where, hint=hint)


def _failure(endpoint: str, status: int, text: bytes) -> Exception:
    try:
        failure = msgspec.json.decode(text, type=Failure)
    except msgspec.MsgspecError:
        return Unanswered(f"{endpoint}: HTTP {status}")
    message, where = failure.message, f"etcd {endpoint}"
    if failure.code == _OUT_OF_RANGE:
        return OutOfRange("compacted" in message)
    if failure.code == _EXHAUSTED and "larger than max" in message:
        return TooBig(message)
    if failure.code == _EXHAUSTED:
        return Unavailable(message, where=where, hint="compact, defragment, then disarm etcd's alarm")
    if failure.code == _NOT_FOUND:
        return NotFound(message, where=where)
    if failure.code == _PRECONDITION and "already exists" in message:
        return AlreadyThere(message)
    if failure.code == _INVALID:
        return BadRequest(message, where=where)
    if "no leader" in message:
        return NotAsked(f"{endpoint}: {message}")
    return Unanswered(f"{endpoint}: {message}")
