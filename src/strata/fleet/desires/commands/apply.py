"""``strata apply``: make the service hold what files say of nodes, groups and desires.

All of it goes in one request, which the service checks as a whole before it changes anything. Nodes beyond ``PART`` go
ahead of that in requests of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli.listing import json_option
from strata.cli.output import Column, many
from strata.cli.session import Session, pass_session

if TYPE_CHECKING:
    from strata.cli.client import Json
    from strata.cli.files import Bundle

ACTION_COLOURS = {"created": "green", "changed": "yellow", "deleted": "red"}
PART = 2000
"""Nodes in one request."""


@click.command()
@click.option(
    "-f",
    "--file",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="YAML file, directory of them, or - for stdin. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--prune", is_flag=True, help="Delete desire documents that are in none of the files.")
@json_option
@pass_session
def apply(session: Session, paths: tuple[Path, ...], dry_run: bool, prune: bool, as_json: bool) -> None:
    """Apply nodes, groups and desires from YAML files. Applying twice changes nothing the second time.

    Of a node that exists, only what a file says is changed; 'strata node edit' empties a field.

    \b
    Example: strata apply -f site/ --dry-run
    A file holds documents parted by '---':
      kind: desire             kind: group              kind: nodes
      name: compute-ready      name: gpu                nodes: n[0001-0064]
      select: "@compute"       members: n[0001-0008]    role: compute
      set: {power: on}         description: with GPUs   labels: {rack: "7"}
      priority: 10
    """
    from strata.cli.files import read_bundle

    bundle = read_bundle(paths)
    if not any(bundle) and not prune:
        raise click.UsageError("the files hold no documents")
    changes = _applied(session, bundle, prune=prune, dry_run=dry_run)
    if as_json:
        session.out.json({"dry_run": dry_run, "changes": changes})
        return
    _show(session, changes, dry_run=dry_run)
    for change in changes:
        for group in change["missing"]:
            place = bundle.places.get(("desire", change["name"]), change["name"])
            session.out.note(f"{place}: there is no group {group}; nobody is meant by it until there is one")


def _show(session: Session, changes: list[Json], *, dry_run: bool) -> None:
    moved = [change for change in changes if change["action"] != "unchanged"]
    if moved:
        columns = [Column("kind"), Column("name"), Column("action", _action_colour), Column("detail")]
        rows = [(change["kind"], change["name"], change["action"], change["detail"] or "-") for change in moved]
        session.out.table(columns, rows)
    same = sum(1 for change in changes if change["action"] == "unchanged")
    session.out.line(f"{len(moved)} {'would change' if dry_run else 'changed'}, {same} unchanged")


def _action_colour(action: str) -> str:
    return ACTION_COLOURS.get(action, "")


def _applied(session: Session, bundle: Bundle, *, prune: bool, dry_run: bool) -> list[Json]:
    """What changed, or would."""
    parts = [bundle.nodes[start : start + PART] for start in range(0, max(1, len(bundle.nodes)), PART)]
    ahead, last = parts[:-1], parts[-1]
    changes: list[Json] = []
    if ahead and not dry_run:
        for part in parts:  # whatever is wrong with any of them is found before the first is written
            _ask(session, bundle, {"nodes": part, "documents": [], "dry_run": True})
    for part in ahead:
        changes += _ask(session, bundle, {"nodes": part, "documents": [], "dry_run": dry_run})
    body = {"nodes": last, "groups": bundle.groups, "documents": bundle.desires, "prune": prune, "dry_run": dry_run}
    return changes + _ask(session, bundle, body)


def _ask(session: Session, bundle: Bundle, body: Json) -> list[Json]:
    from strata.core.errors import StrataError

    try:
        report = session.client.request("POST", "/v1/apply", body=body).body
    except StrataError as error:
        place = bundle.place_of(error.where)
        if place:
            error.where = f"{place}: {error.where}"
        raise
    return [
        {
            "kind": found["kind"],
            "name": found["name"] or many(int(found["nodes"]), found["kind"]),
            "action": found["action"],
            "detail": found.get("detail") or many(int(found["nodes"]), "node"),
            "missing": list(found.get("missing", ())),
        }
        for found in report["changes"]
    ]
