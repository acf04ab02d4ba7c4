"""Nodesets: the language, its limits, folding; ClusterShell is the measure."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.core.errors import BadRequest, NotFound
from strata.core.nodeset import LONGEST, expand, fold
from support.work import counted, weighed

GROUPS = {"a": ["n1", "n2"], "b": ["n2", "n3"], "rack1": ["r1"], "rack2": ["r2"], "none": []}


def by_clustershell(text: str) -> set[str]:
    return set(NodeSet(text, resolver=RESOLVER_NOGROUP))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login-a", ["login-a"]),
        ("n[1-4,7]", ["n1", "n2", "n3", "n4", "n7"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[0-8/4]", ["n0", "n4", "n8"]),
        ("n[1-3]4", ["n14", "n24", "n34"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        (" n1 , n2 ", ["n1", "n2"]),
        ("@a", ["n1", "n2"]),
        ("@none", []),
        ("@rack[1-2]", ["r1", "r2"]),
        ("@a!@b", ["n1"]),
        ("@a&@b", ["n2"]),
        ("@a^@b", ["n1", "n3"]),
        ("n[1-9]!n[2-8],n5&n[1-5]", ["n1", "n5"]),
    ],
)
def test_the_language_means_what_an_administrator_expects(text: str, names: list[str]) -> None:
    assert expand(text, GROUPS) == names


def test_wildcards_choose_from_the_nodes_that_the_caller_knows() -> None:
    assert expand("n?,x*", nodes=["n1", "n22", "x9"]) == ["n1", "x9"]
    assert expand("@*!n1", nodes=["n1", "n2"]) == ["n2"]
    with pytest.raises(BadRequest, match="wildcards"):
        expand("n*")


numbers = st.integers(0, 30)
pieces = st.one_of(
    numbers.map(str),
    st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}"),
    st.tuples(numbers, numbers, st.integers(1, 5)).map(lambda three: f"{min(three[:2])}-{max(three[:2])}/{three[2]}"),
    st.tuples(numbers, numbers).map(lambda pair: f"{min(pair):03d}-{max(pair):03d}"),
)
brackets = st.lists(pieces, min_size=1, max_size=4).map(lambda many: f"[{','.join(many)}]")
operands = st.one_of(
    st.builds("n{}".format, numbers),
    st.builds("n{}".format, brackets),
    st.builds("n{}-ib".format, brackets),
    st.builds("x{}c{}".format, brackets, brackets),
)


@st.composite
def expressions(draw: st.DrawFn) -> str:
    text = draw(operands)
    for operand in draw(st.lists(operands, max_size=4)):
        text += draw(st.sampled_from(",!&^")) + operand
    return text


@pytest.mark.slow
@given(expressions())
@settings(deadline=None)
def test_expansion_agrees_with_clustershell(text: str) -> None:
    assert set(expand(text)) == by_clustershell(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bomb",
    [
        "n[0-99999999]",
        "n[1-9999]m[1-9999]",
        "n[0-999999],m[0-999999]",
        "n[0-999999999999999999999999]",
        "n[" + "0" * 100_000 + "1-3]",
        "n[[[[[[1-9]]]]]]",
        "n[1-9]" * 50_000,
        "[1]" * 50_000,
        "n" * 1_000_000,
        "n" * 500_000 + "[",
        "n1," * 300_000,
        "@a," * 30_000 + "@everything",
        "(" * 400_000,
        "n[" + ",".join(["0-999999"] * 50_000) + "]",
    ],
)
def test_a_range_bomb_is_refused_before_it_is_unfolded(bomb: str) -> None:
    everything = {**GROUPS, "everything": range(20_000_000)}
    with weighed() as work, pytest.raises(BadRequest) as caught:
        expand(bomb, everything)  # type: ignore[arg-type]
    assert work.peak < 20e6 + 300 * len(bomb), "memory for what was typed, not for what it means"
    assert len(str(caught.value)) < 400


def test_the_limit_is_the_callers_to_set() -> None:
    assert len(expand("n[1-10]", limit=10)) == 10
    with pytest.raises(BadRequest, match="at most 9"):
        expand("n[1-10]", limit=9)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n1,,n2", "missing"),
        ("n1,", "missing"),
        ("!n1", "missing"),
        ("n[1-3", "missing ']'"),
        ("n1]", "brackets"),
        ("n[1-2][3-4]", "touch"),
        ("n[]", "not a range"),
        ("n[5-1]", "ascend"),
        ("n[1-5/0]", "ascend"),
        ("n[01-100]", "padding"),
        ("n%1", "found '%'"),
        ("n1 n2", "cannot read"),
        ("n" * (LONGEST + 1), "characters"),
        ("n" * 300, "255"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(BadRequest, match="nodeset") as caught:
        expand(text, GROUPS)
    assert said in str(caught.value)


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(NotFound, match="@nope"):
        expand("n1,@nope", GROUPS)


@given(st.text(max_size=40))
def test_any_text_expands_or_is_refused_and_nothing_else(text: str) -> None:
    try:
        names = expand(text, GROUPS, limit=1000)
    except BadRequest:
        return
    assert len(names) == len(set(names)) <= 1000 + 3


one_dimension = st.tuples(
    st.sampled_from(["n", "gpu-", "login"]),
    st.one_of(
        st.integers(0, 120).map(str), st.integers(0, 120).map("{:03d}".format), st.integers(0, 99).map("{:02d}".format)
    ),
    st.sampled_from(["", "-ib"]),
).map("".join)
many_dimensions = st.builds("x{}c{:02d}s{}b0".format, st.integers(8, 12), st.integers(0, 2), st.integers(0, 9))
odd = st.sampled_from(["login", "42", "7", "a.b-c_d", "n12345678901234567890", "1n2", "n1-2"])


@pytest.mark.slow
@given(st.sets(st.one_of(one_dimension, many_dimensions, odd), max_size=80))
@settings(deadline=None)
def test_folding_and_expanding_gives_the_same_set_here_and_in_clustershell(names: set[str]) -> None:
    folded = fold(names)
    assert set(expand(folded)) == names
    assert by_clustershell(folded) == names


@given(st.lists(one_dimension, max_size=40), st.randoms(use_true_random=False))
def test_equal_sets_fold_to_equal_texts(names: list[str], chance: random.Random) -> None:
    shuffled = [*names, *names[:3]]
    chance.shuffle(shuffled)
    assert fold(shuffled) == fold(names)


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["n5"], "n5"),
        (["n1", "n2", "n3", "n7"], "n[1-3,7]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["b1", "a1", "a2"], "a[1-2],b1"),
        (
            [f"x{x}c{c}s{s}b0n{n}" for x in (1000, 1001) for c in range(8) for s in range(8) for n in range(2)],
            "x[1000-1001]c[0-7]s[0-7]b0n[0-1]",
        ),
    ],
)
def test_folding_is_as_short_as_one_would_write_it(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["n{:06d}", "n{}", "rack3-n{}-ib"])
def test_a_fleet_of_100000_folds_with_a_few_steps_for_each(shape: str) -> None:
    names = [shape.format(number) for number in range(100_000)]
    random.Random(1).shuffle(names)
    with counted() as work:
        folded = fold(names)
    assert len(folded) < 40
    assert work.calls < 40 * len(names)


def test_folding_does_not_load_clustershell() -> None:
    code = "import sys; from strata.core.nodeset import fold; fold(['n1']); print('ClusterShell' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
