"""Selectors and assignments on one line are told apart."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.cli.options import Watts
from strata.cli.words import pairs, split, wanted


@pytest.mark.parametrize(
    ("words", "select", "assignments"),
    [
        (["n[1-4]", "power=on"], "n[1-4]", ["power=on"]),
        (["@a!@b", "label:rack=7", "image=v1|v2"], "@a!@b label:rack=7", ["image=v1|v2"]),
        (["fact:power=off"], "fact:power=off", []),
        (["power=on", "*"], "*", ["power=on"]),
        (["image=reg:5000/x=y"], "", ["image=reg:5000/x=y"]),
        ([], "", []),
    ],
)
def test_assignments_are_told_from_selectors(words: list[str], select: str, assignments: list[str]) -> None:
    assert split(words) == (select, assignments)


NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,10}", fullmatch=True)
VALUES = st.text(st.characters(codec="ascii", exclude_characters="|"), min_size=1)


@given(st.dictionaries(NAMES, st.lists(VALUES, min_size=1, max_size=3), max_size=4))
def test_what_is_wanted_reads_back(want: dict[str, list[str]]) -> None:
    texts = [f"{name}={'|'.join(values)}" for name, values in want.items()]
    assert split(texts) == ("", texts)
    assert wanted(texts) == want


@pytest.mark.parametrize("texts", [["power"], ["=on"], ["power="], ["power=on|"], ["power=on", "power=off"]])
def test_a_wrong_assignment_is_wrong_usage(texts: list[str]) -> None:
    with pytest.raises(click.UsageError):
        wanted(texts)


def test_pairs_name_the_option_that_was_wrong() -> None:
    assert pairs(["a=b=c"], option="--label") == {"a": "b=c"}
    with pytest.raises(click.UsageError, match="--label"):
        pairs(["a"], option="--label")


@pytest.mark.parametrize(("typed", "watts"), [("350", 350.0), ("350W", 350.0), ("1.5kW", 1500.0), (350.0, 350.0)])
def test_a_cap_is_typed_with_or_without_its_unit(typed: object, watts: float) -> None:
    assert Watts(1, 1e6, max_open=True).convert(typed, None, None) == watts


@pytest.mark.parametrize(
    ("typed", "said"), [("5A", "250W, 1.5kW"), ("nan", "250W, 1.5kW"), ("0W", "range"), ("1MW", "range")]
)
def test_a_cap_that_is_no_power_or_out_of_range_is_refused(typed: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        Watts(1, 1e6, max_open=True).convert(typed, None, None)
