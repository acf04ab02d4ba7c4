"""The service's API as blocking calls: JSON in, JSON out, problem documents as errors of ``strata.core.errors``.

Only reads are tried again: whether a write whose answer was lost took place is for the caller to look at. A node may
be named as people say it, ``n7`` for ``n0007``, as in a nodeset. Knows nothing of the terminal.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from strata.cli.transport import Credentials, Endpoint, ServiceAway
from strata.client import wire
from strata.client.wire import Event as Event
from strata.client.wire import query as query
from strata.core.errors import (
    BadRequest,
    Compacted,
    Conflict,
    Denied,
    NotFound,
    OutcomeUnknown,
    Refused,
    StrataError,
    Unauthenticated,
    Unavailable,
)

Json = dict[str, Any]
Params = Mapping[str, "str | int | bool | None"]

PAGE = 10_000
"""Most items that one answer holds."""

_READS = 3
_PAUSE = 0.2
_RESUME_FOR = 60.0
"""Seconds that a watch waits for a service that was there and is away."""
_STREAM_SILENCE = 60.0
"""Seconds without even a keep-alive comment after which a stream is taken for dead."""
_OF_A_NODE = re.compile(r"/v1/nodes/([^/]+)(/.*)?")
_PART = re.compile(r"(^|, )(?:body data(?:\.|$|(?=,))|(?:path|query|body) (?=\S))")
"""Which part of a request a field was in: nothing to who typed a command."""


class Reply(NamedTuple):
    """An answer: its status, headers (lower case) and decoded body."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Client:
    """One service, one connection, kept alive between calls."""

    def __init__(
        self,
        endpoint: Endpoint,
        credentials: Credentials,
        *,
        timeout: float = 60.0,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._trace = trace
        self.credentials = credentials
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None
        self._whole: dict[str, str] = {}
        """Names of nodes, as parts of a path, that lacked zeros; and the nodes that they mean."""

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, params: Params | None = None) -> Json:
        """The body of a read."""
        found: Json = self.request("GET", path, params=params).body
        return found

    def post(self, path: str, body: object = None) -> Json:
        """What comes of having something done."""
        found: Json = self.request("POST", path, body=body).body
        return found

    def put(self, path: str, body: object) -> Json:
        """What is there once it is as ``body`` says."""
        found: Json = self.request("PUT", path, body=body).body
        return found

    def patch(self, path: str, body: object) -> Json:
        """What is there once that much of it is as ``body`` says."""
        found: Json = self.request("PATCH", path, body=body).body
        return found

    def delete(self, path: str, params: Params | None = None) -> Any:
        """Remove something."""
        return self.request("DELETE", path, params=params).body

    def is_answered(self) -> bool:
        """Whether a service is there, however it is."""
        try:
            self.get("/v1/health")
        except ServiceAway:
            return False
        except StrataError:
            pass  # it answered, if not kindly
        return True

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Ask; raise the typed error for any answer that is not a success. ``body``: what JSON is made of, or the JSON
        itself as bytes."""
        try:
            return self._ask(method, self._meant(path), params, body, headers)
        except NotFound:
            if method not in ("GET", "POST") or not self._learnt(path):
                raise
            return self._ask(method, self._meant(path), params, body, headers)

    def _ask(
        self, method: str, path: str, params: Params | None, body: object, headers: Mapping[str, str] | None
    ) -> Reply:
        target = path + query(params)
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body, separators=(",", ":")).encode()
        sent = {"Accept": "application/json", **self.credentials.headers(), **(headers or {})}
        if payload is not None:
            sent["Content-Type"] = "application/json"
        attempt = 0
        while True:
            attempt += 1
            try:
                status, got, raw = self._exchange(method, target, payload, sent)
            except ServiceAway:
                raise
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if method != "GET":
                    raise OutcomeUnknown(
                        f"no answer ({_reason(error)}): it may or may not have been done",
                        where=f"{method} {path}",
                        hint="look before trying again",
                    ) from None
                if attempt >= _READS:
                    raise ServiceAway(f"no answer: {_reason(error)}", where=f"{self.endpoint.url} {path}") from None
            else:
                if status == 503 and method == "GET" and attempt < _READS:
                    time.sleep(min(_seconds(got.get("retry-after")) or _PAUSE * attempt, 5.0))
                    continue
                decoded = _decode(raw, got, path)
                if not 200 <= status < 300:
                    raise problem(status, decoded, where=f"{method} {path}")
                return Reply(status, got, decoded)
            time.sleep(_PAUSE * attempt)

    def pages(self, path: str, params: Params | None = None, *, limit: int | None = None) -> Iterator[Json]:
        """Every item of a listing, page after page, up to ``limit``."""
        left = limit
        cursor: str | None = None
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = self.get(path, {**(params or {}), "limit": size, "cursor": cursor})
            items: list[Json] = page["items"]
            yield from items if left is None else items[:left]
            left = None if left is None else left - len(items)
            cursor = page.get("next")
            if not cursor:
                return

    def events(self, path: str, params: Params | None = None) -> Iterator[Event]:
        """Events for as long as the caller wants them. A lost connection resumes after the last one seen; a service
        that restarts is waited for."""
        cut: float | None = None
        last = ""
        while True:
            headers = {"Accept": "text/event-stream", **self.credentials.headers()}
            if last:
                headers["Last-Event-ID"] = last
            try:
                connection = self.endpoint.connect(self.credentials, _STREAM_SILENCE)
                with contextlib.suppress(http.client.HTTPException, OSError), contextlib.closing(connection):
                    connection.request("GET", self._meant(path) + query(params), headers=headers)
                    with connection.getresponse() as response:
                        if response.status != 200:
                            decoded = _decode(response.read(), _headers(response), path)
                            raise problem(response.status, decoded, where=f"GET {path}")
                        for event in read_events(response):
                            cut = None
                            last = event.id or last
                            if event.kind == "compacted":
                                # What was asked for is gone; asking again would say so for ever. Go on from now.
                                last, params = "", {**(params or {}), "since": None}
                            yield event
            except NotFound:
                if not self._learnt(path):
                    raise
                continue
            except Unavailable:
                if cut is None or time.monotonic() - cut > _RESUME_FOR:
                    raise
            cut = cut or time.monotonic()
            time.sleep(_PAUSE)

    def _meant(self, path: str) -> str:
        """The path, with the name of the node that is meant."""
        match = _OF_A_NODE.fullmatch(path)
        if match is None:
            return path
        return f"/v1/nodes/{self._whole.get(match[1], match[1])}{match[2] or ''}"

    def _learnt(self, path: str) -> bool:
        """Whether it is only now known which node the path is about: asked as a nodeset, its name is another."""
        match = _OF_A_NODE.fullmatch(path)
        name = unquote(match[1]) if match else ""
        if match is None or match[1] in self._whole or not re.fullmatch(r"[\w.-]*\d[\w.-]*", name):
            return False
        try:
            found = self._ask("GET", "/v1/nodes", {"select": name, "folded": True}, None, None).body
        except StrataError:
            return False
        whole = str(found["nodeset"])
        if whole in ("", name):
            return False
        self._whole[match[1]] = quote(whole, safe="")
        return True

    def _exchange(
        self, method: str, target: str, payload: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        if self._connection is not None and _hung_up(self._connection):
            self.close()  # while nothing was under way: a write on it would seem lost, and was never sent
        if self._connection is None:
            self._connection = self.endpoint.connect(self.credentials, self._timeout)
        began = time.monotonic()
        self._connection.request(method, target, body=payload, headers=dict(headers))
        response = self._connection.getresponse()
        raw = response.read()
        if self._trace is not None:  # never headers or bodies: they hold tokens
            took = (time.monotonic() - began) * 1000
            request = response.getheader("X-Request-Id", "-")
            self._trace(
                f"{method} {target[:500]} -> {response.status}, {len(raw)} bytes, {took:.0f} ms, request {request}"
            )
        if response.will_close:
            self.close()
        return response.status, _headers(response), raw


def read_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Decode a text/event-stream of JSON."""
    for event in wire.read_events(lines):
        try:
            yield event._replace(data=json.loads(event.data))
        except ValueError:
            raise StrataError(f"an event is not JSON: {event.data[:80]!r}", where="watch") from None


