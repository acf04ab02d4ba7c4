"""What the platform layer declares: a node's configuration, its health and its place in the workload manager."""

from __future__ import annotations

from strata.core.model import LIMITS, Budget, Layer, Mutation, Variable, values

LAYER = Layer(
    variables=(
        Variable(
            name="config",
            open=True,
            ages_out_after=90,
            lost_when={"personality": values("idle", "error", "fatal")},
            observer="node",
            nothing="none",
            doc="The configuration revision that is in force in the personality; none: there is none, none is wanted.",
        ),
        Variable(
            name="workload",
            values=("out", "in"),
            ages_out_after=90,
            lost_when={"personality": values("idle", "error", "fatal")},
            observer="workload",
            doc="Whether the workload manager may give the node to jobs.",
        ),
        Variable(
            name="health",
            values=("ok", "failing", "repaired"),
            ages_out_after=90,
            lost_when={"os": values("down", "hung")},
            observer="health",
            doc="What the node's checks say: ok (none that counts fails), failing, repaired (something was done about "
            "it, and it was not well for long enough yet).",
        ),
    ),
    mutations=(
        Mutation(
            name="configure",
            variable="config",
            start=values("absent", "other", "unknown"),
            to="wanted",
            requires={"personality": values("active")},
            driver="node",
            cost=10,
            timeout=300,
            idempotent=True,
        ),
        Mutation(
            name="join-workload",
            variable="workload",
            start=values("out", "unknown"),
            to="in",
            # A node of which nobody wants a configuration, or reports one, joins all the same; who lacks it does not.
            requires={"personality": values("active"), "config": values("wanted", "other", "unknown")},
            # Nor does who is not well. Where nobody checks, nobody knows, and that is no obstacle.
            excludes={"health": values("failing", "repaired")},
            driver="workload",
            cost=1,
            timeout=30,
            idempotent=True,
        ),
        Mutation(
            name="leave-workload",
            variable="workload",
            start=values("in"),
            to="out",
            driver="workload",
            cost=5,
            timeout=86400,
            idempotent=True,
            on_failure="unchanged",
        ),
        Mutation(
            name="check-health",
            variable="health",
            start=values("repaired", "unknown"),
            to="ok",
            requires={"personality": values("active")},
            driver="health",
            cost=60,
            timeout=3600,
            idempotent=True,
            on_failure="unchanged",
            doc="Has the node's checks run anew, and waits until all pass.",
        ),
        Mutation(
            name="repair",
            variable="health",
            start=values("failing"),
            to="repaired",
            requires={"os": values("up")},
            excludes={"workload": values("in")},
            driver="health",
            cost=60,
            timeout=300,
            guards=("no-running-job",),
            destructive=True,
            on_failure="unchanged",
            doc="Does what the health policy has next for the node: restarts its personality, reboots it, or takes its "
            "power away. What follows from that is not its business.",
        ),
    ),
    budgets=(
        Budget(
            name="rollouts",
            destructive_only=True,
            per=LIMITS,
            doc="Nodes out of service at once, as the rollouts that are under way allow of their nodes and groups.",
        ),
    ),
    excludes={
        # A node leaves the workload manager before it is taken down.
        "power-off": {"workload": values("in")},
        "stop-personality": {"workload": values("in")},
        "switch-image": {"workload": values("in")},
    },
    # Configuration lives in the running containers, and those are new ones then.
    forgets={"switch-image": ("config",)},
)
