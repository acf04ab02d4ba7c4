"""Routes that are one method of a service each: what such a route takes, gives and says of itself is what that does.

A room declares ``Routes`` for a service, and says of each where it is, which method answers and what right it needs. It
writes out only those that do more than ask.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from litestar import Response, delete, get, post, put
from litestar.handlers import HTTPRouteHandler as Route
from litestar.params import JSONBody

from strata.api.http import seal, unseal
from strata.api.rights import answers, needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.fleet.access.principal import Principal, Verb
from strata.fleet.operations.records import Operation

S = TypeVar("S")
Method = Callable[Concatenate[S, Principal, ...], Awaitable[Any]]


class Routes(Generic[S]):
    """Of one ``service``; ``kind`` is what rights call that which they are about.

    Each is ``called`` so in the API's description, is at ``url``, is answered by ``call``, and may end in ``statuses``
    beside those of all routes. ``takes`` has the types of the parameters in path and query, in the order in which
    ``call`` takes them (a ``name`` in the path is anything that people name, unless it is there). What ``call`` must
    have beside them is the body; or the fields of the body's type are, where ``data`` names that.

    A sequence is given as a ``ListOf``, an operation that was begun with its place. A ``cursor`` is opaque to the
    client and plain to ``call``, as is the ``next`` of a page.
    """

    def __init__(self, service: type[S], kind: str, *, tag: str) -> None:
        self._service = service
        self._kind = kind
        self._tag = tag
        self.made: list[Route] = []

    def get(self, called: str, url: str, call: Method[S], *statuses: int, **takes: Any) -> None:
        """Read something."""
        self._route(get, called, url, call, "read", statuses, takes)

    def post(
        self, called: str, url: str, call: Method[S], verb: Verb, *statuses: int, success: int = 200, **takes: Any
    ) -> None:
        """Do something."""
        self._route(post, called, url, call, verb, statuses, takes, success)

    def put(self, called: str, url: str, call: Method[S], verb: Verb, *statuses: int, **takes: Any) -> None:
        """Let something be as the body says."""
        self._route(put, called, url, call, verb, statuses, takes)

    def delete(self, called: str, url: str, call: Method[S], *statuses: int, **takes: Any) -> None:
        """Remove something."""
        self._route(delete, called, url, call, "delete", statuses, takes)

    def _route(
        self,
        method: Callable[..., Any],
        called: str,
        url: str,
        call: Method[S],
        verb: Verb,
        statuses: Sequence[int],
        takes: dict[str, Any],
        success: int | None = None,
    ) -> None:
        hints = get_type_hints(call, include_extras=True)
        _, _, *parameters = inspect.signature(call).parameters.values()
        spread = takes.pop("data", None)
        types = {"name": NamePath, **takes} if "{name:str}" in url else takes
        own = dict(zip(types, parameters, strict=False))
        body = next((one for one in parameters[len(types) :] if one.default is one.empty), None)
        if spread is not None:
            types["data"] = cast("Any", JSONBody)[spread]
        elif body is not None:
            own["data"] = body
            types["data"] = cast("Any", JSONBody)[hints[body.name]]
        listed = issubclass(get_origin(hints["return"]) or object, Sequence)
        perhaps_later = Operation in get_args(hints["return"])

        async def handle(ask: Asked, **found: Any) -> Any:
            if "cursor" in found:
                found["cursor"] = unseal(found["cursor"])
            given = {own[name].name: found[name] for name in own}
            if spread is not None:
                given |= msgspec.structs.asdict(found["data"])
            answer = await getattr(ask.of(self._service), call.__name__)(ask.who, **given)
            if listed:
                return ListOf(items=tuple(answer))
            if "cursor" in found:
                return msgspec.structs.replace(answer, next=seal(answer.next) if answer.next else answer.next)
            if isinstance(answer, Operation) and (success == 202 or perhaps_later):
                return Response(answer, status_code=202, headers={"Location": f"/v1/operations/{answer.id}"})
            return answer

        answered = cast("Any", ListOf)[get_args(hints["return"])[0]] if listed else hints["return"]
        declare(handle, called, call.__doc__, {**types, "return": answered})
        (asked, _) = inspect.signature(handle).parameters.values()
        defaults = {name: one.default for name, one in own.items()} | ({"cursor": None} if "cursor" in types else {})
        arguments = [inspect.Parameter(name, asked.kind, default=defaults.get(name, asked.empty)) for name in types]
        arguments.sort(key=lambda one: one.default is not one.empty)  # those without a default first, as anywhere
        handle.__signature__ = inspect.Signature([asked, *arguments])  # type: ignore[attr-defined]
        also = {202: answers(Operation, "Accepted as an operation.")} if perhaps_later else None
        right = needs(verb, self._kind, *statuses, body="data" in types, also=also)
        self.made.append(method(url, tags=[self._tag], status_code=success, **right)(handle))


def declare(handle: Any, called: str, does: str | None, types: Mapping[str, Any]) -> None:
    """Make a function be what Litestar reads of one that is written out."""
    handle.__name__ = handle.__qualname__ = called
    handle.__doc__ = does
    handle.__annotations__.update(types)
