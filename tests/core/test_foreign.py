"""What others send is read leniently: one wrong byte spoils itself, and not all around it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.input.foreign import mended, one_line, read_json


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a": "Xeon\xae", "b": 1}', {"a": "Xeon\ufffd", "b": 1}),
        (b'{"\xae": 1}', {"\ufffd": 1}),
        (rb'{"a": "\ud800"}', {"a": "\ufffd"}),
        (rb'{"a": "\udc00 \ud83d\ude00 \uD800x"}', {"a": "\ufffd \U0001f600 \ufffdx"}),
        (b'{"a": "two\nlines\x00\x1b"}', {"a": "two lines  "}),
        (b"\xef\xbb\xbf{}", {}),
        (b'{"a": NaN, "b": -Infinity, "c": 1e999}', {"a": None, "b": None, "c": None}),
        (b'{"a": "\x01", "b": 123456789012345678901234567890}', {"a": " ", "b": 1.2345678901234568e29}),
    ],
)
def test_flawed_json_is_read_and_its_flaw_is_told(data: bytes, value: object) -> None:
    found = read_json(data)
    assert found.value == value
    assert found.flaw


def test_sound_json_has_no_flaw() -> None:
    assert read_json('{"a": "Xeon® 😀"}'.encode()) == ({"a": "Xeon® 😀"}, "")


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>", b'{"a": ', b"[" * 100_000, b"\x01" + b"[" * 100_000, b"\xae"],
    ids=["nothing", "HTML", "cut short", "deep", "deep and flawed", "a byte"],
)
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        read_json(data)


@given(st.binary(max_size=40))
def test_whatever_a_text_in_json_holds_comes_out_fit_to_be_sent_on(data: bytes) -> None:
    inside = data.replace(b'"', b"").replace(b"\\", rb"\ud8")
    try:
        found = read_json(b'{"a": "' + inside + b'"}').value
    except ValueError:
        return  # an escape that is cut short is no JSON
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found)) == found


def test_mended_json_is_read_by_strict_readers() -> None:
    assert msgspec.json.decode(mended(b'{"a": "\xae"}')) == {"a": "\ufffd"}


def test_one_line_holds_nothing_that_drives_a_terminal_or_cannot_be_encoded() -> None:
    assert one_line("a\x1b[2J\nb\udcae\x9bc") == "a [2J b c"
    one_line("".join(map(chr, range(0x110000)))).encode()
