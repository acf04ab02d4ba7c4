"""Server-sent events: batches of something as a stream that a client can resume. Knows nothing of what is in them.

Nothing is queued here: the next batch is asked for when the client has taken the last, so a slow client costs one
batch of memory; one that takes nothing for a while is dropped (by the front).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from litestar.response import Stream

from strata.api.http import AnyRequest
from strata.api.rights import answers, needs
from strata.api.services import Watchers
from strata.core.errors import BadRequest, Compacted, StrataError

NEWEST = 2**53
"""No event's number is above it: JSON readers could not tell it from its neighbours."""

STILL_HERE = b": still here\n\n"
"""Sent after a time of silence."""

_MEDIA = "text/event-stream"
_T = TypeVar("_T")
encode = msgspec.json.Encoder().encode


def resume_point(request: AnyRequest, since: int | None) -> int | None:
    """After which event to go on: the ``Last-Event-ID`` header wins over ``since``."""
    last = request.headers.get("last-event-id", "").strip()
    if not last:
        return since
    if not last.isascii() or not last.isdigit() or len(last) > 20 or int(last) > NEWEST:
        raise BadRequest("not the id of an event of this service: that is a number", where="Last-Event-ID")
    return int(last)


def event(number: int, kind: str, data: object) -> bytes:
    """One event on the wire."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, kind.encode(), encode(data))


def streamed(kind: str, *statuses: int, event: type[Any], described: str) -> dict[str, Any]:
    """For a handler that gives a stream of ``kind``: the right that it needs, and what it answers."""
    also = {200: answers(event, described, _MEDIA)}
    return {"media_type": _MEDIA, **needs("read", kind, *statuses, also=also)}


def stream(batches: AsyncIterator[Sequence[_T]], watchers: Watchers, show: Callable[[_T], bytes]) -> Stream:
    """The answer of a route."""
    lines = _lines(batches, watchers, show)
    return Stream(lines, media_type=_MEDIA, headers={"X-Accel-Buffering": "no"})


async def _lines(
    batches: AsyncIterator[Sequence[_T]], watchers: Watchers, show: Callable[[_T], bytes]
) -> AsyncGenerator[bytes, None]:
    """The stream. Ends when the client goes, the service stops, or what comes next is gone."""
    async with contextlib.aclosing(watched(batches, watchers)) as parts:
        await anext(parts)
        yield b"retry: 2000\n\n"
        try:
            async for batch in parts:
                yield STILL_HERE if batch is None else b"".join(map(show, batch))
        except Compacted as error:
            yield b"event: compacted\ndata: " + encode({"oldest": error.oldest, "detail": str(error)}) + b"\n\n"
        except StrataError as error:
            # The answer has begun, so its status cannot say it; the client reconnects and resumes.
            yield b": " + error.title.encode() + b"\n\n"


async def watched(
    batches: AsyncIterator[Sequence[_T]], watchers: Watchers, *over: asyncio.Event
) -> AsyncGenerator[Sequence[_T] | None, None]:
    """None at once; then what comes, and None after each time of silence. Ends when the service stops or one of
    ``over`` is set. As long as it is open there is a watcher more; whoever closes it lets go of ``batches``."""
    pending: asyncio.Future[Any] | None = None
    ends = [asyncio.ensure_future(event.wait()) for event in (watchers.stopping, *over)]
    watchers.come(1)
    try:
        yield None
        while True:
            pending = pending or asyncio.ensure_future(anext(batches))
            await asyncio.wait(
                {pending, *ends}, timeout=watchers.limits.keep_alive, return_when=asyncio.FIRST_COMPLETED
            )
            if any(end.done() for end in ends):
                return
            if not pending.done():
                yield None
                continue
            batch: Sequence[_T] = pending.result()
            pending = None
            yield batch
    except StopAsyncIteration:
        return
    finally:
        watchers.come(-1)
        for end in ends:
            end.cancel()
        if pending is not None:
            pending.cancel()
            await asyncio.wait({pending})
        await batches.aclose()  # type: ignore[attr-defined]
