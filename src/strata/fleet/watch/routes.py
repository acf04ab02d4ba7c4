"""Watch: changes as they happen, as server-sent events that resume without gap or repeat."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter
from litestar.response import Stream

from strata.api import sse
from strata.api.http import AnyRequest
from strata.api.services import Asked, Select, Watchers
from strata.core.texts import Out
from strata.fleet.watch.service import EventKind, WatchService


class Event(Out, frozen=True, kw_only=True):
    """One event of the stream, field by field."""

    event: EventKind
    data: str
    id: str = ""
    """The revision."""


@get(
    "/v1/watch",
    tags=["watch"],
    **sse.streamed(
        "node",
        404,
        event=Event,
        described="Events: `id` is a revision to resume after, `event` one of transition, desire, hold, "
        "freeze, node, operation, compacted (list again, then watch from there); `data` is JSON.",
    ),
)
async def watch(
    request: AnyRequest,
    ask: Asked,
    select: Select = "*",
    since: Annotated[int | None, QueryParameter(ge=0, le=sse.NEWEST, description="Resume after this revision.")] = None,
) -> Stream:
    """Changes of the selected nodes from now on, or after `since`; the `Last-Event-ID` header wins over `since`."""
    ask.of(Watchers).check_room()
    events = await ask.of(WatchService).watch(ask.who, select, sse.resume_point(request, since))
    return sse.stream(events, ask.of(Watchers), lambda e: sse.event(e.revision, e.event, e.data))
