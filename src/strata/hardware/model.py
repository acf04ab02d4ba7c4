"""What the hardware layer declares: power, switched by a node's BMC, in the order in which it flows."""

from __future__ import annotations

from strata.core.model import Budget, Guard, Layer, Mutation, Variable, values

POWER_ROOM = "power-room"
CAPS_FREE = "caps-free"
"""Guards that the power layer declares, where it is open: asked here of what people do by hand."""

LAYER = Layer(
    variables=(
        Variable(
            name="power",
            values=("off", "on"),
            ages_out_after=90,
            observer="bmc",
            doc="Whether the node has power, as its BMC says.",
        ),
    ),
    mutations=(
        Mutation(
            name="power-on",
            variable="power",
            start=values("off"),
            to="on",
            driver="bmc",
            cost=30,
            timeout=120,
            batch=500,
            guards=("fed",),
        ),
        Mutation(
            name="power-off",
            variable="power",
            start=values("on"),
            to="off",
            driver="bmc",
            cost=20,
            timeout=120,
            batch=500,
            guards=("no-running-job", "feeds-nothing"),
            destructive=True,
        ),
    ),
    guards=(
        Guard(name="no-running-job", driver="workload", doc="No job would lose its node."),
        Guard(
            name="fed",
            driver="feeds",
            ask_again_after=5,
            doc="Something that feeds it (an outlet, its chassis) is on, or nothing feeds it.",
        ),
        Guard(
            name="feeds-nothing",
            driver="feeds",
            ask_again_after=5,
            doc="Everything that it feeds is known to be off.",
        ),
    ),
    budgets=(
        Budget(
            name="inrush",
            mutations=("power-on",),
            per="cabinet",
            limit=256,
            doc="Nodes of a cabinet starting at once.",
        ),
        Budget(
            name="disruption",
            destructive_only=True,
            per="fleet",
            percent=10,
            doc="Nodes out of service at once, from draining until they are back, of the whole fleet.",
        ),
        Budget(name="bmc-rate", driver="bmc", rate=5000, doc="Starts a second over all BMCs."),
    ),
)
