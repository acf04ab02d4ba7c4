"""``strata console``: follow one, read one, search many, list them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli_support import Run
from fake_server import FakeServer


def line(number: int, text: str, source: str = "serial") -> dict[str, Any]:
    return {"id": number, "time": 1_700_000_000.0 + number, "source": source, "text": text}


def answer(server: FakeServer, body: object) -> None:
    server.answer_next(200, "application/json", json.dumps(body).encode())


def stream(server: FakeServer, *lines: dict[str, Any]) -> None:
    events = "".join(f"id: {item['id']}\nevent: line\ndata: {json.dumps(item)}\n\n" for item in lines)
    server.answer_next(200, "text/event-stream", events.encode())


@pytest.mark.slow
def test_following_shows_the_last_lines_and_goes_on_from_there(server: FakeServer, run: Run) -> None:
    answer(server, {"items": [line(7, "old"), line(8, "newer")]})
    stream(server, line(9, "live"))
    stream(server, line(10, "after a cut"))
    server.refuse_next(404, "no such node")
    result = run("console", "n1", "--lines", "2")
    assert [text.split("  ", 1)[1] for text in result.lines] == ["old", "newer", "live", "after a cut"]
    paths = [path for _, path, _ in server.requests]
    assert paths[:2] == ["/v1/nodes/n1/console?lines=2", "/v1/nodes/n1/console/follow?since=8"]
    assert [headers.get("last-event-id") for _, _, headers in server.requests[1:3]] == [None, "9"]


def test_no_lines_first_still_follows_without_a_gap(server: FakeServer, run: Run) -> None:
    answer(server, {"items": [line(8, "newer")]})
    stream(server, line(9, "live"))
    server.refuse_next(404, "no such node")
    result = run("hardware", "console", "n1", "-n", "0", "--json")
    assert [json.loads(text)["id"] for text in result.lines] == [9]
    assert server.requests[1][1].endswith("?since=8")


def test_reading_shows_where_a_line_came_from_and_obeys_nothing_in_it(server: FakeServer, run: Run) -> None:
    lines = [line(1, "plain"), line(2, "kernel: hi", "syslog"), line(3, "evil\x1b[2J", "netconsole")]
    answer(server, {"items": lines})
    result = run("console", "n1", "--no-follow")
    assert [text.split("  ", 1)[1] for text in result.lines] == [
        "plain", "[syslog] kernel: hi", "[netconsole] evil\\x1b[2J",
    ]  # fmt: skip
    answer(server, {"items": lines})
    assert run("console", "n1", "--no-follow", "--json").json == lines


def test_a_dump_is_shown_by_its_reference(server: FakeServer, run: Run) -> None:
    answer(server, {"items": [line(1, "Kernel panic")]})
    assert "Kernel panic" in run("console", "n1", "--dump", "console:n1:1-20").out
    assert server.requests[0][1] == "/v1/nodes/n1/console/dumps/1-20"


def test_a_search_prints_the_newest_last_and_says_when_there_is_more(server: FakeServer, run: Run) -> None:
    hits = [{"node": "n22", "line": line(5, "panic 2")}, {"node": "n1", "line": line(4, "panic 1")}]
    answer(server, {"items": hits, "whole": False})
    result = run("console", "--search", "panic", "@compute", "--regex", "--since", "@1000")
    assert [text.split() for text in result.lines] == [
        ["n1", *result.lines[0].split()[1:3], "panic", "1"],
        ["n22", *result.lines[1].split()[1:3], "panic", "2"],
    ]
    assert "there is more" in result.err
    query = server.requests[0][1]
    assert "text=panic" in query and "select=%40compute" in query and "regex=true" in query and "since=1000" in query


def test_consoles_are_listed(server: FakeServer, run: Run) -> None:
    item = {
        "node": "n1", "way": "ipmi", "connected": True, "trouble": "", "lines": 12, "bytes": 345, "last": None,
    }  # fmt: skip
    answer(server, {"items": [item]})
    assert run("console", "--list").lines[1].split() == ["n1", "ipmi", "yes", "12", "345", "-", "-"]
    answer(server, {"items": [item]})
    assert run("console", "--list", "@gpu", "--json").json == [item]


def test_following_takes_one_node(server: FakeServer, run: Run) -> None:
    for arguments in ((), ("n1", "n2")):
        result = run("console", *arguments)
        assert (result.code, "name one node" in result.err) == (2, True)
