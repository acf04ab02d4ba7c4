"""``strata system``: a whole machine started and stopped in order."""

from __future__ import annotations

from pathlib import Path

import click

from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.reading import read_text
from strata.cli.session import Session

FIELDS = (
    ls.plain("name"),
    ls.Field("after", lambda item: ", ".join(item["after"]) or "-"),
    ls.number("nodes"),
    ls.number("up"),
    ls.number("down"),
    ls.Field("not up", lambda item: item["missing"] or "-"),
)


@click.group()
def system() -> None:
    """Start and stop a whole machine, stage by stage, in the order of their needs."""


@system.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@ls.json_option
def put(session: Session, file: Path, as_json: bool) -> None:
    """Say which stages the machine is made of, and what each needs. FILE is YAML; - is standard input.

    \b
    Example: strata system put system.yaml
    """
    import msgspec

    from strata.platform.flows.files import read_system

    spec = read_system(read_text(file), str(file))
    found = session.client.put("/v1/system", msgspec.to_builtins(spec))
    session.out.answer(as_json, found, f"the system has {many(len(found['stages']), 'stage')}")


@system.command()
@ls.listing(FIELDS)
def status(session: Session, view: ls.Listing) -> None:
    """Show the state of each stage, in the order in which they are started.

    \b
    Example: strata system status
    """
    found = session.client.get("/v1/system/status")
    ls.show(session, FIELDS, found["stages"], view)
    if found["operation"]:
        session.out.note(f"being started or stopped: strata flow status {found['operation']}")


def _run(
    session: Session, what: str, stages: tuple[str, ...], confirm: str, dry_run: bool, wait: bool, as_json: bool
) -> None:
    from strata.platform.flows.commands.flow import ask_words, begun, show_plan

    body = {"stages": list(stages), "confirm": confirm}
    if dry_run or (what == "stop" and not confirm):
        plan = session.client.post(f"/v1/system/{what}/plan", body)
        if dry_run:
            show_plan(session, plan, as_json)
            return
        body["confirm"] = ask_words(session, plan["confirm"], "This stops the machine, the last stage first.")
    begun(session, session.client.post(f"/v1/system/{what}", body), wait, as_json)


@system.command()
@click.argument("stages", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only show what would be done now.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit code 1 if it failed.")
@ls.json_option
def start(session: Session, stages: tuple[str, ...], dry_run: bool, wait: bool, as_json: bool) -> None:
    """Start the machine, or STAGES and all that they need. What is up already takes no time.

    \b
    Example: strata system start --wait
             strata system start storage --dry-run
    """
    _run(session, "start", stages, "", dry_run, wait, as_json)


@system.command()
@click.argument("stages", nargs=-1)
@click.option("--confirm", default="", metavar="TEXT", help="'stop N nodes', for scripts. Default: ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done now.")
@click.option("--wait", is_flag=True, help="Wait until it has ended; exit code 1 if it failed.")
@ls.json_option
def stop(session: Session, stages: tuple[str, ...], confirm: str, dry_run: bool, wait: bool, as_json: bool) -> None:
    """Stop the machine, or STAGES and all that need them. The last stage comes first, each when its last job has ended.

    \b
    Example: strata system stop --dry-run
             strata system stop --confirm 'stop 256 nodes' --wait
    """
    _run(session, "stop", stages, confirm, dry_run, wait, as_json)
