"""How answers look: in a pipe, on a terminal, as JSON; and that stored text cannot drive the terminal."""

from __future__ import annotations

import io

import pytest
from cli_support import Terminal
from hypothesis import given
from hypothesis import strategies as st

from strata.cli.output import Column, Output, counts, state_colour
from strata.cli.progress import LINE_EVERY, Meter
from strata.core.printable import clean

COLUMNS = [Column("name"), Column("state", state_colour), Column("count", right=True)]
ROWS = [("n1", "ready", 5), ("n0000002", "faulted", 12345)]


def test_a_table_in_a_pipe_is_aligned_text() -> None:
    out = io.StringIO()
    Output(stdout=out).table(COLUMNS, ROWS)
    assert out.getvalue() == ("NAME      STATE    COUNT\nn1        ready        5\nn0000002  faulted  12345\n")


def test_an_empty_table_in_a_pipe_is_its_heading() -> None:
    out = io.StringIO()
    Output(stdout=out).table(COLUMNS, [])
    assert out.getvalue() == "NAME  STATE  COUNT\n"


def test_a_table_on_a_terminal_has_colours_by_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    Output(stdout=out).table(COLUMNS, ROWS)
    assert "\x1b[31mfaulted\x1b[0m" in out.getvalue()
    assert "\x1b[32mready  \x1b[0m" in out.getvalue()


def test_without_colours_a_terminal_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()
    plain = Output(stdout=out, colour=False)
    plain.table(COLUMNS, ROWS)
    plain.line("x", colour="red")
    plain.fields([("state", "faulted")])
    assert "\x1b[3" not in out.getvalue()


def test_a_table_on_a_terminal_does_not_read_markup() -> None:
    out = Terminal()
    Output(stdout=out, colour=False).table([Column("a")], [("[red]x[/red]",)])
    assert "[red]x[/red]" in out.getvalue()


def test_a_huge_table_on_a_terminal_is_printed_plainly() -> None:
    out = Terminal()
    Output(stdout=out).table([Column("name")], [(f"n{number}",) for number in range(2000)])
    assert out.getvalue().splitlines()[:2] == ["NAME", "n0"]


@given(st.text())
def test_no_control_character_gets_through(text: str) -> None:
    shown = clean(text)
    assert all(character.isprintable() or ord(character) >= 0xA0 for character in shown)
    assert "\x1b" not in shown
    assert len(shown.splitlines()) <= 1


def test_a_table_never_holds_a_control_character() -> None:
    out = io.StringIO()
    Output(stdout=out).table([Column("a")], [("\x1b]0;owned\x07\r\n",)])
    assert out.getvalue() == "A\n\\x1b]0;owned\\x07\\r\\n\n"


def test_json_is_plain_ascii() -> None:
    out = io.StringIO()
    Output(stdout=out).json({"a": "\x1b\u202e"})
    assert out.getvalue().isascii()
    assert "\x1b" not in out.getvalue()


def test_fields_leave_out_what_is_empty() -> None:
    out = io.StringIO()
    Output(stdout=out).fields([("name", "n1"), ("fault", ""), ("nid", None), ("location", "x1")])
    assert out.getvalue() == "name      n1\nlocation  x1\n"


def test_counts_read_from_good_to_bad() -> None:
    assert counts({"faulted": 1, "ready": 200, "waiting": 0, "odd": 2}) == "200 ready, 1 faulted, 2 odd"
    assert counts({}) == "no nodes"


def test_progress_in_a_pipe_is_a_line_now_and_then_and_the_last_one() -> None:
    err = io.StringIO()
    now = 0.0
    with Meter(Output(stderr=err), "work", clock=lambda: now) as meter:
        meter.update(0, 10)
        meter.update(1, 10)
        now += LINE_EVERY
        meter.update(2, 10, "1 failed")
        meter.update(10, 10)
    assert err.getvalue().splitlines() == ["work: 0/10", "work: 2/10 1 failed", "work: 10/10"]


def test_progress_that_does_not_change_is_not_repeated() -> None:
    err = io.StringIO()
    now = 0.0
    with Meter(Output(stderr=err), "work", clock=lambda: now) as meter:
        for _ in range(5):
            meter.update(3, 10)
            now += LINE_EVERY
    assert err.getvalue() == "work: 3/10\n"


def test_progress_on_a_terminal_is_a_bar() -> None:
    err = Terminal()
    with Meter(Output(stderr=err, colour=False), "work [b]") as meter:
        meter.update(5, 10, "[red]half")
    assert "work [b]" in err.getvalue()
    assert "5/10 [red]half" in err.getvalue()


def test_progress_of_a_few_steps_is_a_line_for_each_and_needs_no_total() -> None:
    err = io.StringIO()
    with Meter(Output(stderr=err), "work", every=0) as meter:
        for words in ("downloading", "unpacking", "unpacking", "done"):
            meter.update(0, 0, words)
    assert err.getvalue().splitlines() == ["work: downloading", "work: unpacking", "work: done"]


def test_progress_of_nothing_shows_nothing() -> None:
    for err in (io.StringIO(), Terminal()):
        with Meter(Output(stderr=err), "work"):
            pass
        assert err.getvalue() == ""
