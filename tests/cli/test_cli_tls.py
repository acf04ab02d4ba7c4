"""The client over TLS: whom it trusts, what it shows of itself."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_support import Run

from strata.fleet.access.authority import Authority


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        connection: Any = self.connection
        self.server.shown.append(connection.getpeercert())
        body = b'{"level": "info"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


class _Server(HTTPServer):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.shown: list[dict[str, Any]] = []
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A handshake that fails is what some tests want."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority.open(tmp_path / "ca")
    authority.renew_server(["127.0.0.1"])
    return authority


@pytest.fixture
def front(authority: Authority) -> Iterator[_Server]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.certificate_path)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(*authority.server_paths)
    server = _Server(context)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url(front: _Server) -> str:
    return f"https://127.0.0.1:{front.server_port}"


def test_a_service_of_a_known_authority_is_trusted(run: Run, url: str, front: _Server, authority: Authority) -> None:
    result = run("--url", url, "--ca", authority.certificate_path, "log-level")
    assert (result.code, result.out) == (0, "info\n")
    assert len(front.shown) == 1
    assert not front.shown[0]


def test_a_client_certificate_is_shown(
    run: Run, url: str, front: _Server, authority: Authority, tmp_path: Path
) -> None:
    issued = authority.issue("alice", "viewer", (), 3600)
    (tmp_path / "alice.crt").write_bytes(issued.certificate)
    (tmp_path / "alice.key").write_bytes(issued.key)
    options = ["--ca", authority.certificate_path, "--cert", tmp_path / "alice.crt", "--key", tmp_path / "alice.key"]
    assert run("--url", url, *options, "log-level").code == 0
    assert (("commonName", "alice"),) in front.shown[0]["subject"]


def test_an_unknown_authority_is_not_trusted_and_the_token_stays_home(
    run: Run, url: str, front: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_TOKEN", "strata_1_canary")
    result = run("--url", url, "log-level")
    assert result.code == 6
    assert "not trusted" in result.err
    assert "--ca" in result.err
    assert front.shown == []


def test_a_certificate_for_another_name_is_not_trusted(run: Run, url: str, authority: Authority) -> None:
    result = run("--url", url.replace("127.0.0.1", "localhost"), "--ca", authority.certificate_path, "log-level")
    assert result.code == 6
    assert "not trusted" in result.err


def test_a_key_of_another_certificate_is_named(run: Run, url: str, authority: Authority, tmp_path: Path) -> None:
    certificate, _ = authority.server_paths
    (tmp_path / "other.key").write_bytes(authority.issue("bob", "viewer", (), 3600).key)
    result = run("--url", url, "--cert", certificate, "--key", tmp_path / "other.key", "log-level")
    assert result.code == 1
    assert "other.key" in result.err
