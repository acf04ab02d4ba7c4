"""HTTP as the client needs it: JSON in and out, a local socket or HTTPS, event streams. Standard library only."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from strata.client.errors import Denied, NotFound, ServiceAway, StrataError

Json = dict[str, Any]
_READS = 4
_PAUSE = 0.5
_SILENCE = 60.0
"""Seconds without even a sign of life after which a stream is taken for dead."""


class Wire:
    """One service. A connection for each question: nothing is shared, so that threads may share the client."""

    def __init__(self, url: str, token: str, ca: str, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("https", "unix"):
            raise StrataError(f"{url[:80]!r} is not https://HOST:PORT or unix:/path", where="url")
        self._parts = parts
        self._timeout = timeout
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._context = ssl.create_default_context(cafile=ca or None) if parts.scheme == "https" else None

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        params: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = False,
    ) -> Any:
        """The decoded answer. ``again``: asking twice does no more than asking once, so a lost answer is asked for
        again."""
        payload = None if body is None else json.dumps(body).encode()
        sent = {**self._headers, **(headers or {})} | ({"Content-Type": "application/json"} if payload else {})
        for attempt in range(_READS):
            if attempt:
                time.sleep(_PAUSE * attempt)
            last = attempt + 1 == _READS or not (again or method == "GET")
            try:
                with contextlib.closing(self._connect(self._timeout)) as connection:
                    connection.request(method, path + query(params), body=payload, headers=sent)
                    response = connection.getresponse()
                    raw = response.read()
            except (OSError, http.client.HTTPException) as error:
                if last:
                    raise ServiceAway(f"no answer: {error}", where=f"{method} {path}") from None
                continue
            if response.status == 503 and not last:
                continue
            if not 200 <= response.status < 300:
                raise problem(response.status, raw)
            return json.loads(raw) if raw else None
        raise AssertionError("the last attempt returns or raises")

    def events(self, path: str, params: Mapping[str, object] | None = None) -> Iterator[Json]:
        """The data of server-sent events; a connection that breaks is taken up after the last one seen."""
        last, broken = "", 0
        while True:
            headers = {**self._headers, "Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
            try:
                with contextlib.closing(self._connect(_SILENCE)) as connection:
                    connection.request("GET", path + query(params), headers=headers)
                    response = connection.getresponse()
                    if response.status != 200:
                        raise problem(response.status, response.read())
                    for event in read_events(response):
                        last, broken = event.id or last, 0
                        yield json.loads(event.data)
            except (OSError, http.client.HTTPException) as error:
                if broken >= _READS:
                    raise ServiceAway(f"no answer: {error}", where=path) from None
            broken += 1
            time.sleep(_PAUSE)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._parts.scheme == "unix":
            return UnixConnection(self._parts.path, timeout)
        host = self._parts.hostname or ""
        return http.client.HTTPSConnection(host, self._parts.port or 443, timeout=timeout, context=self._context)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


def problem(status: int, raw: bytes) -> StrataError:
    """The error that an answer stands for, in the service's own words."""
    try:
        told = json.loads(raw)
    except ValueError:
        told = {}
    told = told if isinstance(told, dict) else {}
    detail = str(told.get("detail") or told.get("title") or f"the service answered {status}")
    kind = {401: Denied, 403: Denied, 404: NotFound, 503: ServiceAway}.get(status, StrataError)
    return kind(detail, status=status, where=str(told.get("where") or ""), hint=str(told.get("hint") or ""))


def query(params: Mapping[str, object] | None) -> str:
    """``?a=b`` without the parameters that are None or empty; booleans as the API writes them."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (params or {}).items()
        if value is not None and value != ""
    }
    return "?" + urlencode(given, quote_via=quote) if given else ""


class Event(NamedTuple):
    """One server-sent event; ``data`` as it came, until somebody decodes it."""

    id: str
    kind: str
    data: Any


def read_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """The events of a text/event-stream; comments are keep-alives, an event cut off in the middle is dropped."""
    identity, kind, data = "", "", list[str]()
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield Event(identity, kind or "message", "\n".join(data))
            kind, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            kind = value
        elif field == "id":
            identity = value
