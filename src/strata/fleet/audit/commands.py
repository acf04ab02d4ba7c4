"""``strata audit``: who did what, and whether the record of it is whole."""

from __future__ import annotations

from collections import deque

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import LONG, Session
from strata.cli.times import WHEN

FIELDS = (
    ls.number("seq"),
    ls.moment("time"),
    ls.plain("author"),
    ls.plain("action"),
    ls.plain("target"),
    ls.plain("detail"),
    ls.plain("hash", shown=False),
)


@click.group()
def audit() -> None:
    """Show and verify the audit log."""


@audit.command("list")
@click.option("--from", "first", type=click.IntRange(min=0), default=0, metavar="SEQ", help="From this record on.")
@click.option("--since", type=WHEN, help="Only records since then: 1h (an hour ago), or a date.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Show at most this many records, the newest.",
)
@ls.listing(FIELDS)
def list_(session: Session, first: int, since: float | None, limit: int, view: ls.Listing) -> None:
    """List records, the newest last.

    \b
    Example: strata audit list --since 1d --match author=alice
    """
    records = session.client.pages("/v1/audit", {"since": first})
    ls.show(session, FIELDS, deque((r for r in records if since is None or r["time"] >= since), maxlen=limit), view)


@audit.command()
@ls.json_option
def verify(session: Session, as_json: bool) -> None:
    """Check the chain of hashes over the whole log; exit code 1 if it is broken.

    \b
    Example: strata audit verify
    """
    found = session.connect(session.url, timeout=LONG).get("/v1/audit/verify")
    if as_json:
        session.out.json(found)
    elif found["ok"]:
        session.out.line(f"the audit log is whole: {many(found['count'], 'record')}", colour="green")
    else:
        session.out.line(f"the audit log is broken at record {found['first_bad']}: {found['reason']}", colour="red")
    if not found["ok"]:
        exits.leave(exits.ERROR)
