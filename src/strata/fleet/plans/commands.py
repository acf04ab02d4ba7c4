"""``strata plan``: a dry run over many nodes, by class of nodes that have the same way to go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli.listing import json_option
from strata.cli.output import Column, many, state_colour
from strata.cli.repository import OfRepository, of_repository
from strata.cli.session import Session
from strata.cli.words import complete_set, no_blank, select_help, split, wanted

if TYPE_CHECKING:
    from strata.cli.client import Json


@select_help
@click.command(cls=OfRepository)
@click.argument(
    "words",
    nargs=-1,
    metavar="[DIRECTORY | SELECT [VARIABLE=VALUE]...]",
    callback=no_blank,
    shell_complete=complete_set,
)
@click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="Desire documents (YAML) that would be applied.",
)
@of_repository
@json_option
def plan(session: Session, words: tuple[str, ...], files: tuple[Path, ...], as_json: bool) -> None:
    """Show what applying a repository, or setting desires, would do to nodes. Changes nothing.

    DIRECTORY is a site repository, as 'strata config plan' takes it: its files as they are, or --branch or --commit. In
    a repository it may be left out.

    With SELECT, without desires: what is left to do for those that are set ('*': of all nodes). Exit code 3 if some
    nodes cannot get there.

    \b
    Example: strata plan site
             strata plan site --branch new-rack
             strata plan @compute image=v2
             strata plan -f desires/
    """
    select, assignments = split(words)
    request: Json = {"select": select or "*", "set": wanted(assignments)}
    if files:
        from strata.cli.files import read_bundle

        bundle = read_bundle(files)
        if bundle.nodes or bundle.groups:
            session.out.note("nodes and groups in the files are left out: a plan is for nodes that are there")
        request["documents"] = bundle.desires
    exits.leave(dry_run(session, request, as_json=as_json))


def dry_run(session: Session, request: Json, *, as_json: bool) -> int:
    """Ask for the plan and show it; the exit code."""
    answer = session.client.post("/v1/plan", request)
    if as_json:
        session.out.json(answer)
    else:
        show_classes(session, answer)
    return exits.UNREACHABLE if any(found["status"] == "unreachable" for found in answer["classes"]) else 0


def show_classes(session: Session, answer: Json) -> None:
    """Nodes by the way that they have to go, and how often each mutation is done."""
    rows = [
        (
            found["count"],
            found["nodeset"],
            found["status"],
            f"{found['cost']:g}",
            _way(found),
        )
        for found in answer["classes"]
    ]
    columns = [
        Column("count", right=True),
        Column("nodes"),
        Column("status", state_colour),
        Column("cost", right=True),
        Column("steps"),
    ]
    session.out.table(columns, rows)
    stuck = sum(found["count"] for found in answer["classes"] if found["status"] == "unreachable")
    parts = [f"{name} ×{count}" for name, count in answer["totals"].items()]
    parts += [f"{stuck} cannot get there"] if stuck else []
    session.out.line(f"{many(answer['nodes'], 'node')}: {', '.join(parts) or 'nothing to do'}")


def _way(found: Json) -> str:
    steps = " → ".join(step["mutation"] for step in found["steps"])
    reason = found.get("reason") or ""
    if steps and reason:
        return f"{steps} ({reason})"
    return steps or reason or "-"
