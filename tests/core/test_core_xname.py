"""Locations: the xname grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.core.xname import SYSTEM, TYPES, ComponentType, parse, type_named
from support.work import counted


def written_chain(kind: ComponentType) -> list[ComponentType]:
    """The steps that are written for a component of this type, from the outside in."""
    chain = [kind]
    while chain[0].parent and chain[0].parent != "System":
        chain.insert(0, TYPES[chain[0].parent])
    return chain


@st.composite
def xnames(draw: st.DrawFn) -> tuple[str, str, tuple[int, ...]]:
    kind = TYPES[draw(st.sampled_from(sorted(TYPES)))]
    chain = written_chain(kind)
    ordinals = tuple(draw(st.integers(step.low, min(step.high, 5000))) for step in chain)
    return kind.name, "".join(f"{step.letter}{n}" for step, n in zip(chain, ordinals, strict=True)), ordinals


@given(xnames())
def test_every_component_type_reads_back_as_what_was_written(example: tuple[str, str, tuple[int, ...]]) -> None:
    kind, text, ordinals = example
    found = parse(text)
    assert (found.type, found.text, found.ordinals) == (kind, text, ordinals)
    assert str(found) == text


@given(xnames(), st.integers(1, 3))
def test_leading_zeros_and_capitals_name_the_same_component(
    example: tuple[str, str, tuple[int, ...]], zeros: int
) -> None:
    kind, text, ordinals = example
    letters = [step.letter for step in written_chain(TYPES[kind])]
    padded = "".join(f"{letter}{'0' * zeros}{n}" for letter, n in zip(letters, ordinals, strict=True))
    assert parse(padded.upper()) == parse(text)


@given(xnames())
def test_parents_lead_up_to_a_root_and_are_ancestors(example: tuple[str, str, tuple[int, ...]]) -> None:
    found = parse(example[1])
    above, steps = found.parent, 0
    while above is not None:
        assert found.ancestor(above.type) == above
        if above != SYSTEM:
            assert parse(above.text) == above
        above, steps = above.parent, steps + 1
    assert steps <= 8


def test_the_grammar_has_every_type_of_the_system_management() -> None:
    assert len(TYPES) >= 50
    assert all(kind.parent in TYPES or kind.parent == "" for kind in TYPES.values())


@pytest.mark.parametrize(
    ("text", "kind", "parent"),
    [
        ("s0", "System", None),
        ("sms2", "SMSBox", None),
        ("p1.2", "Subpartition", "p1"),
        ("d1w3", "CDUMgmtSwitch", "d1"),
        ("x1000", "Cabinet", "s0"),
        ("x1000m1p0v12", "CabinetPDUPowerConnector", "x1000m1p0"),
        ("x1000c7", "Chassis", "x1000"),
        ("x1000c0b0", "ChassisBMC", "x1000c0"),
        ("x1000c0s3b0n1", "Node", "x1000c0s3b0"),
        ("x1000c0s3b0n1g0k4", "Drive", "x1000c0s3b0n1g0"),
        ("x1000c0s3b0n1v2", "VirtualNode", "x1000c0s3b0n1"),
        ("x1000c0r7j3p1", "HSNConnectorPort", "x1000c0r7j3"),
        ("x3000c0h33s1", "MgmtHLSwitch", "x3000c0h33"),
        ("x3000c0w14j48", "MgmtSwitchConnector", "x3000c0w14"),
    ],
)
def test_known_locations_have_their_type_and_parent(text: str, kind: str, parent: str | None) -> None:
    found = parse(text)
    assert found.type == kind
    assert (found.parent.text if found.parent else None) == parent


def test_the_old_letter_of_a_power_connector_is_understood_and_not_written() -> None:
    assert parse("x1000c0s3j1").text == "x1000c0s3v1"


def test_an_ancestor_may_be_asked_for_by_the_name_that_administrators_use() -> None:
    node = parse("x1000c2s3b0n1")
    assert str(node.ancestor("slot")) == "x1000c2s3"
    assert str(node.ancestor("CABINET")) == "x1000"
    assert node.ancestor("pdu") is None
    assert type_named("pdu").name == "CabinetPDU"
    with pytest.raises(BadRequest, match="cabinet"):
        node.ancestor("shelf")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("x", "number must follow 'x' at character 1"),
        ("x1000q1", "found 'q' after x1000 (Cabinet); expected b, c, d, e, m"),
        ("x1000c9", "Chassis c9 at character 6: the number is 0 to 7"),
        ("x1000c0w0", "1 to"),
        ("x10000", "0 to 9999"),
        ("hello", "found 'hello' at the beginning"),
        ("x1000c0s3b0n1 ", "found ' '"),
        ("s0x1000", "nothing more"),
        ("s1", "System"),
        ("1x", "found '1' at the beginning"),
        ("x1000c٣", "found"),
        ("x" + "1" * 5000, "5001 characters"),
    ],
)
def test_what_is_not_a_location_is_refused_with_the_place_and_what_could_stand_there(text: str, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.text(alphabet="xcsbnrvjpdw0123456789. ", max_size=20))
def test_any_text_is_a_location_or_refused_and_nothing_else(text: str) -> None:
    try:
        found = parse(text)
    except BadRequest:
        return
    assert parse(found.text) == found


@pytest.mark.slow
def test_each_of_100000_locations_is_read_with_a_few_steps() -> None:
    texts = [f"x{1000 + i // 512}c{i // 64 % 8}s{i // 8 % 8}b{i // 4 % 2}n{i % 4}" for i in range(100_000)]
    with counted() as work:
        cabinets = {parse(text).ancestor("Cabinet") for text in texts}
    assert work.calls < 40 * len(texts)
    assert len(cabinets) == 196
