"""Logins by a provider, kept for the next command: a file (0600) of the user's, by the address of the service."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import NamedTuple

from strata.cli.login.provider import Given, renew
from strata.core.errors import BadRequest, Unauthenticated
from strata.core.host.private_file import write_private

_SOON = 60.0
"""Seconds before its end at which a token is renewed."""


class Login(NamedTuple):
    """Who somebody is at one service."""

    issuer: str
    client: str
    endpoint: str
    """Where tokens are renewed."""
    given: Given


def logins_file() -> Path:
    """``$XDG_CONFIG_HOME/strata/logins.json``."""
    told = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(told) if told.startswith("/") else Path.home() / ".config") / "strata" / "logins.json"


def token_for(url: str) -> str:
    """A token that is good at ``url`` now; empty: nobody has logged in there."""
    path = logins_file()
    login = _read(path).get(url)
    if login is None:
        return ""
    if time.time() < login.given.until - _SOON:
        return login.given.token
    given = renew(login.endpoint, login.client, login.given.renewal, time.time()) if login.given.renewal else None
    if given is None:
        raise Unauthenticated("your login has ended", where=url, hint="log in again: strata login")
    keep(url, login._replace(given=given))
    return given.token


def keep(url: str, login: Login) -> None:
    """For the next command."""
    path = logins_file()
    _write(path, {**_read(path), url: login})


def forget(url: str) -> bool:
    """Whether there was a login."""
    path = logins_file()
    kept = _read(path)
    if kept.pop(url, None) is None:
        return False
    _write(path, kept)
    return True


def _read(path: Path) -> dict[str, Login]:
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise BadRequest("others can read your logins", where=str(path), hint=f"chmod 600 {path}")
            told = json.load(file)
        return {
            url: Login(one["issuer"], one["client"], one["endpoint"], Given(one["token"], one["renewal"], one["until"]))
            for url, one in told.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"cannot be read: {error}", where=str(path), hint="remove it, and log in again") from None


def _write(path: Path, logins: dict[str, Login]) -> None:
    told = {
        url: {"issuer": one.issuer, "client": one.client, "endpoint": one.endpoint, **one.given._asdict()}
        for url, one in logins.items()
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, json.dumps(told).encode())
