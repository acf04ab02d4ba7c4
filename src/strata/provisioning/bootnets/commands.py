"""``strata network``: the networks that machines boot from."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.named import Named

FIELDS = (
    ls.plain("name"),
    ls.plain("network"),
    ls.plain("origin"),
    ls.plain("interface"),
    ls.plain("server"),
    ls.plain("why"),
)


@click.group()
def network() -> None:
    """Show the networks that machines boot from, and where they are served.

    A document 'kind: network' in the site repository declares one.
    """


NETWORKS = Named(network, "network", "/v1/networks", FIELDS)
NETWORKS.list("List the networks that machines boot from.", "strata network list")
