"""``strata job``: jobs, submitted and followed to their end."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.options import Watts
from strata.cli.output import Column, many, state_colour
from strata.cli.reading import read_text
from strata.cli.session import Session, pass_session
from strata.cli.times import DURATION, span, when
from strata.cli.words import complete_job, pairs, segment
from strata.core.printable import shortened
from strata.core.units import mebibytes, show_mebibytes, show_watts
from strata.jobs.reservations.commands import reservation as reservation_group
from strata.jobs.targets.commands import target as target_group

if TYPE_CHECKING:
    from strata.cli.client import Client, Json

STATES = ("held", "waiting", "starting", "running", "suspended", "ending", "ended", "unknown")
OUTCOMES = ("done", "failed", "cancelled", "timed-out", "out-of-memory", "node-failed", "lost")
LAUNCHES = ("once", "tasks", "mpi")
AFTERS = ("started", "ended", "done", "failed")
_ARRAY = re.compile(r"([0-9]+)-([0-9]+)(?::([0-9]+))?(?:%([0-9]+))?\Z")
_WAIT = 30
_PLAIN = ("name", "retries", "held", "target", "queue", "reservation", "project", "account", "environment", "launch")
"""Options that are fields of a document."""
_RUNS = 120
_MEASURED = 300
"""Seconds after a job's end by which its energy is known, if anybody measures it."""
KWH = 3.6e6


def _state(item: Json) -> str:
    return str(item["outcome"] or item["state"])


def _colour(text: str) -> str:
    return state_colour(text) or ("red" if text in ("timed-out", "out-of-memory", "node-failed", "lost") else "")


def _memory(item: Json) -> str:
    return show_mebibytes(item["node_memory"]) if item["node_memory"] else "-"


FIELDS = (
    ls.plain("id"),
    ls.plain("name"),
    ls.Field("state", _state, colour=_colour),
    ls.plain("target"),
    ls.plain("queue", shown=False),
    ls.plain("owner", shown=False),
    ls.plain("account", shown=False),
    ls.number("tasks"),
    ls.plain("status"),
    ls.moment("submitted"),
    ls.Field("ran", lambda item: span(_ran(item)), key=lambda item: _ran(item) or 0, right=True),
    ls.plain("nodes", shown=False),
    ls.plain("reason"),
)
TARGET_FIELDS = (
    ls.plain("target"),
    ls.plain("kind"),
    ls.plain("queue"),
    ls.Field("open", lambda item: "yes" if item["open"] else "no"),
    ls.number("nodes"),
    ls.Field("free", lambda item: item["free_nodes"], key=lambda item: item["free_nodes"] or 0, right=True),
    ls.Field("cores", lambda item: item["node_cores"] or "-", right=True),
    ls.Field("memory", _memory, key=lambda item: item["node_memory"] or 0, right=True),
    ls.Field("time", lambda item: span(item["most_time"]), right=True),
    ls.plain("trouble"),
    ls.plain("limits", shown=False),
)


def _ran(item: Json) -> float | None:
    if item["began"] is None:
        return None
    return float((item["ended"] or time.time()) - item["began"])


