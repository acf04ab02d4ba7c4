"""The seam between the protocol (``app``) and the resources: routes, the calls that they get, the replies they give."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import msgspec

from strata.core.errors import NotFound
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


H = TypeVar("H", bound=Handler)
Show = Callable[[Call, str, T], Awaitable[Json]]
"""The resource at a path that presents a thing."""
Find = Callable[[Call], Awaitable[Mapping[str, T]]]
"""Things by the ids that they have in paths."""


class Routes:
    """The routes of a module. A handler is declared with its template, and with the right that it needs."""

    def __init__(self) -> None:
        self._found: dict[str, Route] = {}

    def __iter__(self) -> Iterator[Route]:
        return iter(self._found.values())

    def get(
        self, template: str, right: Right | None = None, *, public: bool = False, media: str = "application/json"
    ) -> Callable[[H], H]:
        return self._declare("get", template, right, public, media=media)

    def post(self, template: str, right: Right | None = None, *, public: bool = False) -> Callable[[H], H]:
        return self._declare("post", template, right, public)

    def patch(self, template: str, right: Right | None = None) -> Callable[[H], H]:
        return self._declare("patch", template, right)

    def delete(self, template: str, right: Right | None = None) -> Callable[[H], H]:
        return self._declare("delete", template, right)

    def members(
        self, template: str, kind: str, title: str, right: Right | None, find: Find[T]
    ) -> Callable[[Show[T]], Show[T]]:
        """A collection of all that ``find`` gives, and below it each of them (``.../Fans/{fan}``), as declared."""
        above, _, last = template.rpartition("/")
        what = last.strip("{}")

        async def every(call: Call) -> Json:
            path = above.format_map(call.params)
            return collection(path, kind, title, [f"{path}/{ident}" for ident in await find(call)])

        def declare(show: Show[T]) -> Show[T]:
            async def one(call: Call) -> Json:
                ident, found = call.params[what], await find(call)
                if ident not in found:
                    raise NotFound(f"no such {what}", where=ident[:80])
                return await show(call, template.format_map(call.params), found[ident])

            self.get(above, right)(every)
            self.get(template, right)(one)
            return show

        return declare

    def _declare(
        self, method: str, template: str, right: Right | None, public: bool = False, **more: str
    ) -> Callable[[H], H]:
        def declare(handler: H) -> H:
            name = method.upper()
            known = self._found.get(template) or Route(template=template)
            self._found[template] = msgspec.structs.replace(
                known,
                rights=known.rights if right is None else {**known.rights, name: right},
                public=known.public | {name} if public else known.public,
                **{method: handler},
                **more,
            )
            return handler

        return declare


def link(path: str) -> Json:
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
