"""Diagrams of the documentation, drawn from what they show: the model that the layers declare, and the layers' imports.

A drawing carries the digest of its description, and is out of date when that differs: another version of Graphviz may
draw the same a little differently.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_DIGEST = re.compile(r"<!-- of ([0-9a-f]{64}) -->")


def model_description() -> str:
    """Variables, their values, and the mutations between them."""
    from strata.core.model import Model
    from strata.daemon.layers import LAYERS
    from strata.engine.modelgraph import dot

    return dot(Model.of(*(layer.model for layer in LAYERS)))


def layers_description() -> str:
    """Which folder may import which: those of the contract that ``lint-imports`` keeps."""
    contracts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (ranks,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    lines = [
        "digraph layers {",
        "  rankdir=TB; ranksep=0.25; fontname=Helvetica;",
        "  node [shape=box, style=rounded, fontname=Helvetica, fontsize=11, width=1.4, height=0.35];",
        "  edge [arrowsize=0.6, color=gray40];",
    ]
    named = [[folder.strip().removeprefix("strata.") for folder in rank.split("|")] for rank in ranks]
    for above, below in zip(named, [*named[1:], []], strict=True):
        lines.append("  { rank=same; " + " ".join(f'"{folder}";' for folder in above) + " }")
        lines += [f'  "{upper}" -> "{lower}";' for upper in above for lower in below]
    return "\n".join([*lines, "}", ""])


DRAWINGS: dict[str, Callable[[], str]] = {
    "built-in-model.svg": model_description,
    "layers.svg": layers_description,
}
"""File in ``pictures`` → what describes it."""


def is_of(drawing: str, description: str) -> bool:
    """Whether a drawing was made of this description."""
    found = _DIGEST.search(drawing)
    return found is not None and found[1] == _digest(description)


def draw(description: str) -> str:
    """An SVG of a description, which says what it was made of."""
    from strata.engine.modelgraph import drawn

    head, separator, rest = drawn(description).partition("<svg")
    return f"{head}<!-- of {_digest(description)} -->\n{separator}{rest}"


def _digest(description: str) -> str:
    return hashlib.sha256(description.encode()).hexdigest()
