"""Reads the configuration again while the service runs, and takes over what is safe to change then."""

from __future__ import annotations

import logging
from collections.abc import Callable

from strata.core import logs
from strata.core.errors import StrataError
from strata.daemon.settings import Settings, changes, get, put
from strata.fleet.fleet import Fleet

log = logging.getLogger(__name__)


class Reload:
    """What happens at SIGHUP. A file that cannot be read, or is wrong, changes nothing."""

    def __init__(self, fleet: Fleet, settings: Settings, read: Callable[[], Settings]) -> None:
        """``settings``: as they were read at the start."""
        self._fleet = fleet
        self._read = read
        self._in_force = settings

    def run(self) -> None:
        """Read, compare, take over, and say in the log what was done."""
        try:
            new = self._read()
        except StrataError as error:
            log.error("the configuration is wrong, nothing was changed", extra={"error": str(error)})
            return
        live: list[str] = []
        others: list[str] = []
        for setting, can_change in changes(self._in_force, new):
            (live if can_change else others).append(setting)
        for setting in live:
            self._in_force = put(self._in_force, setting, get(new, setting))
            self._fleet.settings = put(self._fleet.settings, setting, get(new, setting))
        if "logs.level" in live:  # only then: somebody may have changed it with strata log-level
            logs.set_level(new.logs.level)
        for take in self._fleet.reloads:
            take()
        log.info("configuration read again", extra={"changed": live})
        if others:
            log.warning("changed settings that need a restart", extra={"settings": others})
