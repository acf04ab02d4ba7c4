"""What the provisioning layer declares: the minimal OS, a node's identity, its images and its personality."""

from __future__ import annotations

from strata.core.model import Layer, Mutation, Variable, values

_GONE = {"os": values("down", "hung")}

LAYER = Layer(
    variables=(
        Variable(
            name="os",
            values=("down", "up", "hung"),
            ages_out_after=90,
            lost_when={"power": values("off")},
            # Only what speaks: a node that is hung or down may have no power.
            implies={"up": {"power": "on"}},
            observer="node",
            doc="The minimal OS: down (not started), up (its agent answers), hung (started, and no agent answers).",
        ),
        Variable(
            name="minos",
            open=True,
            ages_out_after=90,
            lost_when=_GONE,
            observer="node",
            canary=True,
            doc="The boot profile that the minimal OS was started with: kernel, initrd and parameters.",
        ),
        Variable(
            name="identity",
            values=("none", "issued"),
            ages_out_after=90,
            lost_when=_GONE,
            observer="node",
            doc="Whether the node holds a certificate for this boot.",
        ),
        Variable(
            name="image",
            open=True,
            ages_out_after=90,
            lost_when=_GONE,
            observer="node",
            canary=True,
            doc="The personality that the node holds: one or more system images, and how they run.",
        ),
        Variable(
            name="personality",
            values=("idle", "active", "update", "error", "fatal"),
            ages_out_after=90,
            lost_when=_GONE,
            observer="node",
            doc="How the personality runs, as containers: idle (not started), active (all ready), update (on its way), "
            "error (broken; the agent tries again), fatal (the agent gave up).",
        ),
    ),
    mutations=(
        Mutation(
            name="boot",
            variable="os",
            start=values("down", "unknown"),
            to="up",
            requires={"power": values("on")},
            sets={"minos": "wanted", "identity": "none", "image": "absent", "personality": "idle"},
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
            name="switch-image",
            variable="image",
            start=values("other"),
            to="wanted",
            requires={
                "os": values("up"),
                "identity": values("issued"),
                "personality": values("active", "update", "error", "fatal"),
            },
            sets={"personality": "active"},
            driver="node",
            cost=15,
            timeout=300,
            guards=("no-running-job",),
            destructive=True,
            on_failure="unknown",
            doc="Fetches the new set while the old one runs, then changes over; back to the old one if it fails.",
        ),
        Mutation(
            name="start-personality",
            variable="personality",
            start=values("idle", "update", "error"),
            to="active",
            requires={"os": values("up"), "image": values("wanted")},
            driver="node",
            cost=5,
            timeout=120,
            doc="From update and error: waits for the agent, which is at it by itself; what is well runs on.",
        ),
        Mutation(
            name="stop-personality",
            variable="personality",
            start=values("active", "update", "error", "fatal"),
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
