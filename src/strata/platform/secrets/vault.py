"""HashiCorp Vault as a source of secrets: reads one field of its key-value store (version 2). Blocking: for a thread.

Vault's own words are passed on where they tell what to do, never a token and never a value.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from strata.core.errors import Corrupt, Unavailable
from strata.core.extras import needs
from strata.core.redact import redact
from strata.platform.secrets.records import MOST, VaultPlace
from strata.platform.settings import PlatformSettings

TIMEOUT = 10.0
"""Seconds for each request to it."""
AWAY = 15.0
"""Seconds for which one that is sealed or does not answer is not asked again, whatever for."""


class Vault:
    """A Vault that the settings name. Logs in when it must."""

    def __init__(self, settings: PlatformSettings) -> None:
        self._settings = settings
        self._client: Any = None
        self._away = (0.0, "")
        self._turn = threading.Lock()  # one connection, one login

    def read(self, place: VaultPlace) -> tuple[int, bytes]:
        """The version and the value of a field; ``Unavailable`` says why there is none now."""
        if not self._settings.vault:
            raise Unavailable(
                "this service knows no Vault", where=_where(place), hint="set platform.vault in the configuration file"
            )
        with self._turn:
            return self._in_turn(place)

    def _in_turn(self, place: VaultPlace) -> tuple[int, bytes]:
        until, why = self._away
        if time.monotonic() < until:
            raise Unavailable(why, where=_where(place))
        try:
            return self._read(place)
        except _Expired:
            self._client = None  # its token was revoked, or is too old: once more, with a new one
            try:
                return self._read(place)
            except _Expired as refused:
                raise Unavailable(
                    f"Vault refuses it: {refused}",
                    where=_where(place),
                    hint="is the token good, and does its policy allow to read the path?",
                ) from None

    def _read(self, place: VaultPlace) -> tuple[int, bytes]:
        with needs("hvac", "vault", "a secret of a Vault"):
            import hvac.exceptions
            import requests
        try:
            if self._client is None:
                self._client = self._login(hvac, requests)
            answer = self._client.secrets.kv.v2.read_secret_version(
                place.path, mount_point=place.mount, raise_on_deleted_version=True
            )
        except (hvac.exceptions.Forbidden, hvac.exceptions.Unauthorized) as error:
            raise _Expired(_words(error)) from None
        except hvac.exceptions.InvalidPath:
            raise Unavailable("there is no such secret in the Vault", where=_where(place)) from None
        except hvac.exceptions.VaultDown:
            raise self._gone("the Vault is sealed", place) from None
        except hvac.exceptions.VaultError as error:
            raise Unavailable(f"Vault says: {_words(error)}", where=_where(place)) from None
        except requests.RequestException as error:
            raise self._gone(f"no answer of the Vault ({type(error).__name__})", place) from None
        try:
            found = answer["data"]
            version, fields = int(found["metadata"]["version"]), dict(found["data"])
        except (KeyError, TypeError, ValueError):
            raise Unavailable("the Vault's answer cannot be read", where=_where(place)) from None
        value = fields.get(place.field)
        text = value.encode() if isinstance(value, str) else b""
        if not text or len(text) > MOST:
            raise Corrupt(f"its field {place.field} is not there, or no text of 1 to {MOST} bytes", where=_where(place))
        return version, text

    def _gone(self, why: str, place: VaultPlace) -> Unavailable:
        self._away = (time.monotonic() + AWAY, why)
        return Unavailable(why, where=_where(place))

    def _login(self, hvac: Any, requests: Any) -> Any:
        settings, session = self._settings, requests.Session()
        session.trust_env = False  # neither proxies nor passwords of the account: a token is for one host
        session.verify = str(settings.vault_ca) if settings.vault_ca is not None else True
        client = hvac.Client(
            url=settings.vault,
            token="",
            verify=session.verify,
            timeout=TIMEOUT,
            allow_redirects=False,
            session=session,
            namespace=settings.vault_namespace or None,
        )
        if settings.vault_token is not None:
            client.token = _private(settings.vault_token)
        elif settings.vault_secret_id is not None:
            client.auth.approle.login(settings.vault_role, _private(settings.vault_secret_id))
        return client


class _Expired(Exception):
    """Vault does not believe us."""


def _private(path: Path) -> str:
    """A credential in a file that only its owner reads."""
    try:
        if path.stat().st_mode & 0o077:
            raise Unavailable("others than its owner may read the file", where=str(path), hint=f"chmod 600 {path}")
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"the file cannot be read ({type(error).__name__})", where=str(path)) from None


def _where(place: VaultPlace) -> str:
    return f"vault {place.mount}/{place.path}"


def _words(error: Exception) -> str:
    return "".join(sign for sign in redact(str(error)) if sign.isprintable())[:200] or type(error).__name__
