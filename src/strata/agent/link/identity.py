"""The node's key and certificate: made here, signed by the controller for a one-time token, renewed in time."""

from __future__ import annotations

import os
import ssl
import subprocess
import time

from ..boot import Boot, forget_token
from ..errors import AgentError, Unreachable
from ..files import load_json, save_json, write_private
from ..paths import Paths
from .http import post, tls_context


class Identity:
    """The node's certificate for this boot; the private key never leaves the node's memory."""

    def __init__(self, boot: Boot, paths: Paths) -> None:
        self._boot = boot
        self._paths = paths
        self._life = paths.run / "identity.json"
        self.expires = 0.0
        self._renew_at = 0.0
        kept = load_json(self._life)
        if isinstance(kept, dict) and paths.identity.exists():
            self._lives(float(kept["issued"]), float(kept["expires"]))

    @property
    def issued(self) -> bool:
        """Whether the node holds a certificate."""
        return self.expires > 0

    def context(self) -> ssl.SSLContext:
        """TLS as this node."""
        return tls_context(self._paths.authority, self._paths.identity)

    def redeem(self, url: str) -> None:
        """Exchange the boot's one-time token for a certificate."""
        request = self._request()
        anonymous = tls_context(self._paths.authority)
        self._take(post(url, "/agent/v1/redeem", {"token": self._boot.token, "csr": request}, anonymous))
        forget_token(self._paths)
        self._boot.token = ""

    def renew_if_due(self, url: str) -> bool:
        """Replace the certificate after two thirds of its life; a failure is tried again in a minute."""
        if time.time() < self._renew_at:
            return False
        self._renew_at = time.time() + 60
        self._take(post(url, "/agent/v1/renew", {"csr": self._request()}, self.context()))
        return True

    def _request(self) -> str:
        """A new key and a request for its certificate; the old identity stays in force until the answer is there."""
        command = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-keyout", str(self._paths.key), "-subj", f"/CN={self._boot.node}"]
        self._paths.run.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            done = subprocess.run(
                command, env={**os.environ, "OPENSSL_CONF": "/dev/null"}, capture_output=True, timeout=60, umask=0o077
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AgentError(f"no key could be made: {error}") from None
        if done.returncode:
            raise AgentError(f"no key could be made: {done.stderr.decode('utf-8', 'replace')[:300]}")
        return done.stdout.decode()

    def _take(self, reply: dict[str, object]) -> None:
        certificate, expires = reply.get("certificate"), reply.get("expires")
        if not isinstance(certificate, str) or not isinstance(expires, (int, float)):
            raise Unreachable("the controller's answer holds no certificate")
        now = time.time()
        save_json(self._life, {"issued": now, "expires": expires})
        write_private(self._paths.identity, self._paths.key.read_bytes() + certificate.encode())  # one file: one step
        self._paths.key.unlink()
        self._lives(now, float(expires))

    def _lives(self, issued: float, expires: float) -> None:
        self.expires = expires
        self._renew_at = issued + (expires - issued) * 2 / 3
