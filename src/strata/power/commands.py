"""``strata energy``: what the machine draws and what jobs used. The commands are in their own modules."""

from __future__ import annotations

import click

from strata.cli.lazy import LazyGroup
from strata.rooms import commands


@click.group(cls=LazyGroup, members=lambda: commands("energy"))
def energy() -> None:
    """See what the machine draws, and what jobs used."""
