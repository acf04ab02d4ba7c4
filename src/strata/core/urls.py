"""URLs that people give us: none may carry a login, and what may be a secret in one is not shown. Pure."""

from __future__ import annotations

import re

from strata.core.errors import BadRequest
from strata.core.redact import HIDDEN

_END = re.compile(r"[/?#\\]")
_TOKEN = re.compile(r"(?=[A-Za-z0-9_-]*[0-9A-Z])[A-Za-z0-9_-]{20,}")
"""What looks like nobody's word: receivers of webhooks, and boot media, are known by such a part of their path."""


def has_login(url: str) -> bool:
    """Whether a user name or a password stands before the host, in whatever form the address is."""
    return "@" in _END.split(url.partition("://")[2] if "://" in url else url.lstrip("/"), maxsplit=1)[0]


def refuse_login(url: str, where: str, *, hint: str) -> None:
    """Raise ``BadRequest`` if the address carries a login, or is one of those that we show with a secret blacked out.
    It is not repeated. ``hint`` says where the login belongs."""
    if has_login(url):
        raise BadRequest("a user name or password in an address would be kept and shown", where=where, hint=hint)
    if HIDDEN in url:
        raise BadRequest(f"{HIDDEN} stands for a secret that is not shown", where=where, hint="give the whole address")


def shown(url: str) -> str:
    """The address as everybody may read it: without a login, its query, and parts of its path that look random."""
    address, query, _ = url.partition("?")
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "", address
    host, slash, path = rest.partition("/")
    if "@" in host:
        host = f"{HIDDEN}@{host.rpartition('@')[2]}"
    path = _TOKEN.sub(HIDDEN, path.partition("#")[0])
    return f"{scheme}{separator}{host}{slash}{path}{f'?{HIDDEN}' if query else ''}"
