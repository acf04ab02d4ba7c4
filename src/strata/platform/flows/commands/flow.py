"""``strata flow``: named sequences of steps over nodes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import Column, many, state_colour
from strata.cli.session import Session
from strata.cli.times import span, when
from strata.cli.words import complete_operation, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.Field("steps", lambda item: len(item["steps"]), key=lambda item: len(item["steps"]), right=True),
    ls.plain("description"),
    ls.plain("author"),
)


@click.group()
def flow() -> None:
    """Run steps over nodes in order, tracked and resumable. Steps change desires, wait, or run commands."""


def _read(text: str, source: str) -> Mapping[str, Any]:
    from strata.platform.flows.files import read_flows

    return read_flows(text, source)


def _with_steps(session: Session, found: Json) -> None:
    session.out.fields((("name", found["name"]), ("description", found["description"]), ("author", found["author"])))
    session.out.line()
    for step in found["steps"]:
        more = " ".join(f"{key}={value}" for key, value in step.items() if key not in ("name", "nodes"))
        session.out.line(f"{step['name']}: {step.get('nodes', '*')}: {more}")


FLOWS = Named(flow, "flow", "/v1/flows", FIELDS, report=_with_steps)
FLOWS.list("List the flows.", "strata flow list")
FLOWS.show("Show a flow and its steps.", "strata flow show night")
FLOWS.put_files(
    _read,
    lambda found: many(len(found["steps"]), "step"),
    "Declare the flows that FILES (YAML; - is standard input) hold, or change them. All are read before any is put.",
    "strata flow put night.yaml",
)
FLOWS.delete("Forget a flow. Runs that are under way go on.", "strata flow delete night")


@flow.command()
@click.argument("name")
@click.option("--from", "start", default="", metavar="STEP", help="Begin with this step.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done now.")
@click.option("--now", is_flag=True, help="Wait for nothing: begin each step right after the one before.")
@click.option("--reason", default="", help="Why; it goes into the audit log. Needed with --now.")
@click.option("--confirm", default="", metavar="TEXT", help="'run NAME now on N nodes', for scripts with --now.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit code 1 if it failed.")
@ls.json_option
def run(
    session: Session,
    name: str,
    start: str,
    dry_run: bool,
    now: bool,
    reason: str,
    confirm: str,
    wait: bool,
    as_json: bool,
) -> None:
    """Run a flow. Cancel it with 'strata operation cancel'; what it has done stays done.

    \b
    Example: strata flow run night --dry-run
             strata flow run night --wait
             strata flow run patch --now --reason 'CVE-2026-1234'
    """
    path = f"/v1/flows/{segment(name)}"
    body = {"start": start, "now": now, "reason": reason, "confirm": confirm}
    if dry_run or (now and not confirm):
        plan = session.client.post(f"{path}/plan", body)
        if dry_run:
            show_plan(session, plan, as_json)
            return
        body["confirm"] = ask_words(session, plan["confirm"], "This waits for nothing and nobody.")
    begun(session, session.client.post(f"{path}/run", body), wait, as_json)


@flow.command()
@click.argument("ident", metavar="OPERATION", shell_complete=complete_operation)
@ls.json_option
def status(session: Session, ident: str, as_json: bool) -> None:
    """Show how far a run is, step by step.

    \b
    Example: strata flow status 7f3a
    """
    show_run(session, session.client.get(f"/v1/flow-runs/{segment(ident)}"), as_json)


def show_plan(session: Session, plan: Json, as_json: bool) -> None:
    """What would be done."""
    if as_json:
        session.out.json(plan)
        return
    for number, step in enumerate(plan["steps"], 1):
        whom = f"on {many(step['nodes'], 'node')}: {step['nodeset']}" if step["nodes"] else "on nobody now"
        session.out.line(f"{number}. {step['name']}: {step['does']} {whom}")
        if step["totals"]:
            done = ", ".join(f"{mutation} {count}" for mutation, count in step["totals"].items())
            hurts = f"; disrupts {many(step['disrupts'], 'node')}" if step["disrupts"] else ""
            session.out.line(f"   {done}; about {span(step['seconds'])}{hurts}")
    if plan["confirm"]:
        session.out.note(f"to do it, confirm with: {plan['confirm']}")


def ask_words(session: Session, words: str, what: str) -> str:
    """Have the person type what is about to be done."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"not a terminal, so nobody can be asked to confirm: add --confirm '{words}'")
    session.out.note(what)
    said = str(click.prompt(f"Type '{words}' to go on", err=True))
    if said.strip().lower() != words.lower():
        raise click.Abort
    return said


def begun(session: Session, operation: Json, wait: bool, as_json: bool) -> None:
    """A run was accepted: say so, or stay until it has ended."""
    if not wait:
        said = f"operation {operation['id']}: strata flow status {operation['id']}"
        session.out.answer(as_json, operation, said)
        return
    from strata.cli.progress import wait_operation

    operation = wait_operation(session.client, operation, session.out)
    show_run(session, session.client.get(f"/v1/flow-runs/{segment(operation['id'])}"), as_json)
    if operation["state"] != "done":
        exits.leave(exits.ERROR)


def show_run(session: Session, found: Json, as_json: bool) -> None:
    """How far a run is."""
    if as_json:
        session.out.json(found)
        return
    operation = found["operation"]
    session.out.fields(
        (
            ("flow", found["flow"]),
            ("operation", operation["id"]),
            ("state", operation["state"]),
            ("author", operation["author"]),
            ("began", when(operation["created"])),
            ("ended", when(operation["finished"]) if operation.get("finished") else ""),
        )
    )
    rows = [
        (step["name"], step["does"], step["state"], step["nodes"], step["failed"], _took(step))
        for step in found["steps"]
    ]
    session.out.line()
    titles = (Column("step"), Column("does"), Column("state", state_colour), *map(Column, ("nodes", "failed", "took")))
    session.out.table(titles, rows)
    for error in operation.get("errors", ()):
        session.out.line(f"  {error['node'] or 'all'}: {error['detail']}")


def _took(step: Json) -> str:
    return span(step["ended"] - step["began"]) if step.get("ended") and step.get("began") else "-"
