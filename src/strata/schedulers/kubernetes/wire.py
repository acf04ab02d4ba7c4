"""Requests to the API of a Kubernetes: over TLS that is checked, with a token, in the name of somebody."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from strata.core.errors import BadRequest, Denied, DeviceError, NotFound, StrataError, Unavailable
from strata.core.input.foreign import one_line, read_json
from strata.core.redact import redact
from strata.schedulers.kubernetes.site import KubernetesSite

LIMIT = 30.0
"""Seconds for a request."""
_CONNECT = 10.0
_MOST = 64 * 2**20
"""Bytes of an answer: a page of a list is some hundred objects."""
_LINE = 4 * 2**20
"""Bytes of one event. An object in Kubernetes has 1.5 MiB at most."""
_SAID = 300


class Gone(Exception):
    """That version is not kept any more: list again."""


class Exists(Exception):
    """It is there already."""


class Wire:
    """One Kubernetes. ``token``: a service account's; empty: none is sent."""

    def __init__(self, site: KubernetesSite, token: str) -> None:
        self._site = site
        self._token = token
        self._http: aiohttp.ClientSession | None = None
        self._turn = asyncio.Lock()
        self.requests = 0

    def __repr__(self) -> str:
        return f"Wire({self._site.server})"

    async def close(self) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        body: object = None,
        kind: str = "application/json",
        account: str = "",
    ) -> Any:
        """What it answers, as JSON. ``Unavailable``: it did not, so that nobody knows whether it was done."""
        async with self._sent(method, path, params, body, kind, account) as answer:
            data = await self._read(answer, _MOST)
        try:
            return read_json(data).value
        except ValueError as error:
            raise DeviceError(str(error), node=self._site.server, reply=data[:200].decode(errors="replace")) from None

    async def events(
        self, path: str, params: Mapping[str, str], *, quiet: float, most: float
    ) -> AsyncIterator[Mapping[str, Any]]:
        """What a watch tells, until nothing came for ``quiet`` seconds, or ``most`` are over."""
        async with self._sent("GET", path, params, None, "", "") as answer:
            deadline = asyncio.get_running_loop().time() + most
            while (left := deadline - asyncio.get_running_loop().time()) > 0:
                try:
                    async with asyncio.timeout(min(quiet, left)):
                        line = await answer.content.readline()
                except TimeoutError:
                    return
                except ValueError:
                    raise DeviceError("an event without an end", node=self._site.server) from None
                if not line.strip():
                    return
                try:
                    event = read_json(line).value
                except ValueError as error:
                    raise DeviceError(str(error), node=self._site.server, reply=str(line[:200])) from None
                if isinstance(event, dict):
                    yield event

    async def tail(self, path: str, params: Mapping[str, str], skip: int, most: int, account: str) -> bytes:
        """Bytes of a text, without the first ``skip``."""
        found = bytearray()
        async with self._sent("GET", path, params, None, "", account) as answer:
            async for piece in answer.content.iter_chunked(65_536):
                taken = piece[skip:]
                skip = max(0, skip - len(piece))
                found += taken
                if len(found) >= most:
                    break
        return bytes(found[:most])

    @asynccontextmanager
    async def _sent(
        self, method: str, path: str, params: Mapping[str, str] | None, body: object, kind: str, account: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if account and self._site.impersonate:
            headers["Impersonate-User"] = account
        data = None
        if body is not None:
            data, headers["Content-Type"] = msgspec.json.encode(body), kind
        self.requests += 1
        http = await self._session()
        try:
            async with (
                asyncio.timeout(LIMIT),
                http.request(
                    method,
                    f"{self._site.server.rstrip('/')}{path}",
                    params=params,
                    data=data,
                    headers=headers,
                    allow_redirects=False,
                ) as answer,
            ):
                if answer.status >= 300:
                    raise self._error(answer.status, await self._read(answer, _LINE), method)
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            told = redact(one_line(str(error) or "it did not answer in time"))[:_SAID]
            raise Unavailable(told, where=self._site.server) from None

    async def _session(self) -> aiohttp.ClientSession:
        async with self._turn:
            return self._http or await self._open()

    async def _open(self) -> aiohttp.ClientSession:
        try:
            context = await asyncio.to_thread(ssl.create_default_context, cadata=self._site.ca or None)
        except (ssl.SSLError, ValueError):
            raise BadRequest("is no certificate in PEM", where="ca") from None
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT)
        connector = aiohttp.TCPConnector(limit=16, ssl=context)
        self._http = aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=_LINE)
        return self._http

    async def _read(self, answer: aiohttp.ClientResponse, most: int) -> bytes:
        data = bytearray()
        async for piece in answer.content.iter_chunked(1 << 20):
            data += piece
            if len(data) > most:
                raise DeviceError(f"an answer of more than {most >> 20} MiB", node=self._site.server)
        return bytes(data)

    def _error(self, status: int, data: bytes, method: str) -> StrataError | Gone | Exists:
        reason, told = _status(data)
        told = told or f"it answered with status {status}"
        where = self._site.server
        if status == 410:
            return Gone(told)
        if status == 409 and reason == "AlreadyExists":
            return Exists(told)
        if status == 401:
            hint = "give it a new one by strata job target connect kubernetes"
            return Unavailable(f"it does not accept Strata's token: {told}", where=where, hint=hint)
        if status == 403:
            return Denied(told, where=where)
        if status == 404:
            return NotFound(told, where=where)
        if status in (400, 405, 406, 409, 413, 415, 422):
            return BadRequest(told, where=where)
        return Unavailable(told, where=where) if status == 429 or status >= 500 else DeviceError(told, node=where)


def _status(data: bytes) -> tuple[str, str]:
    """Reason and words of a ``Status``."""
    try:
        told = read_json(data).value
    except ValueError:
        return "", redact(one_line(data.decode(errors="replace")))[:_SAID]
    if not isinstance(told, dict):
        return "", ""
    return str(told.get("reason", "")), redact(one_line(str(told.get("message", ""))))[:_SAID]
