"""``strata playbook``: playbooks that the service runs, and which nodes have had them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session
from strata.cli.times import when
from strata.cli.words import complete_select, no_blank, select_help

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.plain("select"),
    ls.Field("commit", lambda item: item["commit"][:12]),
    ls.plain("path"),
    ls.number("nodes"),
    ls.number("done"),
    ls.number("failing"),
    ls.number("waiting"),
    ls.plain("trouble"),
    ls.plain("url", shown=False),
)


def _with_failures(session: Session, found: Json) -> None:
    session.out.fields((field.name, field.text(found)) for field in FIELDS)
    for one in found["failures"]:
        tries = f"tried {one['tries']} times, again at {when(one['after'])}"
        session.out.line(f"  {one['node']}: {one['why']} ({tries})")


@click.group()
def playbook() -> None:
    """Show the repository's playbooks, and on which nodes they have run.

    A document 'kind: playbook' of the repository names one, pinned to a commit, and the nodes it must be run on.
    """


PLAYBOOKS = Named(playbook, "playbook", "/v1/playbooks", FIELDS, report=_with_failures)
PLAYBOOKS.list("List the playbooks, and on how many nodes each has run.", "strata playbook list")
PLAYBOOKS.show("Show one playbook, and on which nodes it failed.", "strata playbook show base")


@select_help
@playbook.command()
@click.argument("name")
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@ls.json_option
def again(session: Session, name: str, select: tuple[str, ...], as_json: bool) -> None:
    """Run a playbook again on nodes, whether it succeeded or failed there.

    \b
    Example: strata playbook again base n[1-4]
    """
    body = {"select": " ".join(select)}
    PLAYBOOKS.report(session, session.client.post(f"{PLAYBOOKS.path(name)}/again", body), as_json)
