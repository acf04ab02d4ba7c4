"""What the provisioning layer declares: the minimal OS, a node's identity, its image and personality."""

from __future__ import annotations

from strata.core.model import Layer, Mutation, Variable, values

LAYER = Layer(
    variables=(
        Variable(
            name="os",
            values=("down", "up", "hung"),
            ages_out_after=90,
            lost_when={"power": values("off")},
            observer="node",
            doc="The minimal OS: down (not started), up (its agent answers), hung (started, and no agent answers).",
        ),
        Variable(
            name="identity",
            values=("none", "issued"),
            ages_out_after=90,
            lost_when={"os": values("down", "hung")},
            observer="node",
            doc="Whether the node holds a certificate for this boot.",
        ),
        Variable(
            name="image",
            open=True,
            ages_out_after=90,
            lost_when={"os": values("down", "hung")},
            observer="node",
            doc="The system image that the node holds.",
        ),
        Variable(
            name="personality",
            values=("idle", "active", "error"),
            ages_out_after=90,
            lost_when={"os": values("down", "hung")},
            observer="node",
            doc="The system image, run as a container.",
        ),
    ),
    mutations=(
        Mutation(
            name="boot",
            variable="os",
            start=values("down", "unknown"),
            to="up",
            requires={"power": values("on")},
            sets={"identity": "none", "image": "absent", "personality": "idle"},
            driver="node",
            cost=60,
            timeout=300,
        ),
        Mutation(
            name="enrol",
            variable="identity",
            start=values("none"),
            to="issued",
            requires={"os": values("up")},
            driver="node",
            cost=1,
            timeout=30,
        ),
        Mutation(
            name="load-image",
            variable="image",
            start=values("absent", "other"),
            to="wanted",
            requires={"os": values("up"), "identity": values("issued"), "personality": values("idle")},
            driver="node",
            cost=20,
            timeout=300,
        ),
        Mutation(
            name="start-personality",
            variable="personality",
            start=values("idle"),
            to="active",
            requires={"os": values("up"), "image": values("wanted")},
            driver="node",
            cost=5,
            timeout=120,
        ),
        Mutation(
            name="stop-personality",
            variable="personality",
            start=values("active", "error"),
            to="idle",
            requires={"os": values("up")},
            driver="node",
            cost=5,
            timeout=60,
            guards=("no-running-job",),
            destructive=True,
        ),
    ),
)
