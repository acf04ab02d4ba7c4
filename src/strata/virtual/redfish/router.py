"""Which function answers for a path: tables of patterns (``Systems/1/Memory/*``) made into one tree of look-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from strata.virtual.bmc.http import Reply, Request
from strata.virtual.redfish.body import Json


class Call(NamedTuple):
    """One question: the resource at ``path``, whose pattern's stars stood for ``ids``."""

    path: str
    ids: tuple[str, ...]
    now: float
    request: Request


B = TypeVar("B")

Views = Mapping[str, Callable[[B, Call], Json | None]]
"""Pattern → what the resource is now; None: there is none."""
Deeds = Mapping[str, Callable[[B, Call], Reply]]
"""``PATCH pattern`` → what is done."""


class Place(Generic[B]):
    """What answers at one place in the tree."""

    __slots__ = ("any", "below", "deeds", "view")

    def __init__(self) -> None:
        self.below: dict[str, Place[B]] = {}
        self.any: Place[B] | None = None
        self.view: Callable[[B, Call], Json | None] | None = None
        self.deeds: dict[str, Callable[[B, Call], Reply]] = {}

    @property
    def allow(self) -> str:
        """The methods that are allowed here."""
        return ", ".join((["GET", "HEAD"] if self.view else []) + sorted(self.deeds))


class Router(Generic[B]):
    """All places of one kind of BMC, from its tables."""

    def __init__(self, views: Views[B], deeds: Deeds[B]) -> None:
        self._top: Place[B] = Place()
        for pattern, view in views.items():
            self._make(pattern).view = view
        for pattern, deed in deeds.items():
            method, _, path = pattern.partition(" ")
            self._make(path).deeds[method] = deed

    def find(self, path: str) -> tuple[Place[B], tuple[str, ...]] | None:
        """What answers for ``path`` (below the root, no slash around it), and the ids in it."""
        place: Place[B] | None = self._top
        ids: tuple[str, ...] = ()
        for part in path.split("/"):
            assert place is not None
            further = place.below.get(part)
            if further is None:
                further = place.any
                if further is None:
                    return None
                ids = (*ids, part)
            place = further
        return (place, ids) if place is not None and (place.view or place.deeds) else None

    def _make(self, pattern: str) -> Place[B]:
        place = self._top
        for part in pattern.split("/"):
            if part == "*":
                place.any = place.any or Place()
                place = place.any
            else:
                place = place.below.setdefault(part, Place())
        return place
