"""``strata image-source``: what the repository says images are made of."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import state_colour
from strata.cli.session import Session

FIELDS = (
    ls.plain("name"),
    ls.plain("image"),
    ls.plain("source"),
    ls.plain("state", colour=state_colour),
    ls.plain("why"),
    ls.plain("operation", shown=False),
)


@click.group("image-source")
def image_source() -> None:
    """Show what the repository says images are made of, and how far each is.

    A document 'kind: image' names a recipe or an image of a registry, and the tag to publish it under.
    """


SOURCES = Named(image_source, "image source", "/v1/image-sources", FIELDS)
SOURCES.list("List the sources, and how far their images are.", "strata image-source list")


@image_source.command()
@click.argument("name")
@ls.json_option
def again(session: Session, name: str, as_json: bool) -> None:
    """Try now to make an image that could not be made.

    \b
    Example: strata image-source again compute-12
    """
    SOURCES.report(session, session.client.post(f"{SOURCES.path(name)}/again"), as_json)
