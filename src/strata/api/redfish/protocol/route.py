"""The seam between the protocol (``app``) and the resources: routes, the calls that they get, the replies they give."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import msgspec

from strata.fleet.access.principal import Principal, Right
from strata.fleet.services import Services

T = TypeVar("T")

ROOT = "/redfish/v1"

Json = dict[str, Any]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request for one resource, after the protocol has looked at it: who asks is known and has the right."""

    who: Principal
    services: Services
    path: str
    """Without a slash at the end."""
    params: Mapping[str, str]
    """What stood in the template's braces, unquoted."""
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = {}
    base: str = ""
    """``https://host:port`` as the client wrote it."""
    one_of_many: bool = False
    """It is read for an expansion or a filter: not the moment to ask a device for what can be left out."""
    resume: str = ""
    """The last event that a follower saw (``Last-Event-ID``)."""

    def of(self, kind: type[T]) -> T:
        """The service of a room; ``Unavailable`` where that room is not open here."""
        return self.services.get(kind)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a handler answers where a plain resource will not do."""

    status: int = 200
    body: Json | None = None
    headers: Mapping[str, str] = {}
    text: str | None = None
    """In place of ``body``, what is not JSON; its ``Content-Type`` is among the headers."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Server-sent events, for as long as somebody listens."""

    lines: AsyncGenerator[bytes, None]


Handler = Callable[[Call], Awaitable[Json | Reply | Stream]]
"""GET gives the resource with ``@odata.id`` and ``@odata.type``; the protocol adds ETags and applies the query. It
raises ``NotFound`` for an instance that is not there (or not in the caller's scope)."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One URI template (``/redfish/v1/Systems/{system}``) and what may be done there. ``rights``: per method; a
    method without one is open to everybody who is logged in, and ``public`` ones to everybody."""

    template: str
    get: Handler | None = None
    post: Handler | None = None
    patch: Handler | None = None
    delete: Handler | None = None
    rights: Mapping[str, Right] = {}
    public: frozenset[str] = frozenset()
    media: str = "application/json"
    """What GET gives."""


def link(path: str) -> Json:
    """A reference to another resource."""
    return {"@odata.id": path}


class Links(Sequence[Json]):
    """Links to these paths, made when somebody looks: of 100,000 an answer holds a page."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, at: int) -> Json: ...
    @overload
    def __getitem__(self, at: slice) -> Links: ...
    def __getitem__(self, at: int | slice) -> Json | Links:
        return Links(self.paths[at]) if isinstance(at, slice) else link(self.paths[at])

    def __iter__(self) -> Iterator[Json]:
        return map(link, self.paths)


def collection(path: str, kind: str, name: str, members: Sequence[str]) -> Json:
    """A collection of ``kind`` whose members are at these paths."""
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": name,
        "Members": Links(members),
        "Members@odata.count": len(members),
    }
