"""How the command reaches the service: one HTTP connection over a unix socket or TLS, with credentials.

Standard library only, so that a command starts fast. Knows nothing of the API's paths or of what an answer means.
"""

from __future__ import annotations

import http.client
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from strata.client.wire import UnixConnection
from strata.core.errors import BadRequest, Unavailable

if TYPE_CHECKING:
    import ssl


class ServiceAway(Unavailable):
    """Nobody answers where the service should be. Nothing was asked."""

    title = "Service away"


class Credentials:
    """Who we are. A token never comes from the command line and never shows in a repr."""

    __slots__ = ("_token", "ca", "cert", "key")

    def __init__(
        self, *, token: str = "", cert: Path | None = None, key: Path | None = None, ca: Path | None = None
    ) -> None:
        self._token = token
        self.cert = cert
        self.key = key
        self.ca = ca

    def __repr__(self) -> str:
        return f"Credentials(token={'set' if self._token else 'none'}, cert={self.cert}, ca={self.ca})"

    def headers(self) -> dict[str, str]:
        """The header that carries the token, if there is one."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def tls(self) -> ssl.SSLContext:
        """A context that trusts ``ca`` (or the system's authorities) and shows ``cert``."""
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                # An encrypted key would make OpenSSL ask on the terminal; an empty password makes it an error instead.
                context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(str(path) for path in (self.ca, self.cert, self.key) if path is not None)
            raise BadRequest(
                f"cannot be used: {error.strerror or error}",
                where=named,
                hint="--ca, --cert and --key take PEM files, --key without a pass phrase",
            ) from None
        return context


def read_token(path: Path) -> str:
    """The token in a file that only its owner can read."""
    try:
        with path.open(encoding="ascii") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRGRP | stat.S_IROTH):
                raise BadRequest("others can read the token", where=str(path), hint=f"chmod 600 {path}")
            token = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise BadRequest(f"cannot read the token: {reason}", where=str(path)) from None
    return check_token(token, where=str(path))


def check_token(token: str, *, where: str) -> str:
    """The token, unless it cannot stand in a header; the error does not show it."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadRequest("holds no token", where=where, hint="strata auth token create makes one")
    return token


class Endpoint:
    """Where the service is: ``unix:PATH`` or ``https://HOST[:PORT]``."""

    __slots__ = ("host", "path", "port", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = ""
        self.host = ""
        self.port = 0
        if url.startswith("unix:"):
            self.path = url.removeprefix("unix:")
            if self.path.startswith("///"):  # unix:///run/x is the other way in which people write it
                self.path = self.path[2:]
            if not self.path.startswith("/"):
                raise BadRequest("the path of the socket must begin with '/'", where=url)
            return
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        plain = parts.path in ("", "/") and not parts.query and not parts.fragment and parts.username is None
        if parts.scheme != "https" or not parts.hostname or port == -1 or not plain:
            raise BadRequest("not an address of the service", where=url, hint="unix:PATH or https://HOST:PORT")
        self.host = parts.hostname
        self.port = port or 8443

    def connect(self, credentials: Credentials, timeout: float) -> http.client.HTTPConnection:
        """An open connection, or ``ServiceAway`` with how to start the service."""
        connection: http.client.HTTPConnection
        if self.path:
            connection = UnixConnection(self.path, timeout)
        else:
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=credentials.tls())
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise self._away(error) from None
        return connection

    def _away(self, error: OSError) -> ServiceAway:
        import ssl

        reason = error.strerror or str(error) or type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            return ServiceAway(
                f"the service's certificate is not trusted: {error.verify_message}",
                where=self.url,
                hint="--ca FILE names the authority; ca/ca.crt in the service's state directory",
            )
        if isinstance(error, PermissionError):
            return ServiceAway(
                "cannot reach the service: the socket belongs to another user",
                where=self.url,
                hint="run as that user, or use --url https://HOST:PORT with a token",
            )
        if self.path and len(os.fsencode(self.path)) > 107:
            reason = "the path of a unix socket has at most 107 bytes"
        return ServiceAway(
            f"cannot reach the service: {reason}",
            where=self.url,
            hint="is it running? 'strata up' starts a fleet to try, 'strata serve' the service; "
            "--url or STRATA_URL says where it is",
        )
