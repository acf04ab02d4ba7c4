"""Redfish's HTTP, byte by byte: the headers and the body that come in, the answer that goes out. Knows no resource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

import msgspec

from strata.api.raw_body import while_there, whole_body
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.route import Reply, Stream
from strata.core.input.decoding import UNREADABLE

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Mapping[bytes, str]

_VERSION = (b"odata-version", b"4.0")
_CREDENTIALS = frozenset({b"authorization", b"x-auth-token"})

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def read_headers(given: Iterable[tuple[bytes, bytes]]) -> Headers:
    """By name. A credential that is given twice is none: which one would we believe?"""
    found: dict[bytes, str] = {}
    for name, value in given:
        twice = name in _CREDENTIALS and name in found
        found[name] = "" if twice else value.decode("latin-1")
    return found


def check_version(headers: Headers) -> None:
    version = headers.get(b"odata-version", "4.0").strip()
    if version != "4.0":
        raise rejected(412, "HeaderInvalid", f"OData-Version: {version}", hint="this service speaks OData 4.0")


def check_accept(headers: Headers, kind: str) -> None:
    accept = headers.get(b"accept", "")
    if not accept.strip():
        return
    family = kind.partition("/")[0] + "/*"
    for part in accept.split(","):
        wanted, *options = (word.strip().lower() for word in part.split(";"))
        if wanted in (kind, family, "*/*") and not any(o in ("q=0", "q=0.0", "q=0.00", "q=0.000") for o in options):
            return
    raise rejected(406, "HeaderInvalid", "Accept", hint=f"accept {kind}")


async def read_body(receive: Receive, headers: Headers, most: int) -> Mapping[str, Any]:
    """The JSON object that was sent; nothing at all is an empty one (actions without parameters)."""
    too_long = rejected(413, "UnrecognizedRequestBody", hint=f"a body has at most {most} bytes")
    data = await whole_body(receive, most, too_long=too_long)
    if not data:
        return {}
    kind, _, options = headers.get(b"content-type", "").partition(";")
    charset = options.replace(" ", "").replace('"', "").lower()
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise rejected(415, "HeaderInvalid", "Content-Type", hint="send application/json")
    try:
        found = _decode(data)
    except UNREADABLE:
        raise rejected(400, "MalformedJSON") from None
    if not isinstance(found, dict):
        raise rejected(400, "UnrecognizedRequestBody")
    return found


async def send_reply(send: Send, reply: Reply) -> None:
    headers = [_VERSION]
    body = b""
    if reply.text is not None:
        body = reply.text.encode()
    elif reply.body is not None:
        body = _encode(reply.body)
        headers.append((b"content-type", b"application/json; charset=utf-8"))
    if reply.status not in (204, 304):
        headers.append((b"content-length", str(len(body)).encode()))
    headers += [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_stream(receive: Receive, send: Send, stream: Stream) -> None:
    """Send what comes, until it ends or the client goes."""
    headers = [_VERSION, (b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]

    async def pump() -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for part in stream.lines:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    try:
        await while_there(receive, pump())
    finally:
        await stream.lines.aclose()
