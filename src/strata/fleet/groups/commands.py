"""``strata group``: named sets of nodes, written ``@name`` in selectors."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session
from strata.cli.words import complete_group, complete_select
from strata.core.errors import Conflict

FIELDS = (
    ls.plain("name"),
    ls.number("count"),
    ls.plain("members"),
    ls.plain("description"),
    ls.number("revision", shown=False),
)


@click.group()
def group() -> None:
    """Name sets of nodes."""


GROUPS = Named(group, "group", "/v1/groups", FIELDS)
GROUPS.list("List the groups.", "strata group list --sort -count")
GROUPS.show("Show one group.", "strata group show gpu")
GROUPS.delete("Delete a group; its nodes stay.", "strata group delete gpu")


@group.command()
@click.argument("name")
@click.argument("members", nargs=-1, shell_complete=complete_select)
@click.option("--description", default="", help="What it is for.")
@ls.json_option
def create(session: Session, name: str, members: tuple[str, ...], description: str, as_json: bool) -> None:
    """Create a group; exit code 5 if it is there already.

    \b
    Example: strata group create gpu n[0001-0008] --description 'nodes with GPUs'
    """
    try:
        reply = session.client.request(
            "PUT",
            GROUPS.path(name),
            body={"members": ",".join(members), "description": description},
            headers={"If-None-Match": "*"},
        )
    except Conflict as error:
        raise Conflict(
            "it is there already", revision=error.revision, where=f"group {name}", hint="strata group add adds nodes"
        ) from None
    GROUPS.report(session, reply.body, as_json)


@group.command()
@click.argument("name", shell_complete=complete_group)
@click.argument("members", nargs=-1, required=True, shell_complete=complete_select)
@ls.json_option
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
def remove(session: Session, name: str, members: tuple[str, ...], as_json: bool) -> None:
    """Take nodes out of a group.

    \b
    Example: strata group remove gpu n0009
    """
    _members(session, name, {"remove": ",".join(members)}, as_json)


def _members(session: Session, name: str, change: dict[str, str], as_json: bool) -> None:
    GROUPS.report(session, session.client.post(f"{GROUPS.path(name)}/members", change), as_json)
