"""Every text that is held against a pattern: what is wrong with it is told in words, never as a regular expression."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, inspect

from strata.api.app import openapi_schema
from strata.core.errors import BadRequest
from strata.core.input.forms import FORMS, in_words, meaning
from strata.core.texts import In
from strata.fleet.nodes.records import NodeSpec
from strata.provisioning.agents.records import AdoptMachine
from strata.provisioning.boot.records import Profile
from strata.provisioning.images.build.recipe import Recipe, parse_recipe
from strata.provisioning.personalities.records import PersonalitySpec


def in_schema(tree: Any) -> Iterator[str]:
    """The patterns in an OpenAPI document."""
    if isinstance(tree, dict):
        if isinstance(tree.get("pattern"), str):
            yield tree["pattern"]
        for below in tree.values():
            yield from in_schema(below)
    elif isinstance(tree, list):
        for below in tree:
            yield from in_schema(below)


def in_types(*types: type) -> Iterator[str]:
    """The patterns of all texts in some structs, and in what these hold."""
    seen: dict[int, Any] = {}  # kept, as the number of one that is gone is given to another
    left: list[Any] = list(inspect.multi_type_info(types))
    while left:
        one = left.pop()
        if id(one) in seen or not isinstance(one, (inspect.Type, inspect.Field)):
            continue
        seen[id(one)] = one
        if isinstance(one, inspect.StrType) and one.pattern:
            yield one.pattern
        for name in one.__struct_fields__:
            found = getattr(one, name)
            left += found if isinstance(found, tuple) else [found]


def everything() -> set[str]:
    """All patterns that something from outside is held against."""
    shown = {*in_schema(openapi_schema())}  # first: it opens every room
    taken: list[type] = [Recipe]
    families: list[type] = [In]
    while families:
        below = families.pop().__subclasses__()
        taken += below
        families += below
    return {*shown, *in_types(*taken)}


def test_every_pattern_is_explained_and_every_explanation_is_of_a_pattern() -> None:
    used = everything()
    assert len(used) > 30
    assert not [pattern for pattern in used if not meaning(pattern)]
    assert {meaning(pattern) for pattern in used} == set(FORMS.values())


def test_an_explanation_is_words_and_an_example_that_would_be_accepted() -> None:
    for pattern, words in FORMS.items():
        assert not re.search(r"[\\^$]|\[[aA0]|\{\d", words), words
        for example in re.findall(r"such as:? ([^,;]*?)(?:,| or |$)", words):
            if "..." not in example and " of '" not in example:
                assert re.fullmatch(f"(?:{pattern})", example.strip("'")), (pattern, example)


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        (Profile, {"minos": "newest"}, "must be latest, or a build's 12 digits"),
        (AdoptMachine, {"name": "n1", "address": "ten"}, "an IPv4 address, such as 10.77.0.15"),
        (NodeSpec, {"name": "n1", "interfaces": [{"mac": "52:54"}]}, "such as 52:54:00:12:34:56 - at `$.interfaces[0]"),
        (NodeSpec, {"name": "n 1"}, "a name is 1 to 63 letters"),
        (
            PersonalitySpec,
            {"members": [{"name": "a", "release": "x:1", "files": [{"path": "etc/x"}]}]},
            "a path begins with '/', and is one line, such as /etc/motd - at `$.members[0].files[0].path`",
        ),
        (
            PersonalitySpec,
            {"members": [{"name": "a", "release": "x:1", "env": {"A=B": "c"}}]},
            "the name of an environment variable is letters, digits and '_'",
        ),
        (
            PersonalitySpec,
            {"members": [{"name": "a", "release": "x:1", "mode": "rom"}]},
            "'rom' is none of: demand, ram (did you mean ram?) - at `$.members[0].mode`",
        ),
        (
            PersonalitySpec,
            {"members": [{"name": "a", "release": "x:1", "ready": {"kind": "7"}}]},
            "'7' is none of: command, file, started, tcp - at `$.members[0].ready.kind`",
        ),
        (
            PersonalitySpec,
            {"members": [{"name": "a", "release": "x:1", "ready": {"kinds": "tcp"}}]},
            "unknown key 'kinds'; accepted are kind, path, port, argv, within, every (did you mean kind?)",
        ),
        (Profile, {"method": "pxe"}, "'pxe' is none of: http, ipxe, media"),
        (PersonalitySpec, {"members": 3}, "must be a list, not a whole number - at `$.members`"),
        (PersonalitySpec, {"members": [{"name": "a", "release": 1.5}]}, "must be text, not a number"),
        (PersonalitySpec, {}, "members is missing"),
        (NodeSpec, {"name": "n1", "nid": "x"}, "must be a whole number, not text"),
    ],
)
def test_a_wrong_value_is_told_what_would_do(kind: type, body: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(body, kind)
    assert said in in_words(str(refused.value), kind)


def test_a_recipe_says_it_in_words_too() -> None:
    with pytest.raises(BadRequest, match="3 or 4 octal digits, such as '0644'"):
        parse_recipe("from: scratch\nfiles: [{path: /x, content: y, mode: rwx}]")


def test_a_pattern_that_nobody_explained_is_not_shown_either() -> None:
    assert in_words("Expected `str` matching regex '^zz+$' - at `$.x`") == (
        "is written in a way that is not accepted - at `$.x`"
    )


class Tagged(msgspec.Struct, tag="x"):
    """One of two kinds of object."""

    colour: Literal["red", "green"]


class Other(msgspec.Struct, tag="y"):
    """The other."""

    size: int = 0


class Deep(msgspec.Struct):
    """Places of all sorts."""

    by_name: dict[str, Tagged] = {}
    maybe: Literal["a", "b"] | None = None
    either: Tagged | Other | None = None
    pairs: list[tuple[int, Annotated[Literal["one", "two"], Meta(description="a word")]]] = []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"by_name": {"n.1": {"type": "x", "colour": "blue"}}}, "'blue' is none of: green, red"),
        ({"maybe": "c"}, "'c' is none of: a, b"),
        ({"either": {"type": "x", "colour": "blue"}}, "'blue' is none of: green, red"),
        ({"pairs": [[1, "one"], [2, "three"]]}, "'three' is none of: one, two"),
    ],
)
def test_accepted_words_are_found_wherever_the_field_is(body: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(body, Deep)
    assert in_words(str(refused.value), Deep).startswith(said)


def test_what_is_accepted_is_not_made_up_where_nobody_knows() -> None:
    said = "Invalid enum value 'x' - at `$.nowhere[...].at[3].all`"
    assert in_words(said, Deep) == said
    assert in_words(said) == said
