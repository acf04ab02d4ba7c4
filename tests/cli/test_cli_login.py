"""``strata login``: by a provider's device flow, kept for the next command, renewed, forgotten."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from cli_support import Run
from fake_server import FakeServer

from strata.cli.login import provider as flow
from strata.cli.login.kept import Login, keep, logins_file, token_for
from strata.cli.login.provider import Given, begin, discover, renew, wait
from strata.core.errors import BadRequest, DeviceError, Unauthenticated, Unavailable


class FakeProvider(ThreadingHTTPServer):
    """A provider with the device flow. Its answers to a waiting client come from ``answers``, then it agrees."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.answers: list[str] = []
        self.given = 0
        self.expires_in = 3600
        self.renews = True
        self.asked: list[dict[str, str]] = []
        self.offers_device = True

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if path == "/.well-known/openid-configuration":
            said = {"issuer": self.issuer, "token_endpoint": f"{self.issuer}/token"}
            device = {"device_authorization_endpoint": f"{self.issuer}/device"} if self.offers_device else {}
            return 200, {**said, **device}
        self.asked.append(form)
        if path == "/device":
            return 200, {"device_code": "d-1", "user_code": "WDJB-MJHT", "verification_uri": f"{self.issuer}/enter",
                         "expires_in": 600, "interval": 0}  # fmt: skip
        if form.get("grant_type") == "refresh_token" and not (self.renews and form.get("refresh_token") == "r-1"):
            return 400, {"error": "invalid_grant"}
        if form.get("grant_type") == flow.DEVICE and self.answers:
            return 400, {"error": self.answers.pop(0)}
        self.given += 1
        return 200, {"id_token": f"a.b.{self.given}", "access_token": "opaque", "refresh_token": "r-1",
                     "expires_in": self.expires_in}  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    server: FakeProvider

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._say({})

    def do_POST(self) -> None:
        self._say(dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode())))

    def _say(self, form: dict[str, str]) -> None:
        status, said = self.server.answer(self.path, form)
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeProvider]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("no_proxy", "*")
    with FakeProvider() as fake:
        thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield fake
        fake.shutdown()
        thread.join()


@pytest.mark.server
def test_a_login_is_kept_for_the_next_command_and_renewed_before_it_ends(
    provider: FakeProvider, server: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.login_way = {"issuer": provider.issuer, "client": "strata"}
    provider.answers = ["authorization_pending", "authorization_pending"]
    url = ("--url", server.url)
    done = run(*url, "login")
    assert done.code == 0, done.err
    assert f"Open {provider.issuer}/enter and enter the code WDJB-MJHT" in done.out
    assert logins_file().stat().st_mode & 0o777 == stat.S_IRUSR | stat.S_IWUSR
    assert token_for(server.url) == "a.b.1"
    assert "a.b.1" not in done.out + done.err
    assert run(*url, "auth", "whoami").code == 0

    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3590)
    assert token_for(server.url) == "a.b.2", "renewed"
    assert token_for(server.url) == "a.b.2", "and kept"
    provider.renews = False
    monkeypatch.setattr(time, "time", lambda: now + 36_000)
    ended = run(*url, "auth", "whoami")
    assert ended.code != 0
    assert "strata login" in ended.err
    assert run(*url, "logout").out == "Forgotten\n"
    assert token_for(server.url) == ""
    assert run(*url, "logout").out == "There was no login\n"


@pytest.mark.server
def test_a_provider_that_says_slow_down_is_asked_less_often_and_a_refusal_is_told(provider: FakeProvider) -> None:
    found = discover(provider.issuer)
    device = begin(found, "strata", 0.0)
    slept: list[float] = []
    provider.answers = ["slow_down", "authorization_pending", "slow_down"]
    assert wait(found, "strata", device, clock=lambda: 0.0, sleep=slept.append).token == "a.b.1"
    assert slept == [0.0, 5.0, 5.0, 10.0]
    for words, why in (("access_denied", "refused"), ("expired_token", "in time"), ("invalid_grant", "in time")):
        provider.answers = [words]
        with pytest.raises(Unauthenticated, match=why):
            wait(found, "strata", device, clock=lambda: 0.0, sleep=slept.append)
    with pytest.raises(Unauthenticated, match="in time"):
        wait(found, "strata", device, clock=lambda: device.until, sleep=slept.append)


@pytest.mark.server
def test_a_provider_that_is_no_provider_is_refused_in_words(provider: FakeProvider) -> None:
    provider.offers_device = False
    with pytest.raises(BadRequest, match="does not offer logins by device"):
        begin(discover(provider.issuer), "strata", 0.0)
    with pytest.raises(DeviceError, match="calls itself"):
        discover(f"{provider.issuer}/")
    with pytest.raises(BadRequest, match="not https"):
        discover("http://login.example.org")
    with pytest.raises(Unavailable, match="no answer"):
        discover("http://127.0.0.1:1")
    provider.renews = False
    assert renew(f"{provider.issuer}/token", "strata", "r-1", 0.0) is None


def test_nothing_of_a_login_shows_and_others_cannot_read_it(provider: FakeProvider) -> None:
    login = Login(provider.issuer, "strata", f"{provider.issuer}/token", Given("a.b.secret", "r-secret", 9e9))
    assert "secret" not in repr(login)
    keep("https://strata:8443", login)
    logins_file().chmod(0o640)
    with pytest.raises(BadRequest, match="others can read"):
        token_for("https://strata:8443")
    logins_file().chmod(0o600)
    assert token_for("https://strata:8443") == "a.b.secret"
    assert token_for("https://other:8443") == ""
    logins_file().write_text("[", encoding="utf-8")
    with pytest.raises(BadRequest, match="cannot be read"):
        token_for("https://strata:8443")


def test_the_local_socket_needs_no_login(run: Run) -> None:
    for command in ("login", "logout"):
        said = run(command)
        assert said.code != 0
        assert "needs no login" in said.err
