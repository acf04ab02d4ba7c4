"""``strata image``: what nodes run. Making images is in ``image_make``, looking and moving in ``image_tags``."""

from __future__ import annotations

import click

from strata.cli.lazy import LazyGroup
from strata.rooms import commands


@click.group(cls=LazyGroup, members=lambda: commands("image"))
def image() -> None:
    """Import, build, compare, promote and remove system images."""