class Memory(click.ParamType[int]):
    """``4G``, ``500M``: MiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return mebibytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group()
def job() -> None:
    """Run jobs on whichever scheduler can, and follow them to their end."""


job.add_command(target_group)
job.add_command(reservation_group)


@job.command()
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("-f", "--file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), help="A YAML document.")
@click.option("--script", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), help="A script to run.")
@click.option("--name", help="What it is called.")
@click.option("-N", "--nodes", type=click.IntRange(min=1), help="How many nodes.")
@click.option("-n", "--tasks", type=click.IntRange(min=1), help="Processes, over all nodes.")
@click.option("-c", "--cores", type=click.IntRange(min=1), help="Cores for each process.")
@click.option("--memory", type=Memory(), help="Memory on each node: 4G, 500M.")
@click.option("--accelerators", metavar="[TYPE:]COUNT", help="Accelerators on each node.")
@click.option("--time", "limit", type=DURATION, help="Time limit, after which it is ended: 10m, 2h.")
@click.option("--power", type=Watts(1, 1e7), metavar="WATTS", help="Most power that each node may draw: 350W, 1.5kW.")
@click.option("--array", metavar="FIRST-LAST[:STEP][%N]", help="Run many tasks of the same kind, at most N at a time.")
@click.option("--after", multiple=True, metavar="[WHAT:]JOB", help=f"After another job; WHAT: {', '.join(AFTERS)}.")
@click.option("--image", help="Run it in this image; more of a container goes into a document.")
@click.option("--runtime", help="What runs the image. Default: native.")
@click.option("--launch", type=click.Choice(LAUNCHES), help="What is started: once, tasks (as -n says), or mpi.")
@click.option("--environment", metavar="NAME[@VERSION]", help="Run it in this work environment.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Set this variable in its environment.")
@click.option("--workdir", type=click.Path(), help="Folder that it starts in. Default: the account's home.")
@click.option("--stdout", type=click.Path(), help="Where its output goes; %j: its id, %x: its name, %a: array index.")
@click.option("--stderr", type=click.Path(), help="Where its errors go, named likewise. Default: with its output.")
@click.option("--data", multiple=True, metavar="PLACE", help="Where its input is; targets near it are preferred.")
@click.option("--retries", type=click.IntRange(min=0, max=10), help="Run it again when it fails.")
@click.option("--held", is_flag=True, default=None, help="Submit it held: it starts after 'strata job release'.")
@click.option("--target", help="Which scheduler. Default: Strata chooses.")
@click.option("--queue", help="Which queue. Default: Strata chooses.")
@click.option("--reservation", help="Which reservation of the target it runs in, by its id.")
@click.option("--project", help="Project whose quota it counts against.")
@click.option("--account", help="Run it as this account (administrators).")
@click.option(
    "--once", "key", metavar="KEY", help="Submitting again with the same KEY gives the same job, not another one."
)
@click.option("--explain", is_flag=True, help="Say where it would go and why; submit nothing.")
@click.option("--wait", is_flag=True, help="Wait until it has ended, print its output, and exit with its exit code.")
@ls.json_option
def submit(
    session: Session,
    /,
    words: tuple[str, ...],
    file: Path | None,
    script: Path | None,
    key: str | None,
    explain: bool,
    wait: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Submit a job: a YAML document, a command line, or both. Options override the document.

    It runs as your account, by the scheduler that can begin it first. Prints its id.

    \b
    Example: strata job submit -n 4 --time 10m -- ./a.out input.dat
             strata job submit -f job.yaml --array 1-100%10
             strata job submit --script train.sh --memory 16G --wait
             strata job submit -N 2 -n 64 --launch mpi --image solver:3 -- /opt/solver/bin/solve
    """
    document = _document(file)
    _overlay(document, words, script, options)
    if explain:
        _show_plan(session, session.client.post("/v1/jobs/plan", document), as_json)
        return
    headers = {"Idempotency-Key": key} if key else {}
    found: Json = session.client.request("POST", "/v1/jobs", body=document, headers=headers).body
    if wait:
        found = _wait(session.client, found["id"], None)
        if as_json:
            session.out.json(found)
        else:
            _print_logs(session, found)
        exits.leave(_code(found))
        return
    session.out.answer(as_json, found, found["id"])
    if not as_json and found["reason"]:
        session.out.note(found["reason"])


@job.command("list")
@click.option("--all", "everybody", is_flag=True, help="Jobs of all users (operators and administrators).")
@click.option("--owner", help="Only jobs of this user.")
@click.option(
    "--state", type=click.Choice((*STATES, *OUTCOMES)), help="Only jobs in this state, or that ended in this way."
)
@click.option("--target", help="Only jobs of this target.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Show at most this many, the newest."
)
@ls.listing(FIELDS)
def list_(
    session: Session,
    everybody: bool,
    owner: str | None,
    state: str | None,
    target: str | None,
    limit: int,
    view: ls.Listing,
) -> None:
    """List your jobs, the newest first.

    \b
    Example: strata job list --state running
             strata job list --state failed
             strata job list --all --columns id,owner,state,reason
    """
    params = {"all": True if everybody else None, "owner": owner, "state": state, "target": target}
    found = list(session.client.pages("/v1/jobs", params, limit=limit))
    ls.show(session, FIELDS, found, view)
    if not found and not any((everybody, owner, state, target)):
        session.out.note(
            "you have no jobs; operators and administrators see those of all users with: strata job list --all"
        )


