"""A real OpenID Connect provider on loopback, which knows ``ada`` of the group ``hpc``."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

_RUN = """
import sys
from authlib.oauth2 import rfc6749
from oidc_provider_mock.__main__ import run
for grant in (rfc6749.AuthorizationCodeGrant, rfc6749.RefreshTokenGrant):
    grant.TOKEN_ENDPOINT_AUTH_METHODS = [*grant.TOKEN_ENDPOINT_AUTH_METHODS, "none"]
run(["--port", *sys.argv[1:]])
"""
"""With clients that have no secret, as sites' providers have them for browsers and command lines."""


@contextlib.contextmanager
def oidc_provider(port: int, *more: str) -> Iterator[str]:
    """Its address; it has a new key each time. ``more``: options of its command line."""
    process = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(port), *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://localhost:{port}"
    ada = json.dumps({"preferred_username": "ada", "groups": ["hpc"]}).encode()
    request = urllib.request.Request(f"{address}/users/ada", ada, {"Content-Type": "application/json"}, method="PUT")
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None, "the provider has ended"
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60):
                break
            assert time.monotonic() < deadline, "the provider does not answer"
            time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()
