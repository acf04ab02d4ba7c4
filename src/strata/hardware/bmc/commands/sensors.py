"""``strata hardware sensors`` and ``log``: what BMCs measure and remember."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.session import Session
from strata.cli.words import segment, select_help
from strata.hardware.alerts.commands import severity_colour
from strata.hardware.bmc.commands.bmc import NODE, SELECT, number, show_of_each

SENSORS = (
    ls.plain("node"),
    ls.plain("name"),
    ls.plain("kind"),
    ls.Field("value", lambda item: number(item["value"]), key=lambda item: item["value"] or 0, right=True),
    ls.plain("unit"),
    ls.plain("health", colour=severity_colour),
    ls.Field("low", lambda item: number(item["low"]), right=True, shown=False),
    ls.Field("high", lambda item: number(item["high"]), right=True),
    ls.plain("doubt"),
)


@select_help
@click.command()
@SELECT
@click.option("--kind", default="", help="Only temperature, fan, power, voltage, ...")
@ls.listing(SENSORS)
def sensors(session: Session, select: tuple[str, ...], kind: str, view: ls.Listing) -> None:
    """Read the sensors of nodes, now.

    \b
    Example: strata hardware sensors n[1-4] --kind temperature --sort -value
    """
    show_of_each(session, "/v1/bmc/sensors", select, "readings", SENSORS, view, kind=kind)


ENTRIES = (
    ls.plain("id"),
    ls.moment("time"),
    ls.plain("severity", colour=severity_colour),
    ls.plain("message"),
    ls.plain("sensor", shown=False),
    ls.plain("message_id", shown=False),
)


@click.command()
@NODE
@click.option("--after", default="", metavar="ID", help="Only what came after this entry.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Show at most this many entries."
)
@ls.listing(ENTRIES)
def log(session: Session, node: str, after: str, limit: int, view: ls.Listing) -> None:
    """Show the event log that a node's BMC keeps.

    \b
    Example: strata hardware log n7
    """
    found = session.client.get(f"/v1/nodes/{segment(node)}/bmc/log", {"after": after, "limit": limit})
    ls.show(session, ENTRIES, found["items"], view)
