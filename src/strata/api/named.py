"""The routes that everything with a name has: list, show, put, delete.

A room declares a ``Named`` for its noun, and says of each route which method of its service answers. It writes only
those routes that differ. ``routes_of`` finds both.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Concatenate, Generic, TypeVar, cast, get_type_hints

from litestar import Response, delete, get, put
from litestar.handlers import HTTPRouteHandler as Route
from litestar.params import JSONBody

from strata.api.http import AnyRequest, expected_revision, revision_tag, unless_fresh
from strata.api.rights import answers, needs
from strata.api.routing import Routes, declare
from strata.api.services import Ask, Asked, NamePath
from strata.fleet.access.principal import Principal, Verb

S = TypeVar("S")


class Named(Generic[S]):
    """One noun: ``word`` is what its operations are called after, ``url`` where they all are, ``kind`` what rights call
    it (the word, unless given), ``service`` who answers. ``routes`` makes the further ones that it has.

    ``current`` shows one of them as it is now. With it, ``If-Match`` is honoured: what changes one of them takes the
    revision that is expected last, and answers come with their entity tag.
    """

    def __init__(
        self,
        url: str,
        service: type[S],
        word: str,
        *,
        tag: str,
        kind: str = "",
        plural: str = "",
        current: Callable[[S, Principal, str], Awaitable[Any]] | None = None,
    ) -> None:
        self.routes = Routes(service, kind or word, tag=tag)
        self._url = url
        self._service = service
        self._word = word
        self._tag = tag
        self._kind = kind or word
        self._plural = plural or f"{word}s"
        self._current = current

    def list(self, call: Callable[[S, Principal], Awaitable[Sequence[Any]]]) -> None:
        """All of them."""
        self.routes.get(f"list_{self._plural}", self._url, call)

    def show(self, call: Callable[[S, Principal, str], Awaitable[Any]], *, alone: bool = False) -> None:
        """One of them; ``alone``: no more is shown than what its revision is of, so that 304 is true where a client has
        that one already."""
        called = f"show_{self._word}"
        if self._current is None:
            self.routes.get(called, self._one, call, 404)
            return

        async def handle(request: AnyRequest, ask: Asked, name: NamePath) -> Any:
            view = await call(ask.of(self._service), ask.who, name)
            if alone:
                return unless_fresh(request, view)
            return Response(view, headers={"ETag": revision_tag(view.revision)})

        declare(handle, called, call.__doc__, {"return": cast("Any", Response)[get_type_hints(call)["return"]]})
        also = {304: answers(None, "Your copy is current (`If-None-Match`).")} if alone else None
        self.routes.made.append(get(self._one, tags=[self._tag], **needs("read", self._kind, 404, also=also))(handle))

    def put(
        self,
        call: Callable[Concatenate[S, Principal, str, Any, ...], Awaitable[Any]],
        *,
        called: str = "",
        verb: Verb = "change",
        statuses: Sequence[int] = (404, 409),
    ) -> None:
        """Create or replace one."""
        called = called or f"put_{self._word}"
        if self._current is None:
            self.routes.put(called, self._one, call, verb, *statuses)
            return

        async def handle(request: AnyRequest, ask: Asked, name: NamePath, data: Any) -> Any:
            expected = await self._expected(request, ask, name)
            view = await call(ask.of(self._service), ask.who, name, data, expected)
            return Response(view, headers={"ETag": revision_tag(view.revision)})

        hints = get_type_hints(call, include_extras=True)
        types = {
            "data": cast("Any", JSONBody)[list(hints.values())[2]],
            "return": cast("Any", Response)[hints["return"]],
        }
        declare(handle, called, f"{inspect.getdoc(call)} `If-Match` and `If-None-Match: *` are honoured.", types)
        self.routes.made.append(
            put(self._one, tags=[self._tag], **needs(verb, self._kind, *statuses, 412, body=True))(handle)
        )

    def delete(
        self,
        call: Callable[Concatenate[S, Principal, str, ...], Awaitable[None]],
        *,
        called: str = "",
        statuses: Sequence[int] = (404, 409),
    ) -> None:
        """Remove one."""
        called = called or f"delete_{self._word}"
        if self._current is None:
            self.routes.delete(called, self._one, call, *statuses)
            return

        async def handle(request: AnyRequest, ask: Asked, name: NamePath) -> None:
            await call(ask.of(self._service), ask.who, name, await self._expected(request, ask, name))

        declare(handle, called, f"{inspect.getdoc(call)} `If-Match` is honoured.", {})
        self.routes.made.append(
            delete(self._one, tags=[self._tag], **needs("delete", self._kind, *statuses, 412))(handle)
        )

    @property
    def _one(self) -> str:
        return f"{self._url}/{{name:str}}"

    async def _expected(self, request: AnyRequest, ask: Ask, name: str) -> int | None:
        current = self._current
        assert current is not None
        return await expected_revision(request, lambda: current(ask.of(self._service), ask.who, name))


def routes_of(module: ModuleType) -> Iterator[Route]:
    """All routes that stand in a module."""
    for one in vars(module).values():
        if isinstance(one, Route):
            yield one
        elif isinstance(one, Routes):
            yield from one.made
        elif isinstance(one, Named):
            yield from one.routes.made
