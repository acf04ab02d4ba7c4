"""``strata alert``: the troubles that somebody should look after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.times import when
from strata.cli.words import complete_alert, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

SEVERITY_COLOURS = {"ok": "green", "warning": "yellow", "critical": "red"}
_AT_ONCE = 10_000


def severity_colour(text: str) -> str:
    """The colour for a severity, or none."""
    return SEVERITY_COLOURS.get(text, "")


def subject(item: Json) -> str:
    """Whom an event or alert is about."""
    return item.get("node") or item.get("bmc") or "-"


FIELDS = (
    ls.plain("id"),
    ls.plain("severity", colour=severity_colour),
    ls.plain("state"),
    ls.Field("subject", subject),
    ls.moment("first"),
    ls.moment("last"),
    ls.number("count"),
    ls.plain("message"),
    ls.plain("by", shown=False),
    ls.plain("note", shown=False),
    ls.plain("key", shown=False),
    ls.plain("node", shown=False),
    ls.plain("bmc", shown=False),
    ls.plain("fields", shown=False),
)


@click.group()
def alert() -> None:
    """See what is wrong with hardware, and who looks after it."""


@alert.command("list")
@click.option("--all", "everything", is_flag=True, help="Also alerts that are over.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Show at most this many alerts."
)
@ls.listing(FIELDS)
def list_(session: Session, everything: bool, limit: int, view: ls.Listing) -> None:
    """List alerts, the worst first, then the newest.

    \b
    Example: strata alert list
             strata alert list --all --match state=over --columns subject,first,last,message
    """
    found = session.client.pages("/v1/alerts", {"all": everything or None}, limit=limit)
    ls.show(session, FIELDS, found, view)


@alert.command()
@click.argument("ident", metavar="ID", shell_complete=complete_alert)
@ls.json_option
def show(session: Session, ident: str, as_json: bool) -> None:
    """Show one alert, open or over, with everything that is known of it. As much of its ID will do as no other
    alert has.

    \b
    Example: strata alert show 5f0c
    """
    found = session.client.get(f"/v1/alerts/{segment(ident)}")
    if as_json:
        session.out.json(found)
        return
    looked_after = f"{found['by']}: {found['note']}" if found["note"] else found["by"]
    session.out.fields(
        (
            ("id", found["id"]),
            ("severity", found["severity"]),
            ("state", found["state"]),
            ("node", found["node"]),
            ("bmc", found["bmc"]),
            ("message", found["message"]),
            ("first", when(found["first"])),
            ("last", when(found["last"])),
            ("count", found["count"]),
            ("looked after by", looked_after),
            ("key", found["key"]),
            *sorted(found["fields"].items()),
        )
    )


@alert.command()
@click.argument("idents", metavar="ID...", nargs=-1, shell_complete=complete_alert)
@click.option("--all", "everything", is_flag=True, help="Every alert that is open now.")
@click.option("--note", default="", help="What is being done about it.")
@ls.json_option
def ack(session: Session, idents: tuple[str, ...], everything: bool, note: str, as_json: bool) -> None:
    """Acknowledge alerts: say that you look after them. An alert that gets worse, or comes back, is open again. As much
    of an ID will do as no other alert has.

    \b
    Example: strata alert ack 5f0c2a9b7c1d3e4f5a6b --note 'fan ordered'
    """
    if bool(idents) == everything:
        raise click.UsageError("give the IDs of alerts, or --all")
    chosen = list(idents)
    if everything:
        chosen = [item["id"] for item in session.client.pages("/v1/alerts") if item["state"] == "open"]
    done: list[Json] = []
    for i in range(0, len(chosen), _AT_ONCE):
        body = {"ids": chosen[i : i + _AT_ONCE], "note": note}
        done += session.client.post("/v1/alerts/acknowledge", body)["items"]
    session.out.answer(as_json, done, f"acknowledged {many(len(done), 'alert')}")
