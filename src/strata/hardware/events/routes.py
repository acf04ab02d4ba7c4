"""What happens to hardware: events listed, followed, and pushed to us by BMCs."""

from __future__ import annotations

from typing import Annotated, Literal

from litestar import get, post
from litestar.params import PathParameter, QueryParameter
from litestar.response import Stream

from strata.api import sse
from strata.api.http import AnyRequest
from strata.api.rights import public
from strata.api.routing import Routes
from strata.api.services import Asked, Cursor, Limit, Select, Time, Watchers
from strata.core.texts import Out
from strata.hardware.alerts.service import AlertService
from strata.hardware.bmc.protocol import Severity
from strata.hardware.events.hub import EventHub
from strata.hardware.events.inbox import BODY_MOST

_TAG = "hardware events"
_STREAM = (
    "Events: `id` is a number to resume after, `event` is event or compacted (list again, then follow from there); "
    "`data` is JSON."
)

PushToken = Annotated[str, PathParameter(pattern=r"^[0-9a-f.]{16,64}$(?!\n)", max_length=64)]


class Followed(Out, frozen=True, kw_only=True):
    """One event of the stream, field by field."""

    event: Literal["event", "compacted"]
    data: str
    id: str = ""
    """The event's number."""


@get(
    "/v1/hardware/events/follow",
    tags=[_TAG],
    **sse.streamed("hardware", 404, event=Followed, described=_STREAM),
)
async def follow_events(
    request: AnyRequest,
    ask: Asked,
    select: Select = "*",
    since: Annotated[int | None, QueryParameter(ge=0, le=sse.NEWEST, description="Resume after this event.")] = None,
) -> Stream:
    """Events of the selected nodes from now on, or after `since`; the `Last-Event-ID` header wins over `since`."""
    alerts = ask.of(AlertService)
    ask.of(Watchers).check_room()
    events = await alerts.follow(ask.who, select, sse.resume_point(request, since))
    return sse.stream(events, ask.of(Watchers), lambda e: sse.event(e.id, "event", e))


@post(
    "/v1/hardware/events/in/{token:str}",
    tags=[_TAG],
    status_code=204,
    request_max_body_size=BODY_MOST,
    **public(403, 413, 503),
)
async def receive_events(request: AnyRequest, ask: Asked, token: PushToken) -> None:
    """A BMC's push (a Redfish `Event`). The token is its credential: it was given to that BMC alone."""
    inbox = ask.of(EventHub).inbox
    inbox.sender(token)  # nobody else's push is read
    inbox.receive(token, await request.body())


_ROUTES = Routes(AlertService, "hardware", tag=_TAG)
_ROUTES.get(
    "list_events",
    "/v1/hardware/events",
    AlertService.events,
    404,
    select=Select,
    severity=Annotated[Severity, QueryParameter(description="At least as bad as this.")],
    since=Time,
    limit=Limit,
    cursor=Cursor,
)