@job.command()
@ls.listing(TARGET_FIELDS)
def targets(session: Session, view: ls.Listing) -> None:
    """List what runs jobs here, with its queues.

    \b
    Example: strata job targets
             strata job targets --columns target,limits
    """
    rows = []
    for target in session.client.get("/v1/jobs/targets")["items"]:
        about = {"target": target["name"], **{field: target[field] for field in ("kind", "trouble", "limits")}}
        none = dict.fromkeys(("node_cores", "node_memory", "most_time", "nodes", "free_nodes"))
        queues = target["queues"] or [{"name": "-", "open": target["answers"], **none}]
        rows += [{**queue, **about, "queue": queue["name"]} for queue in queues]
    ls.show(session, TARGET_FIELDS, rows, view)


_JOB = click.argument("ident", metavar="JOB", shell_complete=complete_job)


@job.command()
@_JOB
@ls.json_option
def show(session: Session, ident: str, as_json: bool) -> None:
    """Show a job: what became of it, and why it went where it did.

    \b
    Example: strata job show 4k2j9x0qv7m1
    """
    found = session.client.get(f"/v1/jobs/{segment(ident)}")
    if as_json:
        session.out.json(found)
        return
    session.out.fields(
        (
            ("id", found["id"]),
            ("name", found["name"]),
            ("runs", _runs(found["document"])),
            ("state", _state(found)),
            ("reason", found["reason"]),
            ("status", found["status"]),
            ("signal", found["signal"]),
            ("target", f"{found['target']}{', queue ' + found['queue'] if found['queue'] else ''}"),
            ("its id there", found["there"]),
            ("owner", f"{found['owner']}, account {found['account']}"),
            ("asks for", _asks(found["document"]["resources"], found["document"]["environment"], found["assumed"])),
            ("nodes", ",".join(found["nodes"])),
            ("submitted", when(found["submitted"])),
            ("expected", when(found["expected"]) if found["expected"] else ""),
            ("began", when(found["began"]) if found["began"] else ""),
            ("ended", when(found["ended"]) if found["ended"] else ""),
            ("energy", _energy(found)),
            ("output", found["stdout"]),
            ("errors", found["stderr"]),
            ("rerun of", found["rerun_of"]),
        )
    )
    if found["array"]:
        over, bad = found["tasks_ended"], found["tasks_failed"]
        session.out.line(f"{many(found['tasks'], 'task')}, {over} ended, {bad} of them not well")
        for task in [task for task in found["array"] if task["outcome"] not in (None, "done")][:10]:
            session.out.line(f"  {task['index']}: {task['outcome']}, status {task['status']}  {task['reason']}")
    for one in found["considered"]:
        session.out.line(f"  {one['target']}: {one['why']}")


@job.command()
@_JOB
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--task", type=click.IntRange(min=0), help="Of an array job: the index of the task.")
@click.option("--stderr", is_flag=True, help="Print its standard error, if that went to a file of its own.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each piece.")
@pass_session
def log(session: Session, ident: str, follow: bool, task: int | None, stderr: bool, as_json: bool) -> None:
    """Print what a job printed.

    \b
    Example: strata job log -f 4k2j9x0qv7m1
    """
    params = {"task": task, "stream": "stderr" if stderr else "stdout"}
    path = f"/v1/jobs/{segment(ident)}/log"
    followed = (event.data for event in session.client.events(f"{path}/follow", params)) if follow else None
    for part in followed or _parts(session.client, path, params):
        if as_json:
            session.out.json_line(part)
        else:
            session.out.stdout.write(part["text"])
            session.out.stdout.flush()
        if part["end"]:
            return


def _parts(client: Client, path: str, params: Json) -> Iterator[Json]:
    """What a job has printed so far, piece by piece."""
    offset = -1
    part: Json = {"next": 0, "end": False}
    while not part["end"] and part["next"] != offset:
        offset = part["next"]
        part = client.get(path, {**params, "offset": offset})
        yield part


def _acts(verb: str, done: str, doc: str) -> None:
    """A command that does one thing to one or more jobs."""

    @job.command(verb, help=f"{doc}\n\n\b\nExample: strata job {verb} 4k2j9x0qv7m1")
    @click.argument("idents", metavar="JOB...", nargs=-1, required=True, shell_complete=complete_job)
    @ls.json_option
    def act(session: Session, idents: Sequence[str], as_json: bool) -> None:
        found = [session.client.post(f"/v1/jobs/{segment(one)}/{verb}") for one in idents]
        if as_json:
            session.out.json(found)
            return
        for one in found:
            session.out.line(f"{done} {one['id']}: {_in_words(one)}")


