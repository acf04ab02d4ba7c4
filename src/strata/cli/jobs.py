"""``strata jobs``: work on many nodes that the service does by itself; followed and cancelled here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import state_colour
from strata.cli.session import Session, pass_session
from strata.cli.times import DURATION, when
from strata.cli.words import complete_job

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
    ls.Field("created", lambda item: when(item["created"]), key=lambda item: item["created"]),
    ls.Field("finished", lambda item: when(item.get("finished")), key=lambda item: item.get("finished") or 0),
)


@click.group()
def jobs() -> None:
    """Follow and cancel work on many nodes."""


@jobs.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Most jobs, the newest.")
@ls.listing(FIELDS)
@pass_session
def list_(session: Session, limit: int, view: ls.Listing) -> None:
    """List jobs, the newest first.

    \b
    Example: strata jobs list --match state=running
    """
    ls.show(session, FIELDS, session.client.pages("/v1/jobs", limit=limit), view)


@jobs.command()
@click.argument("job", shell_complete=complete_job)
@ls.json_option
@pass_session
def show(session: Session, job: str, as_json: bool) -> None:
    """Show one job and its first errors.

    \b
    Example: strata jobs show 7f3a
    """
    from strata.cli.client import segment

    _report(session, session.client.get(f"/v1/jobs/{segment(job)}"), as_json)


@jobs.command()
@click.argument("job", shell_complete=complete_job)
@ls.json_option
@pass_session
def cancel(session: Session, job: str, as_json: bool) -> None:
    """Ask a job to stop; what it has done stays done.

    \b
    Example: strata jobs cancel 7f3a
    """
    from strata.cli.client import segment
    from strata.cli.progress import FINISHED

    found = session.client.request("POST", f"/v1/jobs/{segment(job)}/cancel").body
    _report(session, found, as_json)
    if found["state"] not in FINISHED:
        session.out.note(f"asked to stop; it ends after what it does now (strata jobs wait {found['id']} waits for it)")


@jobs.command()
@click.argument("job", shell_complete=complete_job)
@click.option("--timeout", type=DURATION, default="1d", show_default=True, help="Longest wait.")
@ls.json_option
@pass_session
def wait(session: Session, job: str, timeout: float, as_json: bool) -> None:
    """Stay until a job has ended; exit code 1 if it failed, was cancelled, or takes longer.

    \b
    Example: strata jobs wait 7f3a --timeout 10m
    """
    from strata.cli.client import segment
    from strata.cli.progress import wait_job

    client = session.client
    found = client.get(f"/v1/jobs/{segment(job)}")
    found = wait_job(client, found, session.out, deadline=time.monotonic() + timeout)
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
