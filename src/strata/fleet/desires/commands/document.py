"""``strata document``: the desire documents that the service holds. ``strata apply`` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.session import Session, pass_session
from strata.cli.words import complete_document, items, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.plain("select"),
    ls.Field("set", lambda item: ",".join(f"{key}={'|'.join(values)}" for key, values in item["set"].items())),
    ls.number("priority"),
    ls.number("matches"),
    ls.plain("author"),
    ls.number("revision", shown=False),
)


@click.group()
def document() -> None:
    """List, show and delete desire documents ('strata apply' writes them)."""


@document.command("list")
@ls.listing(FIELDS, sort="name")
@pass_session
def list_(session: Session, view: ls.Listing) -> None:
    """List the documents, with how many nodes each selects.

    \b
    Example: strata document list --sort -priority
    """
    ls.show(session, FIELDS, items(session.client.get("/v1/documents")), view)


@document.command()
@click.argument("name", shell_complete=complete_document)
@ls.json_option
@pass_session
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one document.

    \b
    Example: strata document show compute-ready
    """
    found: Json = session.client.get(f"/v1/documents/{segment(name)}")
    if as_json:
        session.out.json(found)
    else:
        session.out.fields((field.name, field.text(found)) for field in FIELDS)


@document.command()
@click.argument("name", shell_complete=complete_document)
@ls.json_option
@pass_session
def delete(session: Session, name: str, as_json: bool) -> None:
    """Delete a document. Nodes keep what they are; nobody wants it of them any more.

    \b
    Example: strata document delete compute-ready
    """
    session.client.request("DELETE", f"/v1/documents/{segment(name)}")
    session.out.answer(as_json, {"deleted": name}, f"deleted document {name}")
