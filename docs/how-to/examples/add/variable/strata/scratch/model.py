"""What the layer declares: a node's scratch disk, and the step that formats it."""

from __future__ import annotations

from strata.core.model import Layer, Mutation, Variable, values

LAYER = Layer(
    variables=(
        Variable(
            name="scratch",
            values=("empty", "formatted"),
            ages_out_after=90,
            observer="scratch",
            doc="Whether the node's scratch disk can be written to.",
        ),
    ),
    mutations=(
        Mutation(
            name="format-scratch",
            variable="scratch",
            start=values("empty"),
            to="formatted",
            driver="scratch",
            cost=5,
            timeout=60,
            idempotent=True,
        ),
    ),
)
