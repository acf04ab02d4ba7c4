"""Whatever goes wrong, the answer is a problem that says what, where and what to do, and betrays nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from api_support import Service, open_service

from strata.api.services import Limits
from strata.core.errors import (
    Compacted,
    Conflict,
    Corrupt,
    DeviceError,
    OutcomeUnknown,
    Refused,
    StrataError,
    Unavailable,
)


def problem(answer: httpx.Response) -> dict[str, object]:
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, object] = answer.json()
    assert {"type", "title", "status", "detail", "where", "hint", "request_id"} <= set(body)
    assert body["status"] == answer.status_code
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/", None, {}, 404),
        ("GET", "/v1/nowhere", None, {}, 404),
        ("GET", "/v1/nodes/n999", None, {}, 404),
        ("DELETE", "/v1/nodes", None, {}, 405),
        ("OPTIONS", "/v1/nodes", None, {}, 405),
        ("HEAD", "/v1/watch", None, {}, 405),
        ("POST", "/v1/nodes", b"{", JSON, 400),
        ("POST", "/v1/nodes", b"", JSON, 400),
        ("POST", "/v1/nodes", b"null", JSON, 400),
        ("POST", "/v1/nodes", b"[]", JSON, 400),
        ("POST", "/v1/nodes", b'{"nodes":[]}', JSON, 400),
        ("POST", "/v1/nodes", b'{"nodes":[{"name":"\\ud800"}]}', JSON, 400),
        ("POST", "/v1/nodes", b'{"nodes":[{"name":"a\\u0000"}]}', JSON, 400),
        ("POST", "/v1/nodes", b'{"nodes":[{"name":"a","nid":1e400}]}', JSON, 400),
        ("POST", "/v1/nodes", b'{"nodes":[{"name":"a","nid":99999999999999999999}]}', JSON, 400),
        ("POST", "/v1/nodes", b"\xff\xfe", JSON, 400),
        ("POST", "/v1/nodes", b"[" * 100_000, JSON, 400),
        ("POST", "/v1/nodes", b"{}", {"Content-Type": "application/xml"}, 415),
        ("POST", "/v1/nodes", b"{}", {}, 415),
        ("GET", "/v1/nodes?limit=0", None, {}, 400),
        ("GET", "/v1/nodes?limit=10001", None, {}, 400),
        ("GET", "/v1/nodes?limit=999999999999999999999999", None, {}, 400),
        ("GET", "/v1/nodes?limit=ten", None, {}, 400),
        ("GET", "/v1/nodes?cursor=AAAA", None, {}, 400),
        ("GET", "/v1/nodes?cursor=%00%ff", None, {}, 400),
        ("GET", "/v1/nodes?select=%00", None, {}, 400),
        ("GET", "/v1/nodes?select=", None, {}, 400),
        ("GET", "/v1/nodes?state=asleep", None, {}, 400),
        ("GET", "/v1/nodes?sort=secret", None, {}, 400),
        ("GET", "/v1/nodes?sate=ready", None, {}, 400),
        ("GET", "/v1/nodes/n001?pretty=1", None, {}, 400),
        ("GET", "/v1/nodes/n%00", None, {}, 400),
        ("GET", "/v1/groups/%ff", None, {}, 400),
        ("GET", "/v1/nodes/n001/at", None, {}, 400),
        ("GET", "/v1/nodes/n001/at?time=nan", None, {}, 400),
        ("GET", "/v1/nodes/n001/history?since=inf", None, {}, 400),
        ("GET", "/v1/watch?since=-1", None, {}, 400),
        ("GET", "/v1/watch", None, {"Last-Event-ID": "soon"}, 400),
        ("GET", "/v1/watch", None, {"Last-Event-ID": "0" * 5000}, 400),
        ("DELETE", "/v1/auth/tokens/0000000000000000", None, {}, 404),
        ("DELETE", "/v1/freezes/nothing", None, {}, 400),
    ],
)
async def test_bad_input_gets_a_problem(
    client: httpx.AsyncClient, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int
) -> None:
    answer = await client.request(method, path, content=body, headers=headers)
    assert answer.status_code == status, answer.text
    if method != "HEAD":
        problem(answer)


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"),
    [
        ("GET", "/v1/nodes?limit=0", None, "must be at least 1"),
        ("GET", "/v1/nodes?limit=10001", None, "must be at most 10000"),
        ("POST", "/v1/retries", b'{"select":""}', "must not be empty"),
        ("GET", "/v1/groups/a%20b", None, "a name is 1 to 63 letters"),
        ("DELETE", "/v1/auth/tokens/12", None, "an id is 16 of 0-9 and a-f"),
        ("DELETE", "/v1/freezes/nothing", None, "must be fleet, group:NAME or node:NAME, such as group:compute"),
        (
            "PUT",
            "/v1/personalities/a",
            b'{"members":[{"name":"a","release":"x:1","mode":"rom"}]}',
            "'rom' is none of: demand, ram",
        ),
        ("POST", "/v1/retries", b'{"selekt":"n1"}', "unknown key 'selekt'; accepted are select"),
        ("GET", "/v1/power/history?metric=volts", None, "'volts' is none of: accel-power, cap, energy"),
    ],
)
async def test_what_is_out_of_bounds_is_told_in_words(
    client: httpx.AsyncClient, method: str, path: str, body: bytes | None, detail: str
) -> None:
    answer = await client.request(method, path, content=body, headers=JSON if body else {})
    assert str(problem(answer)["detail"]).startswith(detail)


async def test_a_method_that_a_path_does_not_take_is_told_which_it_does(client: httpx.AsyncClient) -> None:
    for method in ("OPTIONS", "DELETE"):
        allowed = (await client.request(method, "/v1/nodes")).headers["allow"]
        assert {"GET", "POST"} <= set(allowed.replace(" ", "").split(","))


@pytest.mark.slow
async def test_a_body_that_is_too_large_is_refused_whether_announced_or_not(tmp_path: Path) -> None:
    async with open_service(tmp_path, limits=Limits(body=1000)) as service, service.client() as client:
        announced = await client.post("/v1/nodes", content=b" " * 1001, headers=JSON)

        async def drip() -> AsyncIterator[bytes]:
            for _ in range(11):
                yield b" " * 100

        streamed = await client.post("/v1/nodes", content=drip(), headers=JSON)
    for answer in (announced, streamed):
        assert answer.status_code == 413
        problem(answer)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Conflict("c", revision=7), 409),
        (Refused("r", by="guard"), 409),
        (Compacted("c"), 410),
        (Unavailable("u"), 503),
        (Corrupt("c"), 503),
        (DeviceError("d"), 502),
        (OutcomeUnknown("o"), 504),
    ],
)
@pytest.mark.parametrize("path", ["/v1/nodes/n001", "/v1/nodes/n001/why"])
async def test_our_own_errors_keep_their_status(
    service: Service, client: httpx.AsyncClient, error: StrataError, status: int, path: str
) -> None:
    service.fail_on_nodes(error)
    answer = await client.get(path)
    assert answer.status_code == status
    assert problem(answer)["detail"] == error.detail


@pytest.mark.parametrize("path", ["/v1/nodes/n001", "/v1/nodes/n001/why"])
async def test_an_unexpected_error_is_logged_and_not_shown(
    service: Service, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    service.fail_on_nodes(RuntimeError("the password is hunter2"))
    with caplog.at_level(logging.ERROR):
        answer = await client.get(path)
    assert answer.status_code == 500
    problem(answer)
    assert "hunter2" not in answer.text
    assert any(record.exc_info for record in caplog.records)


async def test_what_a_client_wrote_comes_back_short_printable_and_escaped(client: httpx.AsyncClient) -> None:
    page = (await client.get("/v1/nodes", params={"<script>alert(1)</script>" + "x" * 5000: "1"})).json()
    assert len(json.dumps(page)) < 1000
    terminal = await client.get("/v1/nodes", params={"select": "n001,\u202e\u200b"})
    assert all(char.isprintable() for char in json.loads(terminal.text)["where"])


async def test_a_token_in_the_wrong_place_is_not_echoed(client: httpx.AsyncClient) -> None:
    token = "strata_0123456789abcdef_" + "s" * 43
    answer = await client.get("/v1/nodes", params={"fields": "name", token: "1"})
    assert answer.status_code == 400
    assert "s" * 43 not in answer.text


async def test_a_request_id_is_taken_over_or_made(client: httpx.AsyncClient) -> None:
    for path in ("/v1/health", "/v1/nodes/n001", "/v1/nodes", "/v1/nowhere"):
        given = await client.get(path, headers={"X-Request-Id": "abc-1.2_3"})
        made = await client.get(path, headers={"X-Request-Id": "a b\t<x>"})
        assert given.headers["x-request-id"] == "abc-1.2_3"
        assert len(made.headers["x-request-id"]) == 16


@pytest.mark.parametrize("path", ["/v1/health", "/v1/nodes/n001", "/v1/nodes", "/v1/nowhere", "/v1/auth/whoami"])
async def test_every_answer_has_security_headers_once(client: httpx.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers
    for name in (
        "x-content-type-options",
        "x-frame-options",
        "content-security-policy",
        "cache-control",
        "x-request-id",
    ):
        assert len(headers.get_list(name)) == 1, name
    assert "no-store" in headers["cache-control"] or "no-cache" in headers["cache-control"]


async def test_a_websocket_is_refused(service: Service) -> None:
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await service.app()({"type": "websocket", "path": "/v1/watch", "headers": []}, None, send)
    assert sent[0]["type"] == "websocket.close"
