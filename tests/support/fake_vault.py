"""A Vault that behaves as real ones do, badly when told to: sealed, refusing, slow, gone, sending callers elsewhere.

``python -m support.fake_vault PATH FIELD=VALUE`` is one that keeps this, and prints its address.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Behaviour = Literal["good", "sealed", "forbidden", "slow", "elsewhere", "rubbish"]


class FakeVault:
    """Key-value store, version 2, of one token and one AppRole."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = "good"
        self.token = "vault-token-1"
        self.role, self.secret_id = "role-1", "secret-id-1"
        self.logins = 0
        self.kept: dict[str, list[dict[str, str]]] = {}
        self.asked: list[str] = []
        self.release = threading.Event()
        """Set: who waits in a slow Vault is let go."""
        self.url = ""

    def put(self, path: str, **fields: str) -> None:
        self.kept.setdefault(path, []).append(fields)

    def answer(self, method: str, path: str, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if self.behaviour == "slow":
            self.release.wait(60)
        if self.behaviour == "sealed":
            return 503, {"errors": ["Vault is sealed"]}
        if self.behaviour == "elsewhere":
            return 307, {}
        if self.behaviour == "rubbish":
            return 200, {"data": None}
        if path == "/v1/auth/approle/login" and method == "POST":
            if (body.get("role_id"), body.get("secret_id")) != (self.role, self.secret_id):
                return 400, {"errors": ["invalid role or secret ID"]}
            self.logins += 1
            self.token = f"vault-token-{self.logins + 1}"
            return 200, {"auth": {"client_token": self.token}}
        if self.behaviour == "forbidden" or token != self.token:
            return 403, {"errors": ["1 error occurred:\n\t* permission denied\n\n"]}
        versions = self.kept.get(path.removeprefix("/v1/secret/data/"), [])
        if not versions:
            return 404, {"errors": []}
        return 200, {"data": {"data": versions[-1], "metadata": {"version": len(versions)}}}


@contextlib.contextmanager
def fake_vault() -> Iterator[FakeVault]:
    """One that listens on the loopback."""
    vault = FakeVault()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size) or b"{}")
            token = self.headers.get("X-Vault-Token") or ""
            status, told = vault.answer(self.command, self.path.partition("?")[0], token, body)
            data = json.dumps(told).encode()
            with contextlib.suppress(OSError):
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", "http://127.0.0.2:1/v1/elsewhere")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        do_GET = do_POST = do_PUT = _do  # noqa: N815 - as the library names them

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    vault.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield vault
    finally:
        vault.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    with fake_vault() as running:
        field, _, value = sys.argv[2].partition("=")
        running.put(sys.argv[1], **{field: value})
        print(running.url, flush=True)
        threading.Event().wait()
