"""Which OpenID Connect provider's tokens are good here, and what whoever shows one may do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.settings_section import Section
from strata.core.units import Seconds
from strata.fleet.access.principal import Role

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ACCOUNT = re.compile(r"(\*|[a-z_][a-z0-9_.-]{0,31})\Z")


class OidcRule(Section, frozen=True, kw_only=True):
    """What those get whose token says so."""

    claim: Annotated[str, Meta(min_length=1, max_length=200)]
    """Name of the claim; a dot goes into a claim (``realm_access.roles``)."""
    value: Annotated[str, Meta(min_length=1, max_length=500)]
    """What it must be, or have among its values. ``*``: whatever it is."""
    role: Role
    scope: tuple[str, ...] = ()
    """Groups of nodes. Default: all."""
    account: str = ""
    """Local account that their jobs run as; ``*``: the one of their name. Default: empty, none."""


class OidcSettings(Section, frozen=True, kw_only=True):
    """A provider of OpenID Connect, beside Strata's own tokens."""

    issuer: str = ""
    """Its address, exactly as in its tokens (``https://login.example.org/realms/hpc``). Default: empty, no provider."""
    audience: str = "strata"
    """The client's id at the provider: tokens must be for it, and ``strata login`` asks as it. Default: strata."""
    name: str = "preferred_username"
    """Claim that names a person. It must be one that people cannot choose themselves. Default: the one that providers
    fill with the name of the login; where it is missing, ``sub`` is taken."""
    ca: Path | None = None
    """File of the authority that signed the provider's certificate. Default: none, the system's."""
    rules: tuple[OidcRule, ...] = ()
    """Which people get which role; the first rule that fits counts, and people whom none fits do not get in. Default:
    none."""
    leeway: Seconds = Seconds(60)
    """By how much clocks may differ. Default: a minute, which is enough for clocks that are synchronised."""

    def check(self) -> None:
        """That tokens can be checked safely."""
        if not self.issuer:
            return
        parts = urlsplit(self.issuer)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise BadRequest(f"{self.issuer[:80]!r} is not https://HOST/PATH", where="issuer")
        if not self.audience:
            raise BadRequest(
                "without it, tokens that the provider gave for other services would be accepted",
                where="audience",
                hint="name the client's id",
            )
        if not self.rules:
            raise BadRequest(
                "there are no rules, so that nobody could log in", where="rules", hint="add one: claim, value, role"
            )
        if self.ca is not None and not self.ca.is_file():
            raise BadRequest(f"no such file: {self.ca}", where="ca")
        for number, rule in enumerate(self.rules, 1):
            if rule.account and not _ACCOUNT.match(rule.account):
                raise BadRequest(f"rule {number}: {rule.account[:40]!r} is not the name of an account", where="rules")
