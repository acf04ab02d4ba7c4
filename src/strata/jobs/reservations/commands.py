"""``strata job reservation``: nodes kept free for some, for a time."""

from __future__ import annotations

import time

import click

from strata.cli import listing as ls
from strata.cli.session import Session
from strata.cli.times import DURATION, WHEN
from strata.cli.words import segment

FIELDS = (
    ls.plain("target"),
    ls.plain("id"),
    ls.plain("name"),
    ls.plain("state"),
    ls.moment("start"),
    ls.moment("end"),
    ls.Field("accounts", lambda item: ",".join(item["accounts"])),
    ls.Field("nodes", lambda item: ",".join(item["nodes"])),
)


@click.group()
def reservation() -> None:
    """Reserve nodes for some accounts for a time."""


@reservation.command("list")
@click.option("--target", help="Only reservations of this target.")
@ls.listing(FIELDS)
def list_(session: Session, target: str | None, view: ls.Listing) -> None:
    """List reservations of all schedulers, as the schedulers report them now.

    \b
    Example: strata job reservation list
    """
    found = session.client.get("/v1/reservations", {"target": target})
    ls.show(session, FIELDS, found["items"], view)
    for one in found["unread"]:
        session.out.note(f"{one['target']} does not answer: {one['trouble']}")


@reservation.command()
@click.argument("name")
@click.option("--target", required=True, help="Scheduler that keeps the reservation.")
@click.option("--account", "accounts", multiple=True, required=True, help="Account that may use it; may be repeated.")
@click.option("--for", "length", type=DURATION, required=True, help="How long: 2h, 3d.")
@click.option("--in", "later", type=DURATION, help="Begin after this long. Default: now.")
@click.option("--at", type=WHEN, help="When it begins: '2026-12-01 08:00'.")
@click.option("-N", "--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="How many nodes.")
@click.option("-c", "--cores", type=click.IntRange(min=1), default=1, show_default=True, help="Cores on each node.")
@click.option("--queue", help="Queue that the nodes are of.")
@ls.json_option
def create(
    session: Session,
    name: str,
    target: str,
    accounts: tuple[str, ...],
    length: float,
    later: float | None,
    at: float | None,
    nodes: int,
    cores: int,
    queue: str | None,
    as_json: bool,
) -> None:
    """Reserve nodes of a scheduler for some accounts. Prints the id, which jobs name.

    \b
    Example: strata job reservation create course --target slurm --account ada -N 4 --in 2h --for 3h
             strata job submit --reservation course -- ./a.out
    """
    if later is not None and at is not None:
        raise click.UsageError("give one of --in and --at")
    body = {
        "target": target,
        "name": name,
        "accounts": list(accounts),
        "start": at if later is None else time.time() + later,
        "seconds": int(length),
        "nodes": nodes,
        "cores": cores,
        "queue": queue,
    }
    found = session.client.post("/v1/reservations", body)
    session.out.answer(as_json, found, found["id"])


@reservation.command()
@click.argument("target")
@click.argument("ident", metavar="ID")
@ls.json_option
def delete(session: Session, target: str, ident: str, as_json: bool) -> None:
    """End a reservation. Some schedulers end the jobs in it, others refuse while there are any.

    \b
    Example: strata job reservation delete slurm course
    """
    session.client.delete(f"/v1/reservations/{segment(target)}/{segment(ident)}")
    session.out.answer(as_json, {"ended": ident}, f"ended {ident}")
