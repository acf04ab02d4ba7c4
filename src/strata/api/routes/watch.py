"""Watch: changes as they happen, as server-sent events that resume without gap or repeat.

Nothing is queued here: the next batch is asked of the facade when the client has taken the last, so a slow client
costs one batch of memory; one that takes nothing for a while is dropped (by the front).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter
from litestar.response import Stream

from strata.api.http import AnyRequest
from strata.api.rights import needs
from strata.api.services import Asked, Select, Services
from strata.control import views as v
from strata.control.texts import Out
from strata.core.errors import BadRequest, Compacted, StrataError, Unavailable

_NEWEST = 2**53


class Event(Out, frozen=True, kw_only=True):
    """One event of the stream, field by field."""

    event: v.EventKind
    data: str
    id: str = ""
    """The revision."""


_encode = msgspec.json.Encoder().encode


@get(
    "/v1/watch",
    tags=["watch"],
    media_type="text/event-stream",
    **needs(
        "read",
        "node",
        404,
        also={
            200: ResponseSpec(
                data_container=Event,
                description="Events: `id` is a revision to resume after, `event` one of transition, desire, hold, "
                "freeze, node, job, compacted (list again, then watch from there); `data` is JSON.",
                media_type="text/event-stream",
                generate_examples=False,
            )
        },
    ),
)
async def watch(
    request: AnyRequest,
    ask: Asked,
    select: Select = "*",
    since: Annotated[int | None, QueryParameter(ge=0, le=_NEWEST, description="Resume after this revision.")] = None,
) -> Stream:
    """Changes of the selected nodes from now on, or after `since`; the `Last-Event-ID` header wins over `since`."""
    if ask.services.watching >= ask.services.limits.watchers:
        raise Unavailable("too many clients watch events already", hint="try later, or poll")
    events = await ask.facade.watch(ask.who, select, _resume_point(request, since))
    return Stream(_lines(events, ask.services), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _resume_point(request: AnyRequest, since: int | None) -> int | None:
    last = request.headers.get("last-event-id", "").strip()
    if not last:
        return since
    if not last.isascii() or not last.isdigit() or len(last) > 20 or int(last) > _NEWEST:
        raise BadRequest("an event id is a revision", where="Last-Event-ID")
    return int(last)


async def _lines(events: AsyncIterator[Sequence[v.WatchEvent]], services: Services) -> AsyncGenerator[bytes, None]:
    """The stream. Ends when the client goes, the service stops, or what comes next is gone."""
    pending: asyncio.Future[Any] | None = None
    stopping = asyncio.ensure_future(services.stopping.wait())
    services.watching += 1
    services.metrics.watchers.set(services.watching)
    try:
        yield b"retry: 2000\n\n"
        while True:
            pending = pending or asyncio.ensure_future(anext(events))
            await asyncio.wait(
                {pending, stopping}, timeout=services.limits.keep_alive, return_when=asyncio.FIRST_COMPLETED
            )
            if stopping.done():
                return
            if not pending.done():
                yield b": still here\n\n"
                continue
            batch: Sequence[v.WatchEvent] = pending.result()
            pending = None
            yield b"".join(map(_event, batch))
    except StopAsyncIteration:
        return
    except Compacted as error:
        yield b"event: compacted\ndata: " + _encode({"oldest": error.oldest, "detail": str(error)}) + b"\n\n"
    except StrataError as error:
        # The answer has begun, so its status cannot say it; the client reconnects and resumes.
        yield b": " + error.title.encode() + b"\n\n"
    finally:
        services.watching -= 1
        services.metrics.watchers.set(services.watching)
        stopping.cancel()
        if pending is not None:
            pending.cancel()
            await asyncio.wait({pending})
        await events.aclose()  # type: ignore[attr-defined]


def _event(event: v.WatchEvent) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.revision, event.event.encode(), _encode(event.data))


HANDLERS = [watch]