def problem(status: int, body: Any, *, where: str) -> StrataError:
    """The error that a failed answer stands for, with the service's own words."""
    told: Json = body if isinstance(body, dict) else {}
    detail = str(told.get("detail") or told.get("title") or f"the service answered {status}")
    place = _PART.sub(r"\1", str(told.get("where") or ""))
    hint = str(told.get("hint") or "")
    if 300 <= status < 400:
        return StrataError(
            f"the answer is a redirect ({status}), which is not followed: credentials are for one service only",
            where=where,
            hint="is --url the service itself?",
        )
    if status == 401:
        return Unauthenticated(detail, where=place, hint=hint or "STRATA_TOKEN, --token-file, or --cert and --key")
    if status == 403:
        return Denied(detail, where=place, hint=hint or "strata auth whoami shows your role and scope")
    if status == 404:
        return NotFound(detail, where=place, hint=hint)
    if status == 409 and told.get("title") == Refused.title:
        return Refused(detail, where=place, hint=hint, by=str(told.get("by") or ""))
    if status in (409, 412, 428):
        return Conflict(detail, where=place, hint=hint or "read it again, then decide", revision=_int(told))
    if status == 410:
        return Compacted(detail, where=place, hint=hint)
    if status == 503:
        return Unavailable(detail, where=place, hint=hint)
    if 400 <= status < 500:
        return BadRequest(detail, where=place, hint=hint)
    request = told.get("request_id")
    log = f"the service's log says more: request {request}" if request else ""
    return StrataError(detail, where=place or where, hint=hint or log)


def _hung_up(connection: http.client.HTTPConnection) -> bool:
    """Whether the other side has closed an idle connection: it is readable, though nothing was asked."""
    return connection.sock is None or bool(select.select([connection.sock], [], [], 0)[0])


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _decode(raw: bytes, headers: Mapping[str, str], path: str) -> Any:
    if not raw:
        return None
    if "json" not in headers.get("content-type", ""):
        return raw.decode("utf-8", "replace")
    try:
        return json.loads(raw)
    except ValueError:
        raise StrataError("the service answered with broken JSON", where=path) from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isdigit() else 0.0


def _int(told: Json) -> int:
    revision = told.get("revision")
    return revision if isinstance(revision, int) else 0
