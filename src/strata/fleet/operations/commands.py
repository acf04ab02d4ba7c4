"""``strata operation``: work on many nodes that the service does by itself; followed and cancelled here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import state_colour
from strata.cli.session import Session
from strata.cli.times import DURATION
from strata.cli.words import complete_operation, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("id"),
    ls.plain("kind"),
    ls.plain("state", colour=state_colour),
    ls.number("done"),
    ls.number("failed"),
    ls.number("total"),
    ls.plain("author"),
    ls.moment("created"),
    ls.moment("finished"),
)


@click.group()
def operation() -> None:
    """Follow and cancel work on many nodes."""


@operation.command("list")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show at most this many, the newest."
)
@ls.listing(FIELDS)
def list_(session: Session, limit: int, view: ls.Listing) -> None:
    """List operations, the newest first.

    \b
    Example: strata operation list --match state=running
    """
    ls.show(session, FIELDS, session.client.pages("/v1/operations", limit=limit), view)


@operation.command()
@click.argument("ident", metavar="OPERATION", shell_complete=complete_operation)
@ls.json_option
def show(session: Session, ident: str, as_json: bool) -> None:
    """Show one operation and its first errors.

    \b
    Example: strata operation show 7f3a
    """
    _report(session, session.client.get(f"/v1/operations/{segment(ident)}"), as_json)


@operation.command()
@click.argument("ident", metavar="OPERATION", shell_complete=complete_operation)
@ls.json_option
def cancel(session: Session, ident: str, as_json: bool) -> None:
    """Ask an operation to stop; what it has done stays done.

    \b
    Example: strata operation cancel 7f3a
    """
    from strata.cli.progress import FINISHED

    found = session.client.post(f"/v1/operations/{segment(ident)}/cancel")
    _report(session, found, as_json)
    if found["state"] not in FINISHED:
        session.out.note(f"asked to stop; it ends after what it does now: strata operation wait {found['id']}")


@operation.command()
@click.argument("ident", metavar="OPERATION", shell_complete=complete_operation)
@click.option("--timeout", type=DURATION, default="1d", show_default=True, help="Wait at most this long.")
@ls.json_option
def wait(session: Session, ident: str, timeout: float, as_json: bool) -> None:
    """Wait until an operation has ended. The exit code is 1 if it failed, was cancelled, or takes longer.

    \b
    Example: strata operation wait 7f3a --timeout 10m
    """
    from strata.cli.progress import wait_operation

    client = session.client
    found = client.get(f"/v1/operations/{segment(ident)}")
    found = wait_operation(client, found, session.out, deadline=time.monotonic() + timeout)
    _report(session, found, as_json)
    if found["state"] != "done" or found["failed"]:
        exits.leave(exits.ERROR)


def _report(session: Session, found: Json, as_json: bool) -> None:
    if as_json:
        session.out.json(found)
        return
    session.out.fields((field.name, field.text(found)) for field in FIELDS)
    for error in found.get("errors", ()):
        session.out.line(f"  {error['node']}: {error['detail']}")
    more = int(found["failed"]) - len(found.get("errors", ()))
    if more > 0:
        session.out.line(f"  and {more} more")
