"""The power layer's section of the configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from strata.core.errors import BadRequest
from strata.core.settings_section import Section
from strata.core.units import Watts

_MOST = 1e12


class PowerSettings(Section, frozen=True, kw_only=True):
    """What the site may draw, and where measurements are kept."""

    live: ClassVar[frozenset[str]] = frozenset({"limit", "ramp", "band"})

    limit: Watts = Watts(0)
    """What all nodes together may draw at most, at any instant (``2MW``). Default: 0, no limit but that of a policy."""
    ramp: Watts = Watts(0)
    """By how much what may be drawn rises within a minute at most. Default: 0, no such limit."""
    band: Watts = Watts(0)
    """Below this, caps are not lowered, for sites that have to take a minimum. Default: 0, none."""
    telemetry: str = ""
    """``postgresql://HOST/DATABASE``: where samples are kept, for all controllers together. Default: empty, a file in
    the state directory. Never with a password: libpq reads that from ``PGPASSFILE``."""
    rules: Path | None = None
    """A file with the advice on switching nodes that CAPMC's ``node_rules`` gives (INI). Default: none, Cray's own."""

    def check(self) -> None:
        """That limits go together, that no password is told to all, and that the rules can be read."""
        for name, value in (("limit", self.limit), ("ramp", self.ramp), ("band", self.band)):
            if not 0 <= value < _MOST:
                raise BadRequest(f"{value:g} is not a number of watts", where=name)
        if self.band > self.limit > 0:
            raise BadRequest("the band's lower edge must not be above the limit", where="band")
        if self.telemetry:
            parts = urlsplit(self.telemetry)
            if parts.scheme not in ("postgresql", "postgres"):
                raise BadRequest(f"{parts.scheme[:40]!r} is not postgresql://HOST/DATABASE", where="telemetry")
            if parts.password or "password=" in parts.query:
                raise BadRequest(
                    "a password in an address is for all to see",
                    where="telemetry",
                    hint="leave it out of the address, and put it into the file that PGPASSFILE names",
                )
        if self.rules is not None:
            from strata.power.capmc.rules import read_rules  # loads numpy, for which no other command should wait

            read_rules(self.rules)
