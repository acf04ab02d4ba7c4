"""The client: typed errors, what is tried again and what is not, pages, event streams, credentials."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from fake_server import FakeServer, event
from hypothesis import given
from hypothesis import strategies as st

from strata.cli import client as client_module
from strata.cli.client import Client, Event, problem, query, read_events
from strata.cli.transport import Credentials, Endpoint, ServiceAway, read_token
from strata.cli.words import segment
from strata.core.errors import BadRequest, Conflict, NotFound, OutcomeUnknown, StrataError, Unavailable


@pytest.fixture
def client(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(client_module, "_PAUSE", 0.001)
    client = Client(Endpoint(server.url), Credentials(), timeout=120.0)
    yield client
    client.close()


def test_one_connection_serves_many_calls(server: FakeServer, client: Client) -> None:
    for _ in range(3):
        client.get("/v1/health")
    assert len(server.requests) == 3
    assert client._connection is not None


def test_a_read_is_tried_again_when_the_connection_drops(server: FakeServer, client: Client) -> None:
    server.drop_next(2)
    assert client.get("/v1/health") == {"alive": True}
    assert len(server.requests) == 3


def test_a_read_is_given_up_after_three_tries(server: FakeServer, client: Client) -> None:
    server.drop_next(3)
    with pytest.raises(ServiceAway, match="no answer"):
        client.get("/v1/health")
    assert len(server.requests) == 3


def test_a_read_waits_for_a_service_that_is_busy(server: FakeServer, client: Client) -> None:
    server.refuse_next(503, "the store is away", title="Unavailable")
    assert client.get("/v1/health") == {"alive": True}


def test_a_node_is_found_by_a_name_that_lacks_zeros_and_is_asked_for_only_once(
    server: FakeServer, client: Client
) -> None:
    server.add_node("n0007")
    for _ in range(2):
        assert client.get("/v1/nodes/n7")["name"] == "n0007"
    assert [path for _, path, _ in server.requests] == [
        "/v1/nodes/n7",
        "/v1/nodes?select=n7&folded=true",
        "/v1/nodes/n0007",
        "/v1/nodes/n0007",
    ]


@pytest.mark.parametrize("name", ["n9", "nowhere", "%40group"])
def test_a_node_that_nobody_has_is_refused_with_the_first_answer(server: FakeServer, client: Client, name: str) -> None:
    server.add_node("n0007")
    with pytest.raises(NotFound, match="no such node"):
        client.get(f"/v1/nodes/{name}")


def test_what_replaces_or_deletes_a_node_takes_its_whole_name(server: FakeServer, client: Client) -> None:
    server.add_node("n0007")
    with pytest.raises(NotFound):
        client.request("DELETE", "/v1/nodes/n7")
    assert "n0007" in server.nodes


def test_a_write_whose_answer_is_lost_is_not_repeated(server: FakeServer, client: Client) -> None:
    server.drop_next()
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        client.request("POST", "/v1/apply", body={"documents": [], "prune": False, "dry_run": False})
    assert len(server.requests) == 1


def test_a_write_to_a_busy_service_is_not_repeated(server: FakeServer, client: Client) -> None:
    server.refuse_next(503, "the store is away", title="Unavailable")
    with pytest.raises(Unavailable, match="the store is away"):
        client.request("PUT", "/v1/config/log-level", body={"level": "info"})
    assert len(server.requests) == 1


def test_a_write_on_a_connection_that_was_closed_while_idle_is_sent_anew(server: FakeServer, client: Client) -> None:
    closed = threading.Event()

    def answer_and_hang_up(handler: BaseHTTPRequestHandler) -> bool:
        handler.send_response(204)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True
        closed.set()
        return True

    server.faults.append(answer_and_hang_up)
    client.get("/v1/health")
    assert closed.wait(120)
    assert client.request("PUT", "/v1/config/log-level", body={"level": "debug"}).body == {"level": "debug"}


def test_pages_are_followed_to_the_end(server: FakeServer, client: Client) -> None:
    server.page_size = 3
    for number in range(8):
        server.add_node(f"n{number}")
    assert [item["name"] for item in client.pages("/v1/nodes")] == [f"n{number}" for number in range(8)]
    assert len(server.requests) == 3


def test_pages_stop_at_the_limit(server: FakeServer, client: Client) -> None:
    server.page_size = 3
    for number in range(8):
        server.add_node(f"n{number}")
    assert len(list(client.pages("/v1/nodes", limit=4))) == 4
    assert len(server.requests) == 2


def test_a_page_in_between_may_be_short(server: FakeServer, client: Client) -> None:
    server.page_size = 1
    for number in range(3):
        server.add_node(f"n{number}")
    assert len(list(client.pages("/v1/nodes", limit=5))) == 3


def test_broken_json_is_an_error_that_says_so(server: FakeServer, client: Client) -> None:
    server.answer_next(200, "application/json", b"{half")
    with pytest.raises(StrataError, match="broken JSON"):
        client.get("/v1/status")


def test_an_error_page_of_a_proxy_is_still_a_typed_error(server: FakeServer, client: Client) -> None:
    server.answer_next(502, "text/html", b"<html>Bad gateway</html>")
    with pytest.raises(StrataError, match="502"):
        client.get("/v1/status")


def test_a_conflict_carries_the_current_revision() -> None:
    error = problem(409, {"title": "Conflict", "detail": "changed", "revision": 12}, where="x")
    assert isinstance(error, Conflict)
    assert error.revision == 12


def test_an_internal_error_names_the_request_to_look_for() -> None:
    error = problem(500, {"detail": "our fault", "request_id": "r-77"}, where="GET /v1/x")
    assert "r-77" in error.hint


@given(
    st.integers(400, 599),
    st.one_of(st.none(), st.text(), st.lists(st.integers()), st.dictionaries(st.text(), st.text())),
)
def test_any_failed_answer_becomes_an_error_that_says_something(status: int, body: object) -> None:
    error = problem(status, body, where="GET /v1/x")
    assert isinstance(error, StrataError)
    assert error.detail


def test_a_watch_goes_on_after_the_last_event_when_it_is_cut(server: FakeServer, client: Client) -> None:
    server.streams = [
        [event("node", {"name": "a"}, 5), b"id: 6\nevent: node\nda"],
        [b": still here\n\n", event("node", {"name": "b"}, 6)],
    ]
    stream = client.events("/v1/watch", {"select": "*"})
    assert [next(stream).data["name"], next(stream).data["name"]] == ["a", "b"]
    assert server.requests[1][2]["last-event-id"] == "5"


def test_a_watch_that_was_compacted_goes_on_from_now(server: FakeServer, client: Client) -> None:
    server.streams = [
        [event("node", {}, 5), b"event: compacted\ndata: {}\n\n"],
        [event("node", {}, 90)],
    ]
    stream = client.events("/v1/watch", {"since": 4})
    assert [next(stream).kind for _ in range(3)] == ["node", "compacted", "node"]
    _, path, headers = server.requests[1]
    assert "since" not in path
    assert "last-event-id" not in headers


def test_a_watch_waits_for_a_service_that_restarts(server: FakeServer, client: Client) -> None:
    server.streams = [[event("node", {}, 5)]]
    stream = client.events("/v1/watch")
    next(stream)
    server.refuse_next(503, "starting", title="Unavailable")
    server.streams = [[event("node", {}, 6)]]
    assert next(stream).id == "6"
    assert [request[2].get("last-event-id") for request in server.requests] == [None, "5", "5"]


def test_a_watch_gives_up_on_a_service_that_stays_away(
    server: FakeServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_RESUME_FOR", 0.0)
    server.streams = [[event("node", {}, 5)]]
    stream = client.events("/v1/watch")
    next(stream)
    with pytest.raises(Unavailable):
        next(stream)


def test_a_watch_that_is_refused_says_why(server: FakeServer, client: Client) -> None:
    server.refuse_next(400, "no such term", title="Bad request", where="select")
    with pytest.raises(BadRequest, match="no such term"):
        next(client.events("/v1/watch"))


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        ("path job", "job"),
        ("body percent, query limit", "percent, limit"),
        ("body data.set", "set"),
        ("body data", ""),
        ("body", "body"),
        ("bodyguard x", "bodyguard x"),
    ],
)
def test_an_error_names_the_field_and_not_the_part_of_the_request(
    server: FakeServer, client: Client, where: str, shown: str
) -> None:
    server.refuse_next(400, "is wrong", where=where)
    with pytest.raises(BadRequest) as caught:
        client.get("/v1/nodes")
    assert caught.value.where == shown


def test_an_event_of_many_lines_is_one_event() -> None:
    lines = [b": hello\n", b"retry: 2000\n", b"\n", b"id: 3\r\n", b'data: {"a":\r\n', b"data: 1}\r\n", b"\r\n"]
    assert list(read_events(iter(lines))) == [Event("3", "message", {"a": 1})]


def test_an_event_that_was_cut_off_is_not_delivered() -> None:
    assert list(read_events(iter([b"event: node\n", b'data: {"a": 1}\n']))) == []


@given(st.text(max_size=20))
def test_a_name_stays_one_part_of_the_path(name: str) -> None:
    try:
        part = segment(name)
    except BadRequest:
        assert name in ("", ".", "..") or "/" in name
    else:
        assert part
        assert "/" not in part
        assert "?" not in part


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a"])
def test_what_would_lead_to_another_path_is_no_name(name: str) -> None:
    with pytest.raises(BadRequest, match="is not a name"):
        segment(name)


def test_a_query_leaves_out_what_was_not_given() -> None:
    assert query({"a": None, "b": "", "c": True, "d": 0, "e": "x y&z"}) == "?c=true&d=0&e=x%20y%26z"
    assert query({}) == ""


@pytest.mark.parametrize(
    ("url", "path", "host", "port"),
    [
        ("unix:/run/x.sock", "/run/x.sock", "", 0),
        ("unix:///run/x.sock", "/run/x.sock", "", 0),
        ("https://head", "", "head", 8443),
        ("https://head:1/", "", "head", 1),
        ("https://[::1]:9", "", "::1", 9),
    ],
)
def test_addresses_of_the_service(url: str, path: str, host: str, port: int) -> None:
    endpoint = Endpoint(url)
    assert (endpoint.path, endpoint.host, endpoint.port) == (path, host, port)


@pytest.mark.parametrize(
    "url", ["", "http://head", "unix:run", "https://", "https://u:p@head", "https://h:x", "https://h/v1"]
)
def test_what_is_no_address_is_refused_with_what_would_be(url: str) -> None:
    with pytest.raises(BadRequest, match=r"unix:PATH|begin with"):
        Endpoint(url)


def test_a_socket_path_that_is_too_long_says_so() -> None:
    with pytest.raises(ServiceAway, match="107 bytes"):
        Endpoint("unix:/" + "x" * 200).connect(Credentials(), 1.0)


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("strata_1_canary\n")
    file.chmod(0o644)
    with pytest.raises(BadRequest, match="chmod 600") as caught:
        read_token(file)
    assert "canary" not in str(caught.value)
    file.chmod(0o600)
    assert read_token(file) == "strata_1_canary"


@pytest.mark.parametrize("content", ["", "two words", "line\nbreak", "naïve"])
def test_a_file_without_a_token_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(BadRequest) as caught:
        read_token(file)
    assert not content or content not in str(caught.value)


def test_credentials_do_not_show_their_token() -> None:
    assert "canary" not in repr(Credentials(token="strata_1_canary"))


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("nothing of the kind")
    with pytest.raises(BadRequest, match=r"ca\.crt"):
        Endpoint("https://127.0.0.1:1").connect(Credentials(ca=file), 1.0)


def test_a_server_that_does_not_speak_tls_is_away_not_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 no\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ServiceAway):
            Endpoint(f"https://127.0.0.1:{port}").connect(Credentials(), 5.0)
        thread.join()


def test_not_found_is_its_own_kind(server: FakeServer, client: Client) -> None:
    with pytest.raises(NotFound, match="no such node"):
        client.get("/v1/nodes/nobody")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_redirect_is_neither_followed_nor_taken_for_a_success(
    server: FakeServer, client: Client, method: str, tmp_path: Path
) -> None:
    with FakeServer(tmp_path / "elsewhere.sock") as elsewhere:

        def send_away(handler: BaseHTTPRequestHandler) -> bool:
            handler.send_response(307)
            handler.send_header("Location", elsewhere.url)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return True

        server.faults.append(send_away)
        with pytest.raises(StrataError, match=r"a redirect .307., which is not followed"):
            client.request(method, "/v1/health")
        assert elsewhere.requests == []
    assert len(server.requests) == 1
