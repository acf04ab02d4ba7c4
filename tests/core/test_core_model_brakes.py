"""Brakes that cannot hold are refused, wherever a model is read."""

from __future__ import annotations

import pytest

from strata.core.errors import BadRequest
from strata.core.modelfile import parse

MODEL = """
variables: {{power: {{values: [off, on], {variable}}}}}
mutations:
  power-on: {{variable: power, from: off, to: on, driver: bmc}}
  power-off: {{variable: power, from: on, to: off, driver: bmc, destructive: true}}
guards: {{may: {{driver: x, {guard}}}}}
budgets: {{b: {{{budget}}}}}
"""


def read(budget: str = "limit: 1", guard: str = "ask_again_after: 1", variable: str = "observer: bmc") -> None:
    parse(MODEL.format(budget=budget, guard=guard, variable=variable), source="site.yaml").model()


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("limit: 1, per: cabnet", "did you mean 'cabinet'"),
        ("limit: 1, per: nonsense", "which is no way to divide nodes"),
        ("limit: 1, per: cabinet:x1000", "per is 'cabinet:x1000'"),
        ("limit: 1, per: 'group:'", "per is 'group:'"),
        ("limit: 1, per: label", "per is 'label'"),
        ("limit: 1, per: 'label:'", "per is 'label:'"),
        ("limit: 1, per: fleet:all", "per is 'fleet:all'"),
        ("limit: 1, per: ''", "which is no way to divide nodes"),
        ("limit: -1", "at least 1 node, not -1"),
        ("limit: 0", "at least 1 node, not 0"),
        ("limit: 0.5", "at least 1 node, not 0.5"),
        ("limit: 0, weight: watts", "above 0, not 0"),
        ("percent: 500", "at most 100, not 500"),
        ("percent: -5", "at most 100, not -5"),
        ("percent: 0", "above 0"),
        ("rate: 0", "above 0 starts a second"),
        ("rate: -2", "above 0 starts a second"),
        ("limit: 1, driver: bcm", "brakes nothing: no mutation fits driver bcm"),
        ("limit: 1, destructive_only: true, mutations: power-on", "brakes nothing"),
        ("limit: 1, mutations: power-onn", "no such mutation"),
    ],
)
def test_a_budget_with_a_slip_of_the_pen_is_refused_and_says_where_and_what(budget: str, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(budget)
    assert words in f"{refused.value.detail} {refused.value.hint}"
    assert refused.value.where == "site.yaml: budget b"


@pytest.mark.parametrize(
    "budget",
    [
        "limit: 1",
        "limit: 8, per: cabinet",
        "limit: 8, per: Slot",
        "limit: 8, per: pdu",
        "percent: 100, per: group",
        "percent: 0.5, per: 'group:login'",
        "limit: 0.5, weight: megawatts, per: 'label:row'",
        "rate: 0.1, driver: bmc",
    ],
)
def test_a_budget_that_can_be_kept_is_taken(budget: str) -> None:
    read(budget)


def test_times_that_would_make_the_engine_look_or_ask_without_a_pause_are_refused() -> None:
    with pytest.raises(BadRequest, match="ask_again_after must be above 0"):
        read(guard="ask_again_after: 0")
    with pytest.raises(BadRequest, match="ages_out_after must be above 0"):
        read(variable="ages_out_after: -90")
