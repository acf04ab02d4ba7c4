"""Consoles: what nodes printed and print, and what is typed at them."""

from __future__ import annotations

from typing import Annotated, Literal

from litestar import get
from litestar.params import PathParameter, QueryParameter
from litestar.response import Stream

from strata.api import sse
from strata.api.http import AnyRequest
from strata.api.routing import Routes
from strata.api.services import Asked, NodePath, Select, Time, Watchers
from strata.core.texts import PLAIN, Out
from strata.hardware.consoles.records import ConsoleKeys, ConsolePiece
from strata.hardware.consoles.service import ConsoleService

_TAG = "consoles"
_STREAM = (
    "Events: `id` is a line's number to resume after, `event` is line or compacted (read the last lines again, then "
    "follow from there); `data` is JSON."
)
_RAW = "Events: `event` is piece; `data` is JSON, with bytes in base64."

Dump = Annotated[
    str,
    PathParameter(
        pattern=r"^[0-9]{1,15}-[0-9]{1,15}$(?!\n)",
        max_length=31,
        description="`FIRST-LAST` of a reference `console:NODE:FIRST-LAST`.",
    ),
]


class FollowedLine(Out, frozen=True, kw_only=True):
    """One event of the stream, field by field."""

    event: Literal["line", "compacted"]
    data: str
    id: str = ""
    """The line's number."""


class RawPiece(Out, frozen=True, kw_only=True):
    """One event of the stream, field by field."""

    event: Literal["piece"]
    data: str


@get(
    "/v1/nodes/{name:str}/console/follow",
    tags=[_TAG],
    **sse.streamed("console", 404, event=FollowedLine, described=_STREAM),
)
async def follow_console(
    request: AnyRequest,
    ask: Asked,
    name: NodePath,
    since: Annotated[int | None, QueryParameter(ge=0, le=sse.NEWEST, description="Resume after this line.")] = None,
) -> Stream:
    """Lines from now on, or after `since`; the `Last-Event-ID` header wins over `since`."""
    consoles = ask.of(ConsoleService)
    ask.of(Watchers).check_room()
    batches = await consoles.follow(ask.who, name, sse.resume_point(request, since))
    return sse.stream(batches, ask.of(Watchers), lambda line: sse.event(line.id, "line", line))


@get(
    "/v1/nodes/{name:str}/console/raw",
    tags=[_TAG],
    **sse.streamed("console", 404, event=RawPiece, described=_RAW),
)
async def watch_console(ask: Asked, name: NodePath) -> Stream:
    """What it prints from now on, byte for byte: for terminals."""
    ask.of(Watchers).check_room()
    pieces = await ask.of(ConsoleService).pieces(ask.who, name)
    return sse.stream(pieces, ask.of(Watchers), lambda piece: sse.event(0, "piece", ConsolePiece(data=piece)))


_ROUTES = Routes(ConsoleService, "console", tag=_TAG)
_ROUTES.get("list_consoles", "/v1/consoles", ConsoleService.consoles, 404, select=Select)
_ROUTES.get(
    "search_consoles",
    "/v1/consoles/search",
    ConsoleService.search,
    404,
    text=Annotated[
        str, QueryParameter(pattern=PLAIN, min_length=1, max_length=256, description="In upper or lower case.")
    ],
    select=Select,
    regex=Annotated[bool, QueryParameter(description="`text` is a regular expression, as in Python.")],
    since=Time,
    until=Time,
    limit=Annotated[int, QueryParameter(ge=1, le=1000, description="Most lines, the newest.")],
)
_ROUTES.get(
    "show_console",
    "/v1/nodes/{name:str}/console",
    ConsoleService.tail,
    404,
    name=NodePath,
    lines=Annotated[int, QueryParameter(ge=0, le=10_000, description="How many, the newest.")],
)
_ROUTES.post(
    "type_console",
    "/v1/nodes/{name:str}/console/keys",
    ConsoleService.type,
    "change",
    404,
    409,
    success=204,
    name=NodePath,
    data=ConsoleKeys,
)
_ROUTES.get("list_dumps", "/v1/nodes/{name:str}/console/dumps", ConsoleService.dumps, 404, name=NodePath)
_ROUTES.get(
    "show_dump", "/v1/nodes/{name:str}/console/dumps/{dump:str}", ConsoleService.dump, 404, name=NodePath, dump=Dump
)
