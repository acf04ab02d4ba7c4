"""``strata hardware sensors`` and ``log``: what BMCs measure and remember."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.session import Session, pass_session
from strata.cli.times import when
from strata.cli.words import items, segment, select_help
from strata.hardware.bmc.commands.bmc import NODE, SELECT, number

if TYPE_CHECKING:
    from strata.cli.client import Json


def _colour(text: str) -> str:
    return {"ok": "green", "warning": "yellow", "critical": "red"}.get(text, "")


SENSORS = (
    ls.plain("node"),
    ls.plain("name"),
    ls.plain("kind"),
    ls.Field("value", lambda item: number(item["value"]), key=lambda item: item["value"] or 0, right=True),
    ls.plain("unit"),
    ls.plain("health", colour=_colour),
    ls.Field("low", lambda item: number(item["low"]), right=True, shown=False),
    ls.Field("high", lambda item: number(item["high"]), right=True),
    ls.plain("doubt"),
)


@select_help
@click.command()
@SELECT
@click.option("--kind", default="", help="Only temperature, fan, power, voltage, ...")
@ls.listing(SENSORS)
@pass_session
def sensors(session: Session, select: tuple[str, ...], kind: str, view: ls.Listing) -> None:
    """Read the sensors of nodes, now.

    \b
    Example: strata hardware sensors n[1-4] --kind temperature --sort -value
    """
    found = items(session.client.get("/v1/bmc/sensors", {"select": " ".join(select)}))
    rows: list[Json] = []
    for node in found:
        if node["trouble"]:
            session.out.note(f"{node['node']}: {node['trouble']}")
        rows += [{"node": node["node"], **one} for one in node["readings"] if not kind or one["kind"] == kind]
    ls.show(session, SENSORS, rows, view)
    exits.leave(exits.ERROR if found and all(node["trouble"] for node in found) else 0)


ENTRIES = (
    ls.plain("id"),
    ls.Field("time", lambda item: when(item["time"]), key=lambda item: item["time"] or 0),
    ls.plain("severity", colour=_colour),
    ls.plain("message"),
    ls.plain("sensor", shown=False),
    ls.plain("message_id", shown=False),
)


@click.command()
@NODE
@click.option("--after", default="", metavar="ID", help="Only what came after this entry.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Most entries.")
@ls.listing(ENTRIES)
@pass_session
def log(session: Session, node: str, after: str, limit: int, view: ls.Listing) -> None:
    """Show the event log that a node's BMC keeps.

    \b
    Example: strata hardware log n7
    """
    found = session.client.get(f"/v1/nodes/{segment(node)}/bmc/log", {"after": after, "limit": limit})
    ls.show(session, ENTRIES, items(found), view)
