"""``strata rollout``: a change to many nodes, in waves: planned, simulated, started, followed, paused, ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import Column, many, state_colour
from strata.cli.session import Session
from strata.cli.times import DURATION, span, when
from strata.cli.words import (
    complete_document,
    complete_group,
    complete_rollout,
    no_blank,
    pairs,
    select_help,
    split,
    wanted,
)

if TYPE_CHECKING:
    from strata.cli.client import Json

F = TypeVar("F", bound=Callable[..., Any])

FIELDS = (
    ls.plain("name"),
    ls.plain("state", colour=state_colour),
    ls.Field("wave", lambda item: f"{item['wave']}/{item['waves']}"),
    ls.Field("ready", lambda item: item["counts"]["ready"], right=True),
    ls.Field("failed", lambda item: item["counts"]["failed"], right=True),
    ls.Field("nodes", lambda item: item["counts"]["nodes"], right=True),
    ls.plain("author"),
    ls.moment("started"),
    ls.moment("ended"),
    ls.plain("waits_for", shown=False),
    ls.plain("reason", shown=False),
)
ENDED = ("done", "rolled-back", "aborted")
STANDS = (*ENDED, "stopped", "paused")
"""States in which nothing more happens by itself."""
_POLL = 0.5
NAME = click.argument("name", shell_complete=complete_rollout)


def _followed(function: F) -> F:
    """``--wait`` and ``--timeout``, as ``waiting`` and ``timeout``."""
    function = click.option(
        "--timeout", type=DURATION, default="1d", show_default=True, help="Wait at most this long."
    )(function)
    return click.option("--wait", "waiting", is_flag=True, help="Wait until it has ended, or stands still.")(function)


def _described(function: F) -> F:
    """What a rollout is told: nodes, values, and how carefully."""
    options = (
        click.argument("words", nargs=-1, required=True, metavar="[SELECT]... VARIABLE=VALUE...", callback=no_blank),
        click.option(
            "--document",
            shell_complete=complete_document,
            help="When done, write the change to this desire document instead of leaving it on the nodes.",
        ),
        click.option("--waves", metavar="N,N%,...", help="Nodes in each wave; the last is repeated.  [1,10%,100%]"),
        click.option("--max-unavailable", metavar="N|N%", help="Most nodes out of service at once.  [10%]"),
        click.option(
            "--group",
            "groups",
            multiple=True,
            shell_complete=complete_group,
            help="Apply --max-unavailable to this group separately; may be repeated.",
        ),
        click.option("--order", multiple=True, metavar="GROUP,GROUP,...", help="Groups one after the other."),
        click.option("--soak", type=DURATION, metavar="TIME", help="How long a wave must stay ready.  [1m]"),
        click.option("--require", multiple=True, metavar="VARIABLE=VALUE", help="A fact that ready nodes must show."),
        click.option(
            "--check", "checks", multiple=True, metavar="NAME", help="Run this check of the site after each wave."
        ),
        click.option("--max-failures", metavar="N|N%", help="Nodes that may fail; one more stops it.  [5%]"),
        click.option(
            "--on-failure", type=click.Choice(("rollback", "stop")), help="What to do when more nodes fail.  [rollback]"
        ),
        click.option(
            "--when", type=click.Choice(("now", "job-end", "next-reboot")), help="When a node is changed.  [now]"
        ),
        click.option(
            "--drain-after",
            type=DURATION,
            metavar="TIME",
            help="With --when job-end: drain a node that has not been idle for this long since its wave began.  [1d]",
        ),
        click.option("--note", help="What it is for; others will read it."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _spec(given: dict[str, Any]) -> Json:
    """The body of a request: only what was given."""
    select, assignments = split(given["words"])
    if not assignments:
        raise click.UsageError("say what is wanted, such as image=v2")
    if not select and not given["document"]:
        raise click.UsageError("say which nodes; '*' is every node")
    body: Json = {
        "set": wanted(assignments),
        "select": select or None,
        "document": given["document"],
        "waves": given["waves"].split(",") if given["waves"] else None,
        "max_unavailable": given["max_unavailable"],
        "groups": list(given["groups"]) or None,
        "order": [chain.split(",") for chain in given["order"]] or None,
        "soak": given["soak"],
        "require": pairs(given["require"], option="--require") or None,
        "checks": list(given["checks"]) or None,
        "max_failures": given["max_failures"],
        "on_failure": given["on_failure"],
        "when": given["when"],
        "drain_after": given["drain_after"],
        "note": given["note"],
    }
    return {name: value for name, value in body.items() if value is not None}


@click.group()
def rollout() -> None:
    """Change many nodes in waves, without hurting jobs. A rollout that does harm stops or is rolled back."""


@select_help
@rollout.command()
@_described
@ls.json_option
def plan(session: Session, /, as_json: bool, **given: Any) -> None:
    """Show what a rollout would do: waves, limits, mutations, time. Changes nothing.

    \b
    Example: strata rollout plan @compute image=v2 --max-unavailable 5% --group rack1 --group rack2
    """
    found = session.client.post("/v1/rollout-plans", _spec(given))
    if as_json:
        session.out.json(found)
        return
    same = f"; {found['unchanged']} want it already" if found["unchanged"] else ""
    session.out.line(f"{many(found['nodes'], 'node')} in {many(len(found['waves']), 'wave')}{same}")
    session.out.table(
        [Column("wave", right=True), Column("stage", right=True), Column("nodes", right=True), Column("which")],
        [[at, wave["stage"], wave["count"], wave["nodeset"]] for at, wave in enumerate(found["waves"], 1)],
    )
    session.out.table(
        [Column("out of service at most", right=True), Column("of", right=True), Column("limit")],
        [[one["most"], one["nodes"], one["name"]] for one in found["buckets"]],
    )
    for one in found["classes"]:
        steps = " → ".join(step["mutation"] for step in one["steps"]) or one["reason"] or one["status"]
        session.out.line(f"{many(one['count'], 'node')}: {steps}")
    session.out.line(f"{many(found['disrupted'], 'node')} leave service; about {span(found['seconds'])}")
    for warning in found["warnings"]:
        session.out.note(f"note: {warning}")


@select_help
@rollout.command()
@_described
@click.option(
    "--failures",
    type=float,
    metavar="PERCENT",
    help="Percentage of nodes on which the change fails. Default: as seen on this cluster.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed of the random numbers; the same seed gives the same result.",
)
@ls.json_option
def simulate(session: Session, /, failures: float | None, seed: int, as_json: bool, **given: Any) -> None:
    """Try a rollout on the simulated twin of this cluster. It shows how long it takes, and what breaks.

    The twin has the nodes, groups, states, desires and budgets of the cluster. Its mutations take as long as they took
    here. It runs in this process, in virtual time. Exit code 3 if the rollout does not get to its end.

    \b
    Example: strata rollout simulate '*' image=v2 --failures 2
    """
    import msgspec

    from strata.platform.rollouts import simulation
    from strata.platform.rollouts.likeness import Twin

    answer = session.client.post("/v1/rollout-twins", _spec(given))
    twin = msgspec.convert(answer, Twin)
    found = simulation.simulate(twin, failure_rate=None if failures is None else failures / 100, seed=seed)
    if as_json:
        session.out.json(msgspec.to_builtins(found))
    else:
        counts = found.counts
        session.out.line(f"{found.state} after {span(found.seconds)}{f': {found.reason}' if found.reason else ''}")
        session.out.line(f"{counts.ready} of {many(counts.nodes, 'node')} have it; {counts.failed} failed")
        for bucket in found.buckets:
            session.out.line(f"at most {bucket.peak} of {bucket.most} out of service at once: {bucket.name}")
        for event in found.events:
            session.out.line(f"{span(event.time):>8}  {event.text}")
        if found.left_out:
            session.out.note(f"not simulated: {', '.join(found.left_out)}")
    if found.state != "done":
        exits.leave(exits.UNREACHABLE)


@select_help
@rollout.command()
@ls.json_option
def policy(session: Session, as_json: bool) -> None:
    """Show how commits of the configuration reach nodes in waves. The repository says it (kind: rollout-policy).

    \b
    Example: strata rollout policy
    """
    found = session.client.get("/v1/rollout-policy")
    if as_json:
        session.out.json(found)
    else:
        session.out.fields(
            (name, value if isinstance(value, str | float) else str(value)) for name, value in found.items()
        )


@rollout.command()
@click.argument("name")
@_described
@_followed
@ls.json_option
def start(session: Session, /, name: str, waiting: bool, timeout: float, as_json: bool, **given: Any) -> None:
    """Start a rollout called NAME. It goes on by itself.

    \b
    Example: strata rollout start december @compute image=v2 --group rack1 --group rack2 --wait
             strata rollout start december --document compute image=v2 --soak 10m
    """
    found = session.client.put(ROLLOUTS.path(name), _spec(given))
    if waiting:
        follow(session, found, timeout, as_json)
    else:
        line = f"started {name}: {many(found['counts']['nodes'], 'node')} in {many(found['waves'], 'wave')}"
        session.out.answer(as_json, found, f"{line}; strata rollout status {name}")


ROLLOUTS = Named(rollout, "rollout", "/v1/rollouts", FIELDS)
ROLLOUTS.list(
    "List rollouts, those that have ended too, the newest first.", "strata rollout list --match state=stopped", sort=""
)


@rollout.command()
@NAME
@_followed
@ls.json_option
def status(session: Session, name: str, waiting: bool, timeout: float, as_json: bool) -> None:
    """Show how far a rollout is, what it waits for, and what happened.

    \b
    Example: strata rollout status december --wait
    """
    found = session.client.get(ROLLOUTS.path(name))
    if waiting:
        follow(session, found, timeout, as_json)
    else:
        _report(session, found, as_json)


@rollout.command()
@NAME
@click.option("--reason", required=True, help="Why; others will read it.")
@ls.json_option
def pause(session: Session, name: str, reason: str, as_json: bool) -> None:
    """Start no further nodes; those that have begun are finished.

    \b
    Example: strata rollout pause december --reason 'the file system is slow'
    """
    found = session.client.post(f"{ROLLOUTS.path(name)}/pause", {"reason": reason})
    session.out.answer(as_json, found, f"paused {name}: strata rollout resume {name} has it go on")


@rollout.command()
@NAME
@_followed
@ls.json_option
def resume(session: Session, name: str, waiting: bool, timeout: float, as_json: bool) -> None:
    """Continue a rollout that is paused or stopped. Nodes that have failed are rolled back, and no longer count as
    failed.

    \b
    Example: strata rollout resume december --wait
    """
    found = session.client.post(f"{ROLLOUTS.path(name)}/resume")
    if waiting:
        follow(session, found, timeout, as_json)
    else:
        session.out.answer(as_json, found, f"{name} goes on")


@rollout.command()
@NAME
@click.option("--rollback", is_flag=True, help="Also take nodes that have been changed back to their earlier desires.")
@click.option("--reason", required=True, help="Why; others will read it.")
@ls.json_option
def abort(session: Session, name: str, rollback: bool, reason: str, as_json: bool) -> None:
    """End a rollout. Nodes that have not begun get their earlier desires back; with --rollback all nodes do.

    \b
    Example: strata rollout abort december --rollback --reason 'users report slow MPI'
    """
    body = {"reason": reason, "rollback": rollback}
    found = session.client.post(f"{ROLLOUTS.path(name)}/abort", body)
    session.out.answer(as_json, found, f"{name} is {found['state']}: strata rollout status {name} --wait")


def follow(session: Session, found: Json, timeout: float, as_json: bool) -> None:
    """Stay until a rollout has ended or stands still, and report it; exit code 1 if it is not done."""
    from strata.cli.progress import Meter

    deadline = time.monotonic() + timeout
    with Meter(session.out, f"rollout {found['name']}") as meter:
        while True:
            counts = found["counts"]
            failed = f"{counts['failed']} failed; " if counts["failed"] else ""
            detail = f"{failed}wave {found['wave']}/{found['waves']}, {found['state']}"
            meter.update(int(counts["ready"]), int(counts["nodes"]), detail)
            if found["state"] in STANDS or time.monotonic() >= deadline:
                break
            time.sleep(_POLL)
            found = session.client.get(ROLLOUTS.path(str(found["name"])))
    _report(session, found, as_json)
    if found["state"] != "done":
        exits.leave(exits.ERROR)


def _report(session: Session, found: Json, as_json: bool) -> None:
    if as_json:
        session.out.json(found)
        return
    counts, spec = found["counts"], found["spec"]
    change = " ".join(
        f"{name}={value if isinstance(value, str) else '|'.join(value)}" for name, value in spec["set"].items()
    )
    more = [
        f"{counts[what]} {words}"
        for what, words in (("left", "left alone"), ("excused", "not waited for"))
        if counts[what]
    ]
    session.out.fields(
        (
            ("name", found["name"]),
            ("state", found["state"] + (f": {found['reason']}" if found["reason"] else "")),
            ("change", change),
            (
                "nodes",
                f"{spec['select'] or ''}{' of document ' + spec['document'] if spec['document'] else ''}".strip(),
            ),
            ("wave", f"{found['wave']} of {found['waves']}"),
            ("ready", f"{counts['ready']} of {counts['nodes']}{'; ' if more else ''}{', '.join(more)}"),
            ("failed", f"{counts['failed']}{': ' + counts['failed_nodes'] if counts['failed_nodes'] else ''}"),
            ("waits for", found["waits_for"] or "-"),
            *((f"out of service ({one['name']})", f"{one['out']} of {one['most']}") for one in found["buckets"]),
            ("started", f"{when(found['started'])} by {found['author']}"),
            ("ended", when(found["ended"])),
        )
    )
    for event in found["events"]:
        session.out.line(f"{when(event['time'])}  {event['author']}: {event['text']}")
