"""Drawings of models."""

from __future__ import annotations

import shutil
from xml.etree import ElementTree

import pytest

from strata.core.errors import Unavailable
from strata.core.model import Layer, Model, Mutation, Variable, values
from strata.engine import modelgraph
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.provisioning.model import LAYER as PROVISIONING

MODEL = Model.of(HARDWARE, PROVISIONING, PLATFORM)
NASTY = Model.of(
    Layer(
        variables=(Variable(name="a", values=('x"]; evil [', "<script>alert(1)</script>", "back\\slash\\n")),),
        mutations=(Mutation(name="m", variable="a", start=values('x"]; evil ['), to="<script>alert(1)</script>"),),
    )
)


def test_every_variable_is_a_box_and_every_mutation_an_arrow() -> None:
    text = modelgraph.dot(MODEL)
    for name in MODEL.variables:
        assert f'subgraph "cluster_{name}"' in text
    for name in MODEL.mutations:
        assert f'[label="{name} (' in text
    assert '"power:on" -> "power:off"' in text
    assert "not workload=in" in text
    assert "asks no-running-job" in text
    assert "forgets os" in text


def test_a_mutation_from_unknown_shows_the_unknown() -> None:
    text = modelgraph.dot(MODEL)
    assert '"os:unknown" -> "os:up"' in text
    assert '"power:unknown"' not in text


def test_nothing_in_a_name_can_leave_its_quotes() -> None:
    text = modelgraph.dot(NASTY)
    assert '"a:x\\"]; evil ["' in text
    assert '"back\\\\slash\\\\n"' in text


@pytest.mark.slow
@pytest.mark.parametrize("model", [MODEL, NASTY])
def test_the_svg_is_well_formed_and_holds_no_markup_from_names(model: Model) -> None:
    text = modelgraph.svg(model)
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert "<script" not in text
    edges = [g for g in root.iter() if g.get("class") == "edge"]
    assert len(edges) >= len(model.mutations)


def test_without_graphviz_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Unavailable, match="apt-get install graphviz"):
        modelgraph.svg(MODEL)
