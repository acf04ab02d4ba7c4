"""What a room says of its faces: where its REST handlers, ASGI applications and commands are, as names of modules, so
that nothing is imported before it is used. Names begin with a dot where they are in the room's own folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Room(NamedTuple):
    """Stands in the ``__init__`` of the room's folder."""

    services: tuple[str, ...] = ()
    """``.module:class`` of what answers requests and needs nothing but the fleet: made when the room's layer is opened,
    started and stopped with it where it has ``start`` and ``stop``."""
    routes: tuple[str, ...] = ()
    """Modules with REST routes: all that stand in them are answered."""
    apps: Mapping[str, str] = {}
    """Path (``/capmc``) → ``module:name`` of the ASGI application that answers it and all below it. It finds who asks
    and the services in its scope (``strata.api.services``), and leaves its ``path_template`` there."""
    raw_apps: Mapping[str, str] = {}
    """The same for machines that ask very often: without the headers of all other answers. Returns its status."""
    commands: Mapping[str, Mapping[str, str]] = {}
    """Section of the help → words of the command (``alert``, ``hardware sensors``) → ``module:name`` of where it is."""
