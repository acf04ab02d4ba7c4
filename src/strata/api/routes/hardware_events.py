"""What happens to hardware: events listed, followed, and pushed to us by controllers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import PathParameter, QueryParameter
from litestar.response import Stream

from strata.api import sse
from strata.api.http import AnyRequest, finite, seal, unseal
from strata.api.rights import needs, public
from strata.api.services import Asked, Cursor, Limit, Select, Time
from strata.control.machine_views.events import EventPage
from strata.control.texts import Out
from strata.hardware.bmc import Severity
from strata.hardware.events.inbox import BODY_MOST

_TAG = "hardware events"

PushToken = Annotated[str, PathParameter(pattern=r"^[0-9a-f.]{16,64}$(?!\n)", max_length=64)]


class Followed(Out, frozen=True, kw_only=True):
    """One event of the stream, field by field."""

    event: Literal["event", "compacted"]
    data: str
    id: str = ""
    """The event's number."""


@get("/v1/hardware/events", tags=[_TAG], **needs("read", "hardware", 404))
async def list_events(
    ask: Asked,
    select: Select = "*",
    severity: Annotated[Severity, QueryParameter(description="At least as bad as this.")] = "ok",
    since: Time = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> EventPage:
    """Events of the selected nodes, newest first."""
    page = await ask.machine.alerts.events(ask.who, select, severity, finite(since, "since"), limit, unseal(cursor))
    return msgspec.structs.replace(page, next=seal(page.next or None) or "")


@get(
    "/v1/hardware/events/follow",
    tags=[_TAG],
    media_type="text/event-stream",
    **needs(
        "read",
        "hardware",
        404,
        also={
            200: ResponseSpec(
                data_container=Followed,
                description="Events: `id` is a number to resume after, `event` is event or compacted (list again, then "
                "follow from there); `data` is JSON.",
                media_type="text/event-stream",
                generate_examples=False,
            )
        },
    ),
)
async def follow_events(
    request: AnyRequest,
    ask: Asked,
    select: Select = "*",
    since: Annotated[int | None, QueryParameter(ge=0, le=sse.NEWEST, description="Resume after this event.")] = None,
) -> Stream:
    """Events of the selected nodes from now on, or after `since`; the `Last-Event-ID` header wins over `since`."""
    alerts = ask.machine.alerts
    sse.check_room(ask.services)
    events = await alerts.follow(ask.who, select, sse.resume_point(request, since))
    return sse.stream(events, ask.services, lambda e: sse.event(e.id, "event", e))


@post(
    "/v1/hardware/events/in/{token:str}",
    tags=[_TAG],
    status_code=204,
    request_max_body_size=BODY_MOST,
    **public(403, 413, 503),
)
async def receive_events(request: AnyRequest, ask: Asked, token: PushToken) -> None:
    """A controller's push (a Redfish `Event`). The token is its credential: it was given to that controller alone."""
    ask.machine.alerts.admit(token)
    await ask.machine.alerts.receive(token, await request.body())


HANDLERS = [list_events, follow_events, receive_events]
