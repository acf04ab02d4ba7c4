"""A day of an over-provisioned machine: what its policy gets done under the site limit, and whether the limit holds.

    .venv/bin/python bench/policy.py --nodes 8000 --json

The machine is that of the CAPMC paper, section II.E: nodes of 400 W at most, 200 W capped, 50 W idle, behind 250 W
for each (2 MW for 8,000). The same jobs run under its rules, under them once more while the controller dies in the
middle of a change of caps, under one cap for all, and uncapped on as many nodes as the limit feeds.
"""

from __future__ import annotations

import time

from measure import Figures, Gauge, arguments, main, own_peak_mb, say, show

from strata.power.policies.policy import parse
from strata.power.simulation.outcome import Outcome
from strata.power.simulation.simulation import Death, baselines, simulate
from strata.power.simulation.trace import generate
from strata.power.simulation.world import Machine

EACH = 250.0
POLICY = """
name: over-provisioned
limit: {limit}W
nodes: {{idle: 50W, boot: 150W, low: 200W, high: 400W}}
idle-pool: {{low: {low}, high: {high}, on: {batch}, off: {batch}}}
over-provisioned: {{mood: {mood}}}
"""


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=8000)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mood", default="aggressive", choices=["aggressive", "gentle", "by-demand"])
    options = parser.parse_args()
    nodes, limit = options.nodes, EACH * options.nodes
    sizes = {"low": nodes // 80, "high": nodes * 3 // 80, "batch": max(nodes // 40, 1)}
    policy = parse(POLICY.format(limit=limit, mood=options.mood, **sizes), source="bench")
    jobs = generate(options.seed, nodes=nodes, days=options.days, high=policy.nodes.high)
    _, static, fewer = baselines(policy, nodes, limit)
    death = Death(after=options.days * 86400 / 3, away=600.0)
    figures: Figures = {"nodes": nodes, "limit_w": limit, "days": options.days, "jobs": len(jobs), "seed": options.seed}
    for name, candidate, count, dies in (
        ("policy", policy, nodes, None),
        ("policy_dies", policy, nodes, death),
        ("static", *static, None),
        ("fewer", *fewer, None),
    ):
        say(f"simulating {name}", quiet=options.json)
        gauge, cpu = Gauge(), time.process_time()
        machine = Machine(ratings=candidate.nodes.ratings(count))
        found = simulate(candidate, machine, jobs, limit=limit, days=options.days, seed=options.seed, death=dies)
        if name == "policy":
            figures |= {"simulate_s": gauge.seconds, "simulate_cpu_s": time.process_time() - cpu}
        figures |= {f"{name}_{figure}": value for figure, value in _of(found).items()}
    figures["peak_mb"] = own_peak_mb()
    show(figures, as_json=options.json)


def _of(found: Outcome) -> Figures:
    return {
        "jobs_per_day": found.jobs_per_day,
        "node_hours": found.node_hours,
        "stretch": found.stretch,
        "energy_kwh": found.energy_kwh,
        "mean_w": found.mean_w,
        "peak_w": found.peak_w,
        "peak_possible_w": found.peak_possible_w,
        "over_limit_s": found.over_limit_s,
    }


if __name__ == "__main__":
    main(run)
