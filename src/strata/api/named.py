"""The routes that everything with a name has: list, show, put, delete.

A room declares a ``Named`` for its noun, and says of each route which method of its service answers: what a route takes
and gives is what that method does. It writes only those routes that differ. ``routes_of`` finds both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Concatenate, Generic, TypeVar, cast, get_args, get_type_hints

from litestar import Response, delete, get, put
from litestar.handlers import HTTPRouteHandler as Route
from litestar.params import JSONBody

from strata.api.http import AnyRequest, expected_revision, revision_tag
from strata.api.rights import needs
from strata.api.services import Ask, Asked, NamePath
from strata.core.texts import ListOf
from strata.fleet.access.principal import Principal, Verb

S = TypeVar("S")


class Named(Generic[S]):
    """One noun: ``word`` is what its operations are called after, ``url`` where they all are, ``kind`` what rights call
    it (the word, unless given), ``service`` who answers. Each method makes a route that ``does`` describes.

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
        self._url = url
        self._service = service
        self._word = word
        self._tag = tag
        self._kind = kind or word
        self._plural = plural or f"{word}s"
        self._current = current
        self.routes: Sequence[Route] = ()
        """Those that were made so far."""

    def list(self, call: Callable[[S, Principal], Awaitable[Sequence[Any]]], does: str) -> None:
        """All of them."""

        async def handle(ask: Asked) -> Any:
            return ListOf(items=tuple(await call(ask.of(self._service), ask.who)))

        (view,) = get_args(get_type_hints(call)["return"])
        _declare(handle, f"list_{self._plural}", does, {"return": cast("Any", ListOf)[view]})
        self._add(get(self._url, tags=[self._tag], **needs("read", self._kind))(handle))

    def show(self, call: Callable[[S, Principal, str], Awaitable[Any]], does: str) -> None:
        """One of them."""

        async def handle(ask: Asked, name: NamePath) -> Any:
            return self._answer(await call(ask.of(self._service), ask.who, name))

        _declare(handle, f"show_{self._word}", does, {"return": self._answered(call)})
        self._add(get(self._one, tags=[self._tag], **needs("read", self._kind, 404))(handle))

    def put(
        self,
        call: Callable[Concatenate[S, Principal, str, Any, ...], Awaitable[Any]],
        does: str,
        *,
        called: str = "",
        verb: Verb = "change",
        statuses: Sequence[int] = (404, 409),
    ) -> None:
        """Create or replace one."""

        async def handle(request: AnyRequest, ask: Asked, name: NamePath, data: Any) -> Any:
            expected = await self._expected(request, ask, name)
            return self._answer(await call(ask.of(self._service), ask.who, name, data, *expected))

        taken = list(get_type_hints(call, include_extras=True).values())[2]
        types = {"data": cast("Any", JSONBody)[taken], "return": self._answered(call)}
        _declare(handle, called or f"put_{self._word}", does, types)
        self._add(
            put(self._one, tags=[self._tag], **needs(verb, self._kind, *self._with_tag(statuses), body=True))(handle)
        )

    def delete(
        self,
        call: Callable[Concatenate[S, Principal, str, ...], Awaitable[None]],
        does: str,
        *,
        called: str = "",
        statuses: Sequence[int] = (404, 409),
    ) -> None:
        """Remove one."""

        async def handle(request: AnyRequest, ask: Asked, name: NamePath) -> None:
            expected = await self._expected(request, ask, name)
            await call(ask.of(self._service), ask.who, name, *expected)

        _declare(handle, called or f"delete_{self._word}", does, {})
        self._add(delete(self._one, tags=[self._tag], **needs("delete", self._kind, *self._with_tag(statuses)))(handle))

    def _add(self, route: Route) -> None:
        self.routes = (*self.routes, route)

    @property
    def _one(self) -> str:
        return f"{self._url}/{{name:str}}"

    async def _expected(self, request: AnyRequest, ask: Ask, name: str) -> Sequence[int | None]:
        current = self._current
        if current is None:
            return ()
        return (await expected_revision(request, lambda: current(ask.of(self._service), ask.who, name)),)

    def _answer(self, view: Any) -> Any:
        return view if self._current is None else Response(view, headers={"ETag": revision_tag(view.revision)})

    def _answered(self, call: Any) -> Any:
        view = get_type_hints(call)["return"]
        return view if self._current is None else cast("Any", Response)[view]

    def _with_tag(self, statuses: Sequence[int]) -> Sequence[int]:
        return statuses if self._current is None else (*statuses, 412)


def routes_of(module: ModuleType) -> Iterator[Route]:
    """All routes that stand in a module."""
    for one in vars(module).values():
        if isinstance(one, Route):
            yield one
        elif isinstance(one, Named):
            yield from one.routes


def _declare(handle: Any, name: str, does: str, types: dict[str, Any]) -> None:
    """Make a function be what Litestar reads of one that is written out."""
    handle.__name__ = handle.__qualname__ = name
    handle.__doc__ = does
    handle.__annotations__.update(types)
