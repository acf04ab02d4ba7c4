"""``strata note``: what people want to remember of nodes."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.session import Session
from strata.cli.words import segment

FIELDS = (ls.plain("node"), ls.plain("text"))


@click.group()
def note() -> None:
    """Remember something of a node."""


@note.command("list")
@ls.listing(FIELDS, sort="node")
def list_(session: Session, view: ls.Listing) -> None:
    """List the notes.

    \b
    Example: strata note list
    """
    ls.show(session, FIELDS, session.client.get("/v1/notes")["items"], view)


@note.command()
@click.argument("node")
@click.argument("text")
@ls.json_option
def put(session: Session, node: str, text: str, as_json: bool) -> None:
    """Write down TEXT about NODE.

    \b
    Example: strata note put n0042 'fan 3 rattles'
    """
    found = session.client.put(f"/v1/notes/{segment(node)}", {"text": text})
    session.out.answer(as_json, found, f"noted of {found['node']}: {found['text']}")
