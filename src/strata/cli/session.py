"""What every command shares: where the service is, who asks, and the terminal. Made once, by ``strata.cli.main``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli.output import Output

if TYPE_CHECKING:
    from strata.cli.client import Client

LONG = 3600.0
"""Seconds that may pass while the service reads everything that it has stored."""


class Session:
    """One run of the command. The client is made when it is first asked for."""

    def __init__(
        self,
        *,
        url: str = "",
        token_file: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        ca: Path | None = None,
        colour: bool = True,
        verbose: bool = False,
    ) -> None:
        self._url = url
        self._token_file = token_file
        self._cert = cert
        self._key = key
        self._ca = ca
        self.verbose = verbose
        self.out = Output(colour=colour)
        self._client: Client | None = None
        self._opened: list[Client] = []

    @property
    def state_dir(self) -> Path:
        """The state directory of a service on this machine."""
        from strata.fleet.settings import default_state_dir

        return default_state_dir()

    @property
    def url(self) -> str:
        """Where the service is: as told, or the socket in the state directory."""
        from strata.fleet.settings import admin_socket

        return self._url or f"unix:{admin_socket(self.state_dir)}"

    @property
    def local(self) -> bool:
        """Whether the service is the one of this machine's state directory, because nobody said otherwise."""
        return not self._url

    @property
    def client(self) -> Client:
        """The service."""
        if self._client is None:
            self._client = self.connect(self.url)
        return self._client

    def connect(self, url: str, *, timeout: float = 60.0, anonymous: bool = False) -> Client:
        """A client for ``url`` with this session's credentials (or as nobody), closed with the session."""
        from strata.cli.client import Client
        from strata.cli.transport import Credentials, Endpoint, check_token, read_token

        token = ""
        if anonymous:
            pass
        elif self._token_file is not None:
            token = read_token(self._token_file)
        elif os.environ.get("STRATA_TOKEN"):
            token = check_token(os.environ["STRATA_TOKEN"].strip(), where="STRATA_TOKEN")
        elif self._cert is None and not self.local:
            from strata.cli.login.kept import token_for

            token = token_for(url)
        credentials = Credentials(token=token, cert=self._cert, key=self._key, ca=self._ca)
        client = Client(Endpoint(url), credentials, timeout=timeout, trace=self._trace if self.verbose else None)
        self._opened.append(client)
        return client

    def close(self) -> None:
        """Let go of every connection."""
        for client in self._opened:
            client.close()

    def _trace(self, text: str) -> None:
        print(f"strata: {text}", file=sys.stderr)


pass_session = click.make_pass_decorator(Session)
"""Gives the command its ``Session`` as first argument."""
