"""What ``modelcheck`` finds, and does not find, in models."""

from __future__ import annotations

import pytest

from strata.core.model import Guard, Layer, Model, Mutation, Variable, values
from strata.engine.modelcheck import check
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING

A = Variable(name="a", values=("0", "1", "2"))
B = Variable(name="b", values=("0", "1"))


def step(name: str, variable: str, start: str, to: str, **more: object) -> Mutation:
    return Mutation(name=name, variable=variable, start=values(*start.split("|")), to=to, **more)  # type: ignore[arg-type]


CIRCLE = (step("go", "a", "0", "1"), step("on", "a", "1", "2"), step("back", "a", "2", "0"))
SWITCH = (step("b-on", "b", "0", "1"), step("b-off", "b", "1", "0"))


def found(*mutations: Mutation, variables: tuple[Variable, ...] = (A, B), **layer: object) -> dict[str, str]:
    model = Model.of(Layer(variables=variables, mutations=mutations, **layer))  # type: ignore[arg-type]
    return {f"{finding.level} {finding.code} {finding.where}": finding.text for finding in check(model)}


def test_a_sound_model_has_no_findings() -> None:
    assert found(*CIRCLE, *SWITCH) == {}


def test_the_built_in_layers_have_neither_errors_nor_warnings() -> None:
    model = Model.of(HARDWARE, PROVISIONING, PLATFORM)
    assert [finding for finding in check(model) if finding.level != "note"] == []


def test_a_value_that_nothing_gives_and_nobody_sees_is_unreachable() -> None:
    findings = found(step("go", "a", "0", "1"), step("back", "a", "1", "0"), *SWITCH)
    assert findings["error unreachable-value variable a"].startswith("a=2 is unreachable")


def test_a_value_that_is_only_left_is_a_beginning() -> None:
    findings = found(CIRCLE[0], CIRCLE[1], step("again", "a", "2", "1"), *SWITCH)
    assert "can only be a beginning" in findings["warning unreachable-value variable a"]


def test_a_value_that_is_only_observed_is_no_error() -> None:
    seen = Variable(name="a", values=("0", "1", "2"), observer="eye")
    findings = found(step("go", "a", "0|2", "1"), step("back", "a", "1", "0"), *SWITCH, variables=(seen, B))
    assert findings == {"note only-seen variable a": "a=2 can be seen, but no mutation leads to it"}


def test_a_station_on_the_way_out_of_what_is_only_seen_needs_no_other_way_to_it() -> None:
    seen = Variable(name="a", values=("well", "ill", "mended"), observer="eye", lost_when={"b": values("0")})
    findings = found(
        step("mend", "a", "ill", "mended"), step("check", "a", "mended", "well"), *SWITCH, variables=(seen, B)
    )
    assert findings == {"note only-seen variable a": "a=ill can be seen, but no mutation leads to it"}


def test_a_value_that_nothing_leaves_is_a_dead_end() -> None:
    findings = found(CIRCLE[0], CIRCLE[1], step("back", "a", "1", "0"), *SWITCH)
    assert findings["error dead-end variable a"].startswith("a=2 is a dead end")
    assert findings["warning no-path variable a"] == "there is no way from 2 to 0 or 1"


def test_a_value_that_a_side_effect_leaves_is_no_dead_end() -> None:
    lost = Variable(name="b", values=("0", "1"), lost_when={"a": values("0")})
    assert found(*CIRCLE, step("b-any", "b", "0|unknown", "1"), variables=(A, lost)).keys() == {
        "warning unreachable-value variable b"
    }


def test_a_one_way_change_is_no_dead_end() -> None:
    assert "error dead-end variable b" not in found(*CIRCLE, step("flash", "b", "0", "1"))


@pytest.mark.parametrize(
    ("mutation", "key"),
    [
        (step("m", "a", "0", "2", requires={"b": values("1")}, excludes={"b": values("1")}), "error contradiction"),
        (step("m", "a", "unknown", "2", destructive=True), "error contradiction"),
        (step("m", "a", "2", "2"), "error no-progress"),
        (step("m", "a", "0", "1", cost=7), "error conflict"),
    ],
)
def test_a_mutation_that_contradicts_is_an_error(mutation: Mutation, key: str) -> None:
    assert any(place.startswith(key) for place in found(*CIRCLE, *SWITCH, mutation))


def test_a_requirement_that_can_never_hold_is_an_error() -> None:
    three = Variable(name="b", values=("0", "1", "2"))
    findings = found(*CIRCLE, *SWITCH, step("m", "a", "0", "2", requires={"b": values("2")}), variables=(A, three))
    assert findings["error unsatisfiable mutation m"] == "requires b=2, which nothing gives and nobody observes"


def test_goals_that_undo_each_other_are_pointed_out() -> None:
    findings = found(
        step("m", "a", "0|2", "1", sets={"b": "0"}),
        step("n", "b", "0", "1", sets={"a": "0"}),
        step("o", "a", "1", "2"),
    )
    assert "a=1 undoes b=1" in findings["warning undo-cycle variable a"]


def test_what_is_declared_and_never_used_is_pointed_out() -> None:
    model = Model.of(
        Layer(
            variables=(A, B),
            mutations=(*CIRCLE, *SWITCH),
            guards=(Guard(name="idle"),),
        )
    )
    codes = {(finding.code, finding.where) for finding in check(model, drivers=["pdu"])}
    assert codes == {
        ("unused-guard", "guard idle"),
        ("unused-driver", "driver pdu"),
    }


def test_errors_come_first() -> None:
    model = Model.of(Layer(variables=(A, B), mutations=(CIRCLE[0],), guards=(Guard(name="idle"),)))
    levels = [finding.level for finding in check(model)]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)
    assert {"error", "warning", "note"} <= set(levels)
