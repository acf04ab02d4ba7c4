"""Which function answers for a path: patterns (``Systems/1/Memory/*``) made into one tree of look-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from strata.virtual.bmc.http import Reply, Request
from strata.virtual.redfish.body import Json, collection


class Call(NamedTuple):
    """One question: the resource at ``path``, whose pattern's stars stood for ``ids``."""

    path: str
    ids: tuple[str, ...]
    now: float
    request: Request


B = TypeVar("B")
F = TypeVar("F", bound=Callable[..., Any])

View = Callable[[B, Call], Json | None]
Handler = Callable[[B, Call], Reply]
Ids = Iterable[str] | Callable[[B, Call], Iterable[str]]


class Tree(Generic[B]):
    """What a kind of BMC presents: its resources by pattern, and what can be done to them."""

    def __init__(self) -> None:
        self.views: dict[str, View[B]] = {}
        self.handlers: dict[str, Handler[B]] = {}

    def view(self, pattern: str, schema: str = "") -> Callable[[F], F]:
        """What the resource at this place is now; None: there is none. With a ``schema`` (``Chassis.v1_21_0``) the
        function gives its properties alone: what says which resource it is, is added."""

        def declare(view: F) -> F:
            self.views[pattern] = _whole(view, schema) if schema else view
            return view

        return declare

    def handles(self, pattern: str) -> Callable[[F], F]:
        """What a method does at a place: ``PATCH Systems/1``."""

        def declare(handler: F) -> F:
            self.handlers[pattern] = handler
            return handler

        return declare

    def collection(self, pattern: str, kind: str, ids: Ids[B]) -> None:
        """A collection of resources of this kind."""
        self.views[pattern] = lambda bmc, call: collection(call.path, kind, _known(ids, bmc, call))

    def members(self, pattern: str, schema: str, ids: Ids[B]) -> Callable[[F], F]:
        """A collection, and its members: the function is asked for those alone that there are. The place of an only
        member has its name (``Managers/1``), that of one of many a star."""

        def declare(view: F) -> F:
            self.collection(pattern, schema.partition(".")[0], ids)
            whole = _whole(view, schema)
            if isinstance(ids, list) and len(ids) == 1:
                self.views[f"{pattern}/{ids[0]}"] = whole
            else:
                self.views[f"{pattern}/*"] = lambda bmc, call: (
                    whole(bmc, call) if call.ids[-1] in _known(ids, bmc, call) else None
                )
            return view

        return declare


def _known(ids: Ids[B], bmc: B, call: Call) -> Iterable[str]:
    return ids(bmc, call) if callable(ids) else ids


def _whole(view: View[B], schema: str) -> View[B]:
    kind = f"#{schema}.{schema.partition('.')[0]}"

    def show(bmc: B, call: Call) -> Json | None:
        found = view(bmc, call)
        if found is None:
            return None
        ident = call.path.rpartition("/")[2]
        return {"@odata.id": call.path, "@odata.type": kind, "Id": ident, "Name": ident, **found}

    return show


class Place:
    """What answers at one place in the tree."""

    __slots__ = ("any", "below", "handlers", "view")

    def __init__(self) -> None:
        self.below: dict[str, Place] = {}
        self.any: Place | None = None
        self.view: View[Any] | None = None
        self.handlers: dict[str, Handler[Any]] = {}

    @property
    def allow(self) -> str:
        """The methods that are allowed here."""
        return ", ".join((["GET", "HEAD"] if self.view else []) + sorted(self.handlers))


class Router:
    """All places of one kind of BMC. Where two trees have the same place, the later one counts."""

    def __init__(self, *trees: Tree[Any]) -> None:
        self._top = Place()
        for tree in trees:
            for pattern, view in tree.views.items():
                self._make(pattern).view = view
            for pattern, handler in tree.handlers.items():
                method, _, path = pattern.partition(" ")
                self._make(path).handlers[method] = handler

    def find(self, path: str) -> tuple[Place, tuple[str, ...]] | None:
        """What answers for ``path`` (below the root, no slash around it), and the ids in it."""
        place = self._top
        ids: tuple[str, ...] = ()
        for part in path.split("/"):
            further = place.below.get(part)
            if further is None:
                further = place.any
                if further is None:
                    return None
                ids = (*ids, part)
            place = further
        return (place, ids) if place.view or place.handlers else None

    def _make(self, pattern: str) -> Place:
        place = self._top
        for part in pattern.split("/"):
            if part == "*":
                place.any = place.any or Place()
                place = place.any
            else:
                place = place.below.setdefault(part, Place())
        return place
