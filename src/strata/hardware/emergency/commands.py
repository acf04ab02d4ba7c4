"""``strata emergency-off``: the red button."""

from __future__ import annotations

import sys

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.words import complete_select, no_blank, select_help


@select_help
@click.command("emergency-off")
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@click.option("--reason", required=True, help="Why; it goes into the audit log and the freeze.")
@click.option("--confirm", default="", metavar="TEXT", help="'power off N nodes', for scripts. Default: ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would lose its power.")
@ls.json_option
def emergency_off(
    session: Session, select: tuple[str, ...], reason: str, confirm: str, dry_run: bool, as_json: bool
) -> None:
    """Cut the power of nodes, chassis or outlets at once, and keep it off. Nothing that runs on them is waited for.

    No guard and no budget is asked. The nodes are frozen first, so that nothing switches them on again until a person
    thaws them.

    \b
    Example: strata emergency-off @row3 --reason 'water under the floor'
             strata emergency-off location:x1000c0 --reason 'smoke' --dry-run
             strata emergency-off '*' --reason 'fire' --confirm 'power off 256 nodes'
    """
    chosen = " ".join(select)
    if dry_run:
        there = session.client.get("/v1/nodes", {"select": chosen, "folded": True})
        words = f"power off {many(there['total'], 'node')}"
        said = f"would take power away from {many(there['total'], 'node')}: {there['nodeset']}"
        said += f"; to do it, confirm with: {words}"
        session.out.answer(as_json, {"nodes": there["nodeset"], "total": there["total"], "confirm": words}, said)
        return
    if not confirm:
        confirm = _ask(session, chosen)
    body = {"select": chosen, "reason": reason, "confirm": confirm}
    report = session.client.post("/v1/emergency-off", body)
    outcome = report["outcome"]
    if as_json:
        session.out.json(report)
    else:
        session.out.line(f"off: {many(outcome['done_count'], 'node')} in {report['seconds']:.1f} s  {outcome['done']}")
        for failed in outcome["failed"]:
            session.out.line(f"NOT off: {failed['nodes']}: {failed['reason']}", colour="red")
        session.out.note(_how_to_lift(report["frozen"]))
    if outcome["failed_count"]:
        exits.leave(exits.ERROR)


def _ask(session: Session, select: str) -> str:
    """Have the person type what it is about to do."""
    found = session.client.get("/v1/nodes", {"select": select, "folded": True})
    words = f"power off {many(found['total'], 'node')}"
    if not sys.stdin.isatty():
        raise click.UsageError(f"not a terminal, so nobody can be asked to confirm: add --confirm '{words}'")
    session.out.note(f"This takes power away from {many(found['total'], 'node')}: {found['nodeset']}")
    session.out.note("What runs on them dies at once.")
    said = str(click.prompt(f"Type '{words}' to go on", err=True))
    if said.strip().lower() != words:
        raise click.Abort
    return said


def _how_to_lift(scopes: list[str]) -> str:
    first = scopes[0] if scopes else ""
    kind, _, name = first.partition(":")
    if kind == "fleet":
        return "frozen: the fleet. When it is over: strata thaw"
    if kind == "group":
        return f"frozen: group {name}. When it is over: strata thaw --group {name}"
    from strata.cli.output import fold

    return f"frozen. When it is over: strata thaw --node '{fold(scope.partition(':')[2] for scope in scopes)}'"
