"""``strata image``: what nodes run. Making images is in ``image_make``, looking and moving in ``image_tags``."""

from __future__ import annotations

import click

from strata.cli.lazy import LazyGroup

COMMANDS = {
    "Making": {
        "import": "strata.cli.image_make:import_",
        "build": "strata.cli.image_make:build",
        "export": "strata.cli.image_make:export",
    },
    "Looking": {
        "list": "strata.cli.image_tags:list_",
        "show": "strata.cli.image_tags:show",
        "diff": "strata.cli.image_tags:diff",
        "verify": "strata.cli.image_tags:verify",
    },
    "Changing": {
        "tag": "strata.cli.image_tags:tag",
        "promote": "strata.cli.image_tags:promote",
        "sign": "strata.cli.image_tags:sign",
        "delete": "strata.cli.image_tags:delete",
        "undelete": "strata.cli.image_tags:undelete",
        "gc": "strata.cli.image_tags:gc",
    },
}
"""Section of the help → command → where it is."""


@click.group(cls=LazyGroup, table=COMMANDS)
def image() -> None:
    """Import, build, compare, promote and remove system images."""
