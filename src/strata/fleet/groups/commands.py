"""``strata group``: named sets of nodes, written ``@name`` in selectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.session import Session, pass_session
from strata.cli.words import complete_group, complete_select, items, segment
from strata.core.errors import Conflict

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.number("count"),
    ls.plain("members"),
    ls.Field("description", lambda item: item.get("description") or "-"),
    ls.number("revision", shown=False),
)


@click.group()
def group() -> None:
    """Name sets of nodes."""


@group.command("list")
@ls.listing(FIELDS, sort="name")
@pass_session
def list_(session: Session, view: ls.Listing) -> None:
    """List the groups.

    \b
    Example: strata group list --sort -count
    """
    ls.show(session, FIELDS, items(session.client.get("/v1/groups")), view)


@group.command()
@click.argument("name", shell_complete=complete_group)
@ls.json_option
@pass_session
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one group.

    \b
    Example: strata group show gpu
    """
    _report(session, session.client.get(f"/v1/groups/{segment(name)}"), as_json)


@group.command()
@click.argument("name")
@click.argument("members", nargs=-1, shell_complete=complete_select)
@click.option("--description", default="", help="What it is for.")
@ls.json_option
@pass_session
def create(session: Session, name: str, members: tuple[str, ...], description: str, as_json: bool) -> None:
    """Create a group; exit code 5 if it is there already.

    \b
    Example: strata group create gpu n[0001-0008] --description 'nodes with GPUs'
    """
    try:
        reply = session.client.request(
            "PUT",
            f"/v1/groups/{segment(name)}",
            body={"members": ",".join(members), "description": description},
            headers={"If-None-Match": "*"},
        )
    except Conflict as error:
        raise Conflict(
            "it is there already", revision=error.revision, where=f"group {name}", hint="strata group add adds nodes"
        ) from None
    _report(session, reply.body, as_json)


@group.command()
@click.argument("name", shell_complete=complete_group)
@click.argument("members", nargs=-1, required=True, shell_complete=complete_select)
@ls.json_option
@pass_session
def add(session: Session, name: str, members: tuple[str, ...], as_json: bool) -> None:
    """Add nodes to a group.

    \b
    Example: strata group add gpu n[0009-0012]
    """
    _members(session, name, {"add": ",".join(members)}, as_json)


@group.command()
@click.argument("name", shell_complete=complete_group)
@click.argument("members", nargs=-1, required=True, shell_complete=complete_select)
@ls.json_option
@pass_session
def remove(session: Session, name: str, members: tuple[str, ...], as_json: bool) -> None:
    """Take nodes out of a group.

    \b
    Example: strata group remove gpu n0009
    """
    _members(session, name, {"remove": ",".join(members)}, as_json)


@group.command()
@click.argument("name", shell_complete=complete_group)
@ls.json_option
@pass_session
def delete(session: Session, name: str, as_json: bool) -> None:
    """Delete a group; its nodes stay.

    \b
    Example: strata group delete gpu
    """
    session.client.request("DELETE", f"/v1/groups/{segment(name)}")
    session.out.answer(as_json, {"deleted": name}, f"deleted group {name}")


def _members(session: Session, name: str, change: dict[str, str], as_json: bool) -> None:
    reply = session.client.request("POST", f"/v1/groups/{segment(name)}/members", body=change)
    _report(session, reply.body, as_json)


def _report(session: Session, found: Json, as_json: bool) -> None:
    if as_json:
        session.out.json(found)
    else:
        session.out.fields((field.name, found.get(field.name)) for field in FIELDS)
