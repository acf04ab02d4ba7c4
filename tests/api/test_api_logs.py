"""Logs: one object a line, the request's id in each, no secret in any, a level that changes while running."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core import logs
from strata.core.errors import BadRequest
from strata.core.redact import HIDDEN, redact

CANARY = "s3cr3t-canary-9f2"


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("strata")
    before = (list(root.handlers), root.level, ours.level)
    root.handlers = []
    yield
    root.handlers, root.level, ours.level = before
    logging.disable(logging.NOTSET)
    for logger in (root, ours):
        logger.setLevel(logger.level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_json_line_with_what_extra_gave() -> None:
    stream = io.StringIO()
    logs.setup(form="json", stream=stream)
    logging.getLogger("strata.x").info("two\nlines %s", "here", extra={"node": "n1", "count": 3})
    (line,) = lines(stream)
    assert (line["level"], line["logger"], line["message"]) == ("info", "strata.x", "two\nlines here")
    assert (line["node"], line["count"]) == ("n1", 3)
    assert str(line["time"]).endswith("Z")


def test_extra_cannot_overwrite_what_the_record_says_of_itself() -> None:
    stream = io.StringIO()
    logs.setup(form="json", stream=stream)
    logging.getLogger("strata").warning("m", extra={"level": "info", "time": "never", "logger": "x"})
    (line,) = lines(stream)
    assert (line["level"], line["logger"]) == ("warning", "strata")


def test_text_keeps_a_line_a_line() -> None:
    stream = io.StringIO()
    logs.setup(form="text", stream=stream)
    logging.getLogger("strata").warning("a\nb\x1b[31m", extra={"node": "n\n1"})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


async def test_every_record_of_a_request_has_its_id(client: httpx.AsyncClient) -> None:
    stream = io.StringIO()
    logs.setup(form="json", level="debug", stream=stream)
    await client.get("/v1/nodes/n001", headers={"X-Request-Id": "r-1"})
    await client.post("/v1/holds", json={"select": "*", "reason": "x"}, headers={"X-Request-Id": "r-2"})
    ours = [line for line in lines(stream) if line["logger"] == "strata.api.front"]
    assert [(line["request_id"], line["message"]) for line in ours] == [
        ("r-1", "GET /v1/nodes/{name}"),
        ("r-2", "POST /v1/holds"),
    ]


async def test_at_the_usual_level_reads_are_logged_only_if_they_were_refused(client: httpx.AsyncClient) -> None:
    stream = io.StringIO()
    logs.setup(form="json", level="info", stream=stream)
    await client.get("/v1/nodes/n001")
    await client.get("/v1/nodes/n999")
    assert [line["status"] for line in lines(stream) if line["logger"] == "strata.api.front"] == [404]


def test_the_level_changes_while_running_and_libraries_stay_quiet() -> None:
    stream = io.StringIO()
    logs.setup(form="json", level="info", stream=stream)
    log, library = logging.getLogger("strata.y"), logging.getLogger("somelib")
    log.debug("1")
    library.info("2")
    logs.set_level("debug")
    log.debug("3")
    library.debug("4")
    logs.set_level("error")
    log.warning("5")
    assert [line["message"] for line in lines(stream)] == ["3", "4"]
    assert logs.get_level() == "error"
    with pytest.raises(BadRequest):
        logs.set_level("loud")


@pytest.mark.parametrize("level", logs.LEVELS)
def test_the_level_read_is_the_level_set(level: str) -> None:
    logs.set_level(level)
    assert logs.get_level() == level


@pytest.mark.parametrize(
    "text",
    [
        f"token strata_0123456789abcdef_{CANARY} was used",
        f"Authorization: Bearer {CANARY}",
        f"{{'authorization': 'Negotiate {CANARY}'}}",
        f"basic {CANARY}",
        f"password={CANARY}",
        f'{{"password": "{CANARY}"}}',
        f"the api_key: {CANARY}, and more",
        f"https://root:{CANARY}@10.0.0.1/redfish",
        f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY} and cut off",
        f"node n0001 showed 7.{CANARY:A<43}.n0001 twice",
        f'{{"auths": {{"registry.example": {{"auth": "{CANARY}"}}}}}}',
    ],
)
@pytest.mark.parametrize("form", ["json", "text"])
def test_no_secret_reaches_a_log_by_any_way(text: str, form: str) -> None:
    stream = io.StringIO()
    logs.setup(form=form, stream=stream)  # type: ignore[arg-type]
    log = logging.getLogger("strata")
    log.warning("%s", text)
    log.warning(text.replace("%", "%%"))
    log.warning("x", extra={"detail": text, "inner": {"list": [text]}})
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed")
    assert stream.getvalue().count(HIDDEN) >= 4
    assert CANARY not in stream.getvalue()


def test_whose_token_it_was_is_no_secret() -> None:
    who = "token:0123456789abcdef"
    assert redact({"who": who}) == {"who": who}
    assert redact(f"{who} may not") == f"{who} may not"
    assert redact(f"{who}0") == redact("token: 0123456789abcdef") == redact(f"{who}_{CANARY}") == HIDDEN


def test_what_is_named_like_a_secret_is_hidden_whatever_it_looks_like() -> None:
    shown = redact({"user": "root", "Password": "x", "nested": {"bmc_token": ["y"]}, "count": 3})
    assert shown == {"user": "root", "Password": HIDDEN, "nested": {"bmc_token": HIDDEN}, "count": 3}


def test_words_about_secrets_are_not_secrets() -> None:
    for text in ("the bearer token has expired", "basic functionality", "a token looks like strata_<id>_<secret>"):
        assert redact(text) == text


@given(st.text(alphabet="abcdefghijklmnop /n[0-9]-", max_size=60))
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert redact(text) == text
