"""Models in YAML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.core.model import Layer, Mutation, Variable, values
from strata.core.modelfile import parse

WHOLE = """
variables:
  power: [off, on]
  door: {values: [yes, no], observer: eye, ages_out_after: 90}
  image: {open: true, lost_when: {power: off}, doc: what it runs}
mutations:
  power-on: {variable: power, from: off, to: on, cost: 30, driver: pdu}
  power-off:
    variable: power
    from: [on, unknown]
    to: off
    requires: {door: no}
    excludes: {image: [other, wanted]}
    forgets: door
    timeout: 5
    batch: 7
    guard: idle
    destructive: true
    on_failure: unchanged
  load: {variable: image, from: "*", to: wanted, sets: {door: yes}, guards: [idle]}
guards:
  idle: {driver: pdu, ask_again_after: 2}
budgets:
  inrush: {mutations: [power-on], per: cabinet, limit: 8}
drivers:
  pdu: {exec: [/bin/pdu, --quiet], timeout: 30, env: {MODE: "007"}}
"""
BASE = Layer(variables=(Variable(name="power", values=("off", "on")),))


def test_on_off_yes_and_no_stay_words() -> None:
    model = parse(WHOLE, source="site.yaml").model()
    assert model.variables["power"].values == ("off", "on")
    assert model.variables["door"].values == ("yes", "no")
    assert model.mutations["power-on"].start == {"off"}
    assert model.mutations["power-on"].to == "on"
    assert model.mutations["power-off"].requires == {"door": {"no"}}
    assert model.mutations["load"].sets == {"door": "yes"}


def test_every_field_arrives_as_what_it_is() -> None:
    file = parse(WHOLE, source="site.yaml")
    model = file.model()
    off = model.mutations["power-off"]
    assert (off.timeout, off.batch, off.guards, off.destructive, off.on_failure, off.forgets) == (
        *(5.0, 7, ("idle",), True, "unchanged", ("door",)),
    )
    assert off.excludes == {"image": {"other", "wanted"}}
    assert model.variables["door"].ages_out_after == 90.0
    assert model.variables["image"].open
    assert model.variables["image"].lost_when == {"power": {"off"}}
    assert model.guards["idle"].ask_again_after == 2.0
    assert model.budgets["inrush"].limit == 8
    assert model.budgets["inrush"].percent is None
    (pdu,) = file.drivers
    assert (pdu.name, pdu.command, pdu.timeout, pdu.env) == ("pdu", ("/bin/pdu", "--quiet"), 30.0, {"MODE": "007"})


def test_what_a_value_implies_is_read_by_value_and_variable() -> None:
    text = (
        "variables: {power: [off, on], os: {values: [down, up], lost_when: {power: off}, implies: {up: {power: on}}}}"
    )
    assert parse(text, source="site.yaml").model().variables["os"].implies == {"up": {"power": "on"}}
    with pytest.raises(BadRequest, match=r"site\.yaml: variables\.os\.implies\.up: found a single value"):
        parse(text.replace("{up: {power: on}}", "{up: on}"), source="site.yaml")


def test_a_star_is_any_value_known_or_unknown() -> None:
    model = parse(WHOLE, source="site.yaml").model()
    assert model.mutations["load"].start == {"unknown", "absent", "other", "wanted"}


LAMP = """
variables: {led: [dark, lit]}
mutations: {lamp: {variable: led, from: dark, to: lit, requires: {power: on}}}
"""


def test_a_file_may_build_on_the_layers_below() -> None:
    model = parse(f"extends: built-in\n{LAMP}", source="site.yaml", layers=[BASE]).model()
    assert list(model.variables) == ["power", "led"]


def test_a_site_says_how_long_a_step_of_the_layers_below_takes() -> None:
    below = Layer(
        variables=BASE.variables,
        mutations=(Mutation(name="on", variable="power", start=values("off"), to="on", cost=3, timeout=120),),
    )
    model = parse("timeouts: {on: 900}", source="site.yaml", layers=[below], always_extends=True).model()
    assert (model.mutations["on"].timeout, model.mutations["on"].cost) == (900.0, 3)
    for wrong, said in (("{off: 9}", "no such mutation: off"), ("{on: 0}", "above 0"), ("{on: soon}", "a number")):
        with pytest.raises(BadRequest, match=said):
            parse(f"timeouts: {wrong}", source="site.yaml", layers=[below], always_extends=True).model()


def test_a_file_that_forgot_to_say_so_is_told_how() -> None:
    with pytest.raises(BadRequest, match=r"site.yaml: mutation lamp: no such variable: power.*extends: built-in"):
        parse(LAMP, source="site.yaml", layers=[BASE]).model()
    assert "power" in parse(LAMP, source="site.yaml", layers=[BASE], always_extends=True).model().variables


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("variables: {a: [x", "f.yaml, line 1", "not YAML"),
        ("variables: {a: [x, y], a: [z, w]}", "f.yaml, line 1, column 24", "occurs twice"),
        ("varables: {}", "f.yaml", "did you mean 'variables'?"),
        ("- a", "f.yaml", "expected a mapping"),
        ("variables: {a: {valuse: [x]}}", "f.yaml: variables.a", "did you mean 'values'?"),
        ("variables: {a: {values: [x], open: maybe}}", "f.yaml: variables.a.open", "expected true or false"),
        ("variables: {a: {values: [x], ages_out_after: .inf}}", "variables.a.ages_out_after", "expected a number"),
        ("variables: {a: [[x]]}", "f.yaml: variables.a.0", "expected one value"),
        ("variables: {a: []}", "f.yaml: variable a", "give either values or open"),
        ("variables: {a: [x, y]}\nmutations: {m: {variable: a, to: y}}", "f.yaml: mutations.m", "from missing"),
        ("mutations: {m: {variable: a, from: x, to: y}}", "f.yaml: mutations.m.variable", "no such variable: a"),
        (
            "variables: {a: [x, y]}\nmutations: {m: {variable: a, from: x, to: z}}",
            "f.yaml: mutation m",
            "a has no value 'z'; it has x, y",
        ),
        (
            "variables: {a: [x, y]}\nmutations: {m: {variable: a, from: x, to: y, cost: dear}}",
            "f.yaml: mutations.m.cost",
            "found 'dear'; expected a number",
        ),
        (
            "variables: {a: [x, y]}\nmutations: {m: {variable: a, from: x, to: y, on_failure: cry}}",
            "f.yaml: mutations.m.on_failure",
            "expected unknown or unchanged",
        ),
        ("drivers: {d: {exec: []}}", "f.yaml: drivers.d", "command"),
        ("drivers: {d: {}}", "f.yaml: drivers.d", "exec missing"),
        ("extends: everything", "f.yaml: extends", "expected built-in"),
        ("? [a, b]\n: c", "f.yaml, line 1", "plain text"),
        ("x" * 1_000_001, "f.yaml", "characters"),
    ],
)
def test_an_error_names_the_file_the_place_and_what_is_accepted(text: str, where: str, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(text, source="f.yaml").model()
    assert where in str(caught.value)
    assert said in str(caught.value)


def test_an_alias_bomb_is_refused_at_once() -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 40))
    with pytest.raises(BadRequest) as caught:
        parse(f"variables:\n  a: &a0 [x, y]\n{levels}", source="f.yaml")
    assert len(str(caught.value)) < 400


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        parse(text, source="f.yaml").model()
    except BadRequest as error:
        assert "f.yaml" in str(error)
