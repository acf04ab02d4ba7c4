"""What this process answers for: the service of every room that is open here, found by its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from strata.core.errors import Unavailable

T = TypeVar("T")


class Services:
    """Layers put theirs in while they are opened; faces and higher layers find them."""

    def __init__(self) -> None:
        self._by_type: dict[type[Any], Any] = {}
        self.held: list[Callable[[], None]] = []
        """Each ends the requests that a service holds open: called before this process stops."""

    def put(self, service: T, kind: type[T] | None = None) -> T:
        """Answer for ``kind``, the service's own type unless given, with ``service``."""
        self._by_type[kind or type(service)] = service
        return service

    def drop(self, kind: type[Any]) -> None:
        """Answer for it no more."""
        self._by_type.pop(kind, None)

    def find(self, kind: type[T]) -> T | None:
        """The service; None: the room that it is of is not open here."""
        return cast("T | None", self._by_type.get(kind))

    def get(self, kind: type[T]) -> T:
        """The service; ``Unavailable`` where the room that it is of is not open here."""
        found = self.find(kind)
        if found is None:
            layer, room = kind.__module__.split(".")[1:3]
            raise Unavailable(
                f"not available: this service was started without the {layer} layer",
                where=room,
                hint=f"strata serve {layer} runs it; a simulated fleet has no provisioning",
            )
        return found