_acts("cancel", "cancelled", "End jobs. One that has ended stays as it ended.")
_acts("hold", "held", "Hold jobs that have not begun: they do not start until they are released.")
_acts("release", "released", "Release held jobs, so that they can start.")


@job.command()
@_JOB
@click.option("--timeout", type=DURATION, help="Wait at most this long. Default: for ever.")
@ls.json_option
def wait(session: Session, ident: str, timeout: float | None, as_json: bool) -> None:
    """Wait until a job has ended. The exit code is the job's, or 1 if it ended in another way or takes longer.

    \b
    Example: strata job wait 4k2j9x0qv7m1 --timeout 1h
    """
    found = _wait(session.client, ident, timeout)
    session.out.answer(as_json, found, _in_words(found), colour=_colour(_state(found)))
    exits.leave(_code(found))


@job.command()
@_JOB
@ls.json_option
def rerun(session: Session, ident: str, as_json: bool) -> None:
    """Submit a job of yours again, as a new one. Prints its id.

    \b
    Example: strata job rerun 4k2j9x0qv7m1
    """
    found = session.client.post(f"/v1/jobs/{segment(ident)}/rerun")
    session.out.answer(as_json, found, found["id"])


@job.command()
@click.option("--all", "everybody", is_flag=True, help="Jobs of all users (operators and administrators).")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line.")
@pass_session
def watch(session: Session, everybody: bool, count: int | None, as_json: bool) -> None:
    """Show changes of your jobs until interrupted.

    \b
    Example: strata job watch
    """
    shown = 0
    for event in session.client.events("/v1/jobs/events", {"all": True if everybody else None}):
        if event.kind == "compacted":
            continue
        if as_json:
            session.out.json_line(event.data)
        else:
            session.out.line(f"{event.data['id']}  {_in_words(event.data)}")
        shown += 1
        if shown == count:
            return


# -- parts


def _document(file: Path | None) -> Json:
    """What a file says, checked, as the API takes it."""
    if file is None:
        return {}
    import msgspec

    from strata.core.input.yamltree import Document
    from strata.jobs.submission.records import JobDocument

    found_document: Json = msgspec.to_builtins(Document(read_text(file), str(file)).read(JobDocument))
    return {name: value for name, value in found_document.items() if value not in (None, [], {})}


def _overlay(document: Json, words: Sequence[str], script: Path | None, options: Json) -> None:
    """Put what the command line says on top."""
    if words:
        document["command"], *document["arguments"] = words
        document.pop("script", None)
    if script is not None:
        if words:
            raise click.UsageError("give a command or --script, not both; arguments of a script go into a document")
        document["script"] = read_text(script)
        document.pop("command", None)
    resources = document.setdefault("resources", {})
    for name in ("nodes", "tasks", "cores", "memory"):
        if options[name] is not None:
            resources[name] = options[name]
    if options["limit"] is not None:
        resources["time"] = max(1, int(options["limit"]))
    if options["power"] is not None:
        resources["power"] = int(options["power"])
    if options["accelerators"]:
        resources["accelerators"] = options["accelerators"]
    if options["array"]:
        found = _ARRAY.match(options["array"])
        if found is None:
            raise click.UsageError("--array takes FIRST-LAST, such as 1-100, 0-99:3, 1-100%10")
        array = zip(("first", "last", "step", "at_once"), found.groups(), strict=True)
        document["array"] = {name: int(value) for name, value in array if value is not None}
    if options["after"]:
        document["after"] = [_dependency(text) for text in options["after"]]
    if options["env"]:
        document["env"] = {**document.get("env", {}), **pairs(options["env"], option="--env")}
    for name in ("workdir", "stdout", "stderr"):
        if options[name] is not None:
            document[name] = str(Path(options[name]).absolute())
    if options["data"]:
        document["data"] = [*document.get("data", []), *options["data"]]
    if options["image"] or options["runtime"]:
        told = {"image": options["image"], "runtime": options["runtime"]}
        said = {name: value for name, value in told.items() if value}
        document["container"] = {**(document.get("container") or {}), **said}
    for name in _PLAIN:
        if options[name] is not None:
            document[name] = options[name]
    if "command" not in document and "script" not in document:
        raise click.UsageError("say what to run: -- COMMAND, --script FILE, or a document with either (-f FILE)")


