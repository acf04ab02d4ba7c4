"""``strata energy job``, ``jobs``, ``record`` and ``import``: when and where jobs ran, and what they used."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session, pass_session
from strata.cli.times import WHEN, span, when
from strata.cli.words import segment
from strata.power.telemetry.commands import joules, watts

if TYPE_CHECKING:
    from strata.cli.client import Json

BATCH = 1000
"""Runs that are told in one request."""

JOBS = (
    ls.plain("job"),
    ls.plain("user"),
    ls.plain("name"),
    ls.number("nodes"),
    ls.moment("began", of="start"),
    ls.Field("ran", lambda i: span(i["seconds"]), lambda i: i["seconds"], right=True),
    ls.Field("state", lambda i: "running" if i["end"] is None else "done"),
    ls.Field("energy", lambda i: joules(i["joules"]), lambda i: i["joules"] or 0, right=True),
    ls.Field("per node", lambda i: watts(i["average"]), lambda i: i["average"] or 0, right=True),
    ls.Field("peak", lambda i: watts(i["peak"]), lambda i: i["peak"] or 0, right=True),
    ls.Field(
        "known", lambda i: "-" if i["known"] is None else f"{i['known']:.0%}", lambda i: i["known"] or 0, right=True
    ),
)


@click.command()
@click.option("--user", default="", help="Only jobs of this user.")
@click.option(
    "--since", type=WHEN, default="1d", show_default=True, help="Only jobs that ran after this: 1d (ago), or a date."
)
@click.option("--running", is_flag=True, help="Only those that have not ended.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Show at most this many jobs."
)
@ls.listing(JOBS)
def jobs(session: Session, user: str, since: float, running: bool, limit: int, view: ls.Listing) -> None:
    """List jobs and what they used. The figures of a job appear some minutes after its end.

    \b
    Example: strata energy jobs --user ada --sort -energy
    """
    asked = {"user": user, "since": f"{since:.0f}", "running": running or None, "limit": limit}
    ls.show(session, JOBS, session.client.get("/v1/power/jobs", asked)["items"], view)


@click.command()
@click.argument("job", metavar="JOB")
@click.option("--apid", default="", help="Only this application of it.")
@click.option("--nodes", "each", is_flag=True, help="Also every node (the 1000 that used the most).")
@ls.json_option
def job(session: Session, job: str, apid: str, each: bool, as_json: bool) -> None:
    """Show what a job used: energy, average, maximum, spread over its nodes. Earlier runs are compared.

    \b
    Example: strata energy job 4711
             strata energy job 4711 --nodes
    """
    found = session.client.get(f"/v1/power/jobs/{segment(job)}", {"apid": apid})
    if as_json:
        session.out.json(found)
        return
    session.out.fields(_fields(found))
    _spreads(session, found)
    if found["applications"]:
        session.out.line()
        ls.show(session, (ls.plain("apid"), *JOBS[2:]), found["applications"], ls.Listing(False, (), "", ()))
    if each:
        session.out.line()
        ls.show(session, EACH, found["each"], ls.Listing(False, (), "", ()))
    for note in _notes(found):
        session.out.note(note)


def _fields(found: Json) -> list[tuple[str, object]]:
    now = found["end"] is None
    again = f" (the newest of {found['runs']} runs)" if found["runs"] > 1 else ""
    paused = f", suspended for {span(found['suspended'])}" if found["suspended"] >= 1 else ""
    return [
        ("job", found["job"] + (f", application {found['apid']}" if found["apid"] else "") + again),
        ("user", found["user"]),
        ("name", found["name"]),
        ("nodes", f"{found['nodeset']} ({found['nodes']})"),
        ("began", when(found["start"])),
        ("ended", "it runs" if now else when(found["end"])),
        ("ran", span(found["seconds"]) + paused),
        ("energy", joules(found["joules"]) + (f" ± {joules(found['error'])}" if found["error"] else "")),
        ("power", f"{watts(found['average'])} on average, at most {watts(found['peak'])}, all nodes together"),
        *((f"last {one['minutes']} min", _lately(one)) for one in found["drawn"] if one["minutes"]),
        ("set aside", f"{joules(found['allocated'])}, by the caps that its nodes had"),
        ("known", f"{found['known']:.1%} of the time was measured"),
        ("earlier", _earlier(found["earlier"])),
    ]


def _lately(one: Json) -> str:
    return f"{watts(one['least'])} to {watts(one['most'])}, {watts(one['average'])} on average"


def _earlier(earlier: Json) -> str:
    if not earlier["runs"]:
        return "no runs of that user and name to compare with"

    def change(value: float | None) -> str:
        return "?" if value is None else f"{value:+.0%}"

    return (
        f"against {many(earlier['runs'], 'run')}: power per node {change(earlier['average_change'])} (median "
        f"{watts(earlier['average'])}), energy per node {change(earlier['joules_change'])} (median "
        f"{joules(earlier['joules_per_node'])}), time {change(earlier['seconds_change'])} (median "
        f"{span(earlier['seconds'])})"
    )


def _spreads(session: Session, found: Json) -> None:
    rows = []
    for name, key, text in (("energy", "energy", joules), ("average", "power", watts), ("maximum", "highest", watts)):
        one = found[key]
        row = {"of a node": name, "least_node": one["least_node"], "most_node": one["most_node"]}
        rows.append({**row, **{part: text(one[part]) for part in ("least", "average", "most", "deviation")}})
    session.out.line()
    fields = [ls.plain("of a node"), *(ls.plain(part) for part in ("least", "average", "most", "deviation"))]
    places = [ls.Field("least on", lambda i: i["least_node"]), ls.Field("most on", lambda i: i["most_node"])]
    ls.show(session, [*fields, *places], rows, ls.Listing(False, (), "", ()))


EACH = (
    ls.plain("node"),
    ls.Field("energy", lambda i: joules(i["joules"]), right=True),
    ls.Field("average", lambda i: watts(i["average"]), right=True),
    ls.Field("maximum", lambda i: watts(i["peak"]), right=True),
    ls.Field("known", lambda i: f"{i['known']:.0%}", right=True),
    ls.Field("from", lambda i: "counter" if i["counted"] else "power"),
    ls.Field("trouble", lambda i: ", ".join(f"{n} {k}" for k, n in i["trouble"].items() if n) or "-"),
)


def _notes(found: Json) -> list[str]:
    notes = []
    if found["joules"] is None:
        notes.append("nothing was measured of it")
    elif found["unmeasured"]:
        notes.append(f"nothing is known of {many(found['unmeasured'], 'node')}: the energy is that of the others")
    elif found["known"] < 0.995:
        notes.append("the energy is that of the time that was measured; nothing is filled in")
    troubles = ", ".join(f"{count} {name}" for name, count in found["trouble"].items() if count)
    if troubles:
        notes.append(f"in the samples: {troubles} (--nodes says where)")
    if found["doubt"]:
        notes.append(found["doubt"])
    return notes


@click.group()
def record() -> None:
    """Record which jobs ran where and when, so that energy is accounted to them."""


@record.command("job")
@click.argument("what", type=click.Choice(("start", "end", "suspend", "resume")))
@click.option("--job", required=True, metavar="ID", help="The job.")
@click.option("--user", default="", help="User that the job belongs to.")
@click.option("--nodes", default="", metavar="NODESET", help="Where it runs; needed to start a job.")
@click.option("--apid", default="", help="An application (a step) of the job, not the job itself.")
@click.option("--name", default="", help="What it is called: runs of the same name are compared.")
@click.option("--at", type=WHEN, help="When that was [default: now].")
@pass_session
def record_job(
    session: Session, what: str, job: str, user: str, nodes: str, apid: str, name: str, at: float | None
) -> None:
    """Record that a job starts, ends, is suspended or resumed: for prologs and epilogs.

    \b
    Example: strata energy record job start --job 4711 --user ada --name cfd --nodes n[1-64]
             strata energy record job end --job 4711
    """
    if what == "start" and not nodes and not apid:
        raise click.UsageError("a job starts on nodes: give --nodes")
    event = {
        "what": what,
        "job": job,
        "apid": apid,
        "user": user,
        "name": name,
        "nodes": nodes,
        "time": time.time() if at is None else at,
    }
    told = session.client.post("/v1/power/jobs", {"events": [event]})
    for refused in told["refused"]:
        session.out.note(f"job {refused['job']}: {refused['reason']}")
    if told["unknown_nodes"]:
        session.out.note(f"{many(told['unknown_nodes'], 'node')} of it not in the fleet")
    exits.leave(exits.ERROR if told["refused"] else 0)


@click.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
@ls.json_option
def import_(session: Session, file: IO[str], as_json: bool) -> None:
    """Import runs of jobs from Slurm's accounting. It takes ``sacct --json``, or ``sacct -P`` with a heading.

    \b
    Example: strata energy import runs.json
             sacct -a -S now-1day --json | strata energy import
             sacct -a -P -o JobIDRaw,User,JobName,NodeList,Start,End,Suspended,State | strata energy import
    """
    from strata.power.accounting.sacct import read

    runs = read(file.read())
    taken, unknown = 0, 0
    refused: list[Json] = []
    for begin in range(0, len(runs), BATCH):
        told = session.client.post("/v1/power/jobs", {"runs": runs[begin : begin + BATCH]})
        taken, unknown = taken + told["taken"], unknown + told["unknown_nodes"]
        refused += told["refused"]
    if as_json:
        session.out.json({"taken": taken, "refused": refused, "unknown_nodes": unknown})
    else:
        session.out.line(f"{many(taken, 'run')} taken")
        for one in refused[:20]:
            session.out.note(f"job {one['job']}: {one['reason']}")
        if unknown:
            session.out.note(f"{many(unknown, 'node')} of them not in the fleet (a node counts once for each run)")
    exits.leave(exits.ERROR if refused else 0)
