"""``strata hardware events``: what happened to hardware, and what happens now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.session import Session
from strata.cli.times import WHEN, when
from strata.cli.words import complete_select, no_blank, select_help
from strata.hardware.alerts.commands import SEVERITY_COLOURS, severity_colour, subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strata.cli.client import Json

FIELDS = (
    ls.number("id", shown=False),
    ls.moment("time"),
    ls.plain("severity", colour=severity_colour),
    ls.Field("subject", subject),
    ls.plain("source"),
    ls.plain("message"),
    ls.plain("key", shown=False),
    ls.plain("message_id", shown=False),
    ls.plain("node", shown=False),
    ls.plain("bmc", shown=False),
    ls.plain("fields", shown=False),
)
_SEVERITIES = tuple(SEVERITY_COLOURS)


@select_help
@click.command()
@click.argument("select", nargs=-1, callback=no_blank, shell_complete=complete_select)
@click.option("--since", type=WHEN, help="Only those since then: 1h (an hour ago), or a date.")
@click.option("--severity", type=click.Choice(_SEVERITIES), default="ok", help="Only events of at least this severity.")
@click.option("--follow", "-f", is_flag=True, help="Go on as more happens, until interrupted; --json: one on a line.")
@click.option("--count", type=click.IntRange(min=1), help="With --follow: stop after this many.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Show at most this many events, the newest.",
)
@ls.listing(FIELDS)
def events(
    session: Session,
    select: tuple[str, ...],
    since: float | None,
    severity: str,
    follow: bool,
    count: int | None,
    limit: int,
    view: ls.Listing,
) -> None:
    """Show events of the selected nodes' hardware, the newest last.

    \b
    Example: strata hardware events --since 1h --severity warning
             strata hardware events @compute --follow
    """
    query = {"select": " ".join(select), "severity": severity, "since": None if since is None else f"{since:f}"}
    if not follow:
        found = list(session.client.pages("/v1/hardware/events", query, limit=limit))[::-1]
        ls.show(session, FIELDS, found, view)
        return
    if view.columns or view.match or view.sort:
        raise click.UsageError("--columns, --match and --sort are for lists, not for --follow")
    for shown, item in enumerate(_followed(session, query, severity, limit, past=since is not None), 1):
        if view.json:
            session.out.json_line(item)
        else:
            session.out.line(_line(item), colour=severity_colour(item.get("severity", "")))
        if shown == count:
            return


def _followed(
    session: Session, query: dict[str, str | None], severity: str, limit: int, *, past: bool
) -> Iterator[Json]:
    """What has happened, if that is wanted, then what happens; nothing twice and nothing left out in between."""
    last: int | None = None
    if past:
        newest = session.client.get("/v1/hardware/events", {"select": query["select"], "limit": 1})["items"]
        found = list(session.client.pages("/v1/hardware/events", query, limit=limit))[::-1]
        yield from found
        last = (found or newest or [{"id": 0}])[-1]["id"]
    wanted = _SEVERITIES[_SEVERITIES.index(severity) :]
    for event in session.client.events("/v1/hardware/events/follow", {"select": query["select"], "since": last}):
        if event.kind == "compacted":
            session.out.note("some events are gone: list them to see what is left")
        elif event.data["severity"] in wanted:
            yield event.data


def _line(item: Json) -> str:
    return f"{when(item['time'])}  {item['severity']:<8}  {subject(item)}  {item['message']}"
