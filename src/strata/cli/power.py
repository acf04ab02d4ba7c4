"""``strata power``: what the machine draws, and what it may draw. The commands are in their own modules."""

from __future__ import annotations

import click

from strata.cli.lazy import LazyGroup

COMMANDS = {
    "What is drawn": {
        "show": "strata.cli.power_show:show",
        "top": "strata.cli.power_show:top",
        "history": "strata.cli.power_show:history",
    },
    "Jobs": {
        "job": "strata.cli.power_jobs:job",
        "jobs": "strata.cli.power_jobs:jobs",
        "record": "strata.cli.power_jobs:record",
        "import": "strata.cli.power_jobs:import_",
    },
    "Policies": {
        "simulate": "strata.cli.power_simulate:simulate",
        "policy": "strata.cli.power_policy:policy",
        "queue": "strata.cli.power_queue:queue",
    },
}
"""Section of the help → command → where it is."""


@click.group(cls=LazyGroup, table=COMMANDS)
def power() -> None:
    """See, limit and plan what the machine draws."""
