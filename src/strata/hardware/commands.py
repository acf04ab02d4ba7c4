"""``strata hardware``: the machines themselves, through their BMCs. The commands are in their own modules."""

from __future__ import annotations

import click

from strata.cli.lazy import LazyGroup
from strata.rooms import commands


@click.group(cls=LazyGroup, members=lambda: commands("hardware"))
def hardware() -> None:
    """See hardware, and operate it through its BMCs."""
