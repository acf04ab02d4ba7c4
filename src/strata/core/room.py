"""What a room says of its faces: where its REST handlers, ASGI applications and commands are, as names of modules, so
that nothing is imported before it is used. A name that begins with a dot is below the room's own folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Room(NamedTuple):
    """Stands in the ``__init__`` of the room's folder."""

    services: tuple[str, ...] = ()
    """``module:class`` of what answers requests and needs nothing but the fleet: made when the room's layer is opened,
    started and stopped with it where it has ``start`` and ``stop``."""
    routes: tuple[str, ...] = ()
    """Modules with a list ``HANDLERS``."""
    apps: Mapping[str, str] = {}
    """Path (``/capmc``) → ``module:name`` of the ASGI application that answers it and all below it. It finds who asks
    and the services in its scope (``strata.api.services``), and leaves its ``path_template`` there."""
    raw_apps: Mapping[str, str] = {}
    """The same for machines that ask very often: without the headers of all other answers. Returns its status."""
    commands: Mapping[str, Mapping[str, str]] = {}
    """Section of the help → words of the command (``alert``, ``hardware sensors``) → ``module:name`` of where it is."""

    def within(self, package: str) -> Room:
        """With whole names, the room's folder being ``package``."""

        def whole(place: str) -> str:
            return package + place if place.startswith(".") else place

        def all_whole(places: Mapping[str, str]) -> Mapping[str, str]:
            return {key: whole(place) for key, place in places.items()}

        return Room(
            services=tuple(map(whole, self.services)),
            routes=tuple(map(whole, self.routes)),
            apps=all_whole(self.apps),
            raw_apps=all_whole(self.raw_apps),
            commands={section: all_whole(table) for section, table in self.commands.items()},
        )
