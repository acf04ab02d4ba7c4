"""``strata power``: what the machine draws, and what it may draw. The commands are in their own modules."""

from __future__ import annotations

import click

from strata.cli.lazy import LazyGroup
from strata.rooms import commands


@click.group(cls=LazyGroup, table=lambda: commands("power"))
def power() -> None:
    """See, limit and plan what the machine draws."""
