"""Who somebody is here, from what their token says. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from strata.core.errors import Unauthenticated
from strata.fleet.access.oidc.settings import OidcRule, OidcSettings
from strata.fleet.access.principal import Principal

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,127}\Z")
_LOCAL = re.compile(r"[a-z_][a-z0-9_.-]{0,31}\Z")


def principal_of(settings: OidcSettings, claims: Mapping[str, Any]) -> Principal:
    """Who it is; ``Unauthenticated``: nobody that a rule knows."""
    name = claims.get(settings.name) or claims.get("sub")
    if not isinstance(name, str) or not _NAME.match(name):
        raise Unauthenticated(
            f"the token's {settings.name} is not a name", hint="letters, digits and _.@+- make one, at most 128"
        )
    for rule in settings.rules:
        if _fits(rule, claims):
            return Principal(
                name=f"oidc:{name}",
                role=rule.role,
                scope=rule.scope,
                via="oidc",
                credential=str(claims.get("sub", ""))[:256],
                account=_account(rule, name),
            )
    raise Unauthenticated(
        f"no rule (oidc.rules) gives {name} a role",
        where="oidc.rules",
        hint="ask an administrator for one that fits a claim of yours",
    )


def _fits(rule: OidcRule, claims: Mapping[str, Any]) -> bool:
    # A claim may have dots in its own name: https://example.org/groups.
    value: Any = claims.get(rule.claim)
    if value is None:
        value = claims
        for part in rule.claim.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    values = value if isinstance(value, list) else [value]
    # Only texts and switches: a number is written in many ways.
    told = {one if isinstance(one, str) else str(one).lower() for one in values if isinstance(one, str | bool)}
    return bool(told) if rule.value == "*" else rule.value in told


def _account(rule: OidcRule, name: str) -> str:
    if rule.account != "*":
        return rule.account
    # Whoever has an address for a name is not the account of its first part: that may be somebody else.
    return name if _LOCAL.match(name) else ""
