"""``strata apply``: make the service hold what files say of nodes, groups and desires.

All of it goes in one request, which the service checks as a whole before it changes anything. Nodes beyond ``PART`` go
ahead of that in requests of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli.listing import json_option
from strata.cli.output import Column, many
from strata.cli.repository import OfRepository, of_repository
from strata.cli.session import Session
from strata.cli.waiting import arrival, wait_options

if TYPE_CHECKING:
    from strata.cli.client import Json
    from strata.cli.files import Bundle

ACTION_COLOURS = {"created": "green", "changed": "yellow", "deleted": "red"}
PART = 2000
"""Nodes in one request."""


@click.command(cls=OfRepository)
@click.argument("directory", required=False)
@click.option(
    "-f",
    "--file",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="YAML file, directory of them, or - for stdin. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@of_repository
@click.option("--prune", is_flag=True, help="Delete desire documents that are in none of the files.")
@wait_options
@json_option
def apply(
    session: Session,
    directory: str | None,
    paths: tuple[Path, ...],
    dry_run: bool,
    prune: bool,
    waiting: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Apply a site repository, or nodes, groups and desires from YAML files. Applying twice changes nothing the second
    time.

    DIRECTORY is a repository, as 'strata config apply' takes it: what is committed there is applied, all of it or
    nothing. Objects that an earlier commit created and this one no longer has are deleted. In a repository DIRECTORY
    may be left out.

    With -f the source is not tracked, so nothing is deleted without --prune. Of a node that exists, only the fields in
    the file are changed; to empty a field, use 'strata node edit'.

    \b
    Example: strata apply site --wait
             strata apply -f desires/ --dry-run
             strata apply -f desires/ --wait
    A file holds documents parted by '---':
      kind: desire             kind: group              kind: nodes
      name: compute-ready      name: gpu                nodes: n[0001-0064]
      select: "@compute"       members: n[0001-0008]    role: compute
      set: {power: on}         description: with GPUs   labels: {rack: "7"}
      priority: 10
    """
    from strata.cli.files import read_bundle

    if directory and not paths:
        what = "a file, not" if Path(directory).is_file() else "not"
        raise click.UsageError(f"{directory} is {what} a site repository; to apply files: strata apply -f {directory}")
    if directory or not paths:
        raise click.UsageError("name a repository (strata apply site) or files (strata apply -f desires/)")
    bundle = read_bundle(paths)
    if not any(bundle) and not prune:
        raise click.UsageError("the files hold no documents")
    changes, revision = _applied(session, bundle, prune=prune, dry_run=dry_run)
    if as_json:
        session.out.json({"dry_run": dry_run, "changes": changes})
    else:
        _show(session, changes, dry_run=dry_run)
        _warn(session, bundle, changes)
    if waiting and not dry_run:
        exits.leave(arrival(session, "*", timeout, revision=revision))


def _warn(session: Session, bundle: Bundle, changes: list[Json]) -> None:
    """Of groups that documents name and that are not there: they may come later, or be misspelt."""
    missing = [(change["name"], group) for change in changes for group in change["missing"]]
    if not missing:
        return
    import difflib

    known = [str(group["name"]) for group in session.client.get("/v1/groups")["items"]]
    known += [str(group["name"]) for group in bundle.groups]
    for name, group in missing:
        near = difflib.get_close_matches(group, known, n=1, cutoff=0.7)
        meant = f"; did you mean {near[0]}?" if near else ""
        place = bundle.places.get(("desire", name), name)
        session.out.note(f"{place}: there is no group {group} yet, and nobody is meant by it until there is{meant}")


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


def _applied(session: Session, bundle: Bundle, *, prune: bool, dry_run: bool) -> tuple[list[Json], int]:
    """What changed, or would, and at which revision."""
    parts = [bundle.nodes[start : start + PART] for start in range(0, max(1, len(bundle.nodes)), PART)]
    ahead, last = parts[:-1], parts[-1]
    changes: list[Json] = []
    if ahead and not dry_run:
        for part in parts:  # whatever is wrong with any of them is found before the first is written
            _ask(session, bundle, {"nodes": part, "documents": [], "dry_run": True})
    for part in ahead:
        changes += _ask(session, bundle, {"nodes": part, "documents": [], "dry_run": dry_run})[0]
    body = {"nodes": last, "groups": bundle.groups, "documents": bundle.desires, "prune": prune, "dry_run": dry_run}
    rest, revision = _ask(session, bundle, body)
    return changes + rest, revision


def _ask(session: Session, bundle: Bundle, body: Json) -> tuple[list[Json], int]:
    from strata.core.errors import StrataError

    try:
        report = session.client.post("/v1/apply", body)
    except StrataError as error:
        place = bundle.place_of(error.where)
        if place:
            error.where = f"{place}: {error.where}"
        raise
    changes = [
        {
            "kind": found["kind"],
            "name": found["name"] or many(int(found["nodes"]), found["kind"]),
            "action": found["action"],
            "detail": found.get("detail") or many(int(found["nodes"]), "node"),
            "missing": list(found.get("missing", ())),
        }
        for found in report["changes"]
    ]
    return changes, int(report["revision"])
