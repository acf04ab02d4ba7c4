"""``strata power queue``: which jobs wait, as power policies go by it."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.options import Between
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.times import span, when

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("job"),
    ls.plain("user"),
    ls.plain("queue"),
    ls.number("nodes"),
    ls.Field(
        "time limit",
        lambda i: "none" if i["time_limit"] is None else span(i["time_limit"]),
        lambda i: float("inf") if i["time_limit"] is None else i["time_limit"],
        right=True,
    ),
)


@click.group()
def queue() -> None:
    """Tell power policies which jobs wait, and how long the running ones still take."""


@queue.command("list")
@ls.listing(FIELDS)
def list_(session: Session, view: ls.Listing) -> None:
    """List the waiting jobs, as last imported. The job that starts next comes first.

    \b
    Example: strata power queue list
    """
    found = session.client.get("/v1/power/queue")
    ls.show(session, FIELDS, found["waiting"], view)
    if not view.json:
        session.out.note(_standing(found))


@queue.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
@click.option(
    "--good-for",
    type=Between(10, 86_400),
    default=600.0,
    show_default=True,
    help="Policies ignore it after this many seconds.",
)
@ls.json_option
def import_(session: Session, file: IO[str], good_for: float, as_json: bool) -> None:
    """Import the whole job queue, as ``squeue --json`` prints it. It replaces what was imported before.

    \b
    Example: strata power queue import queue.json --good-for 120
             squeue --json | strata power queue import
    """
    from strata.power.queue.squeue import read

    found = read(file.read())
    body = {**found.body, "good_for": good_for}
    told = session.client.post("/v1/power/queue", body)
    if as_json:
        session.out.json(told)
        return
    session.out.line(f"{many(len(told['waiting']), 'job')} waiting, {many(len(told['running']), 'job')} running")
    if found.not_yet:
        session.out.note(f"{many(found.not_yet, 'job')} left out: held, or waiting for another job or a date")
    if found.too_many:
        session.out.note(f"{many(found.too_many, 'job')} left out: only the first are told of")


def _standing(found: Json) -> str:
    if found["time"] is None:
        return "Nobody has told of the queue yet: squeue --json | strata power queue import"
    told = f"Told by {found['author']} at {when(found['time'])}; {many(len(found['running']), 'job')} running"
    return f"{told}." if found["fresh"] else f"{told}. It is too old: policies ignore it."