def _dependency(text: str) -> Json:
    what, colon, ident = text.rpartition(":")
    if colon and what not in AFTERS:
        raise click.UsageError(f"--after takes JOB or WHAT:JOB, with WHAT one of {', '.join(AFTERS)}")
    return {"job": ident, "what": what or "done"}


def _wait(client: Client, ident: str, timeout: float | None) -> Json:
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _WAIT if deadline is None else max(0.0, min(_WAIT, deadline - time.monotonic()))
        found = client.get(f"/v1/jobs/{segment(ident)}/wait", {"timeout": str(left)})
        if found["state"] == "ended" or (deadline is not None and time.monotonic() >= deadline):
            return found


def _code(found: Json) -> int:
    """The exit code for a job: its own, where it has one."""
    if found["outcome"] == "done":
        return 0
    return int(found["status"] or 0) & 255 or exits.ERROR


def _in_words(found: Json) -> str:
    told = [_state(found)]
    if found["status"] is not None and found["outcome"] != "done":
        told.append(f"status {found['status']}")
    if found["tasks"] > 1 and found["tasks_failed"]:
        told.append(f"{found['tasks_failed']} of {many(found['tasks'], 'task')}")
    if found["reason"]:
        told.append(found["reason"])
    return ": ".join((told[0], ", ".join(told[1:]))) if len(told) > 1 else told[0]


def _energy(found: Json) -> str:
    if found["state"] != "ended":
        return ""
    used = found["energy"]
    if used is None:
        return "not measured" if time.time() - (found["ended"] or 0.0) > _MEASURED else ""
    covered = "" if used["known"] > 0.99 else f", of {used['known']:.0%} of its time"
    return f"{used['joules'] / KWH:.3g} ± {used['error'] / KWH:.2g} kWh{covered}"


def _runs(document: Json) -> str:
    import shlex

    return shortened(shlex.join((document["command"] or "a script", *document["arguments"])), _RUNS)


def _asks(resources: Json, environment: str, assumed: Sequence[str]) -> str:
    """What a job asks for, in words, and what of it comes from its environment."""
    cards: Json = resources.get("accelerators") or {"count": 0}
    said = {
        "nodes": many(resources.get("nodes", 1), "node"),
        "tasks": many(int(resources.get("tasks") or resources.get("nodes") or 1), "task"),
        "cores": f"{many(resources.get('cores', 1), 'core')} each",
        "memory": show_mebibytes(resources.get("memory", 0)),
        "accelerators": f"{many(int(cards['count']), 'accelerator')} {cards.get('type') or ''}".rstrip(),
        "time": span(resources.get("time", 0)),
        "power": show_watts(resources.get("power", 0)),
        "licences": ", ".join(f"{count} {name}" for name, count in resources.get("licences", {}).items()),
    }
    told = ", ".join(text for name, text in said.items() if name in resources)
    rest = f" ({', '.join(assumed)}: of environment {environment})" if assumed else ""
    return told + rest


def _print_logs(session: Session, found: Json) -> None:
    for index in [task["index"] for task in found["array"]] or [None]:
        for part in _parts(session.client, f"/v1/jobs/{segment(found['id'])}/log", {"task": index}):
            session.out.stdout.write(part["text"])
    session.out.stdout.flush()
    if found["outcome"] != "done":
        session.out.note(_in_words(found))


def _show_plan(session: Session, found: Json, as_json: bool) -> None:
    if as_json:
        session.out.json(found)
        return
    session.out.table(
        [Column("target"), Column("taken"), Column("queue"), Column("expected"), Column("cost"), Column("why")],
        [
            (
                one["target"],
                "yes" if one["taken"] else "no",
                one["queue"] or "-",
                when(one["expected"]),
                "-" if one["cost"] is None else f"{one['cost']:.2f}",
                one["why"],
            )
            for one in found["considered"]
        ],
    )
    if told := _asks(found["resources"], found["environment"], found["assumed"]):
        session.out.line(f"It would ask for {told}.")
    if found["target"] is None:
        exits.leave(exits.UNREACHABLE)
