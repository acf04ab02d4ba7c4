"""The commands of ``strata node`` that change something: desires, holds, and the list of nodes itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli.listing import json_option
from strata.cli.output import fold, many
from strata.cli.session import Session
from strata.cli.waiting import arrival, wait_options
from strata.cli.words import (
    complete_select,
    complete_set,
    interfaces,
    no_blank,
    pairs,
    segment,
    select_help,
    split,
    wanted,
)

if TYPE_CHECKING:
    from strata.cli.client import Client, Json

CREATE_BATCH = 5000
"""Nodes in one request: about a megabyte."""

# Terms whose answer changes when the nodes do: a wait on them must name the nodes instead.
_FLEETING = re.compile(r"(^|[\s!])(state|fact|want):")


@select_help
@click.command("set")
@click.argument(
    "words",
    nargs=-1,
    required=True,
    metavar="SELECT VARIABLE=VALUE...",
    callback=no_blank,
    shell_complete=complete_set,
)
@click.option("--unset", multiple=True, metavar="VARIABLE", help="Remove the node's own desire.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, by class of nodes.")
@wait_options
@json_option
def set_(
    session: Session,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    waiting: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Say what the selected nodes should be. VARIABLE=A|B: any of these will do.

    \b
    Example: strata node set @compute power=on image=v2 --wait
             strata node set n[1-4] --unset image
    """
    from strata.fleet.plans import commands as plan

    select, assignments = split(words)
    if not select:
        raise click.UsageError("name the nodes: a nodeset, @group, or '*' for all")
    want = wanted(assignments)
    if not want and not unset:
        raise click.UsageError("say what to set (VARIABLE=VALUE) or --unset")
    if dry_run:
        if unset:
            raise click.UsageError("--dry-run shows what VARIABLE=VALUE would do; leave out --unset")
        exits.leave(plan.dry_run(session, {"select": select, "set": want}, as_json=as_json))
        return
    client = session.client
    if waiting and _FLEETING.search(select):
        select = str(client.get("/v1/nodes", {"select": select, "folded": True})["nodeset"]) or select
    body: Json = {"select": select, "set": want, "unset": list(unset)}
    reply = client.request("POST", "/v1/desires", body=body)
    exits.leave(_finish_set(session, reply.status, reply.body, select, waiting, timeout, as_json))


def _finish_set(
    session: Session, status: int, answer: Json, select: str, waiting: bool, timeout: float, as_json: bool
) -> int:
    """Report; follow the operation and then the nodes if asked to. The exit code."""
    from strata.cli import progress

    out = session.out
    failed = revision = 0
    if status == 202:
        if waiting:
            answer = progress.wait_operation(session.client, answer, out)
            failed = int(answer["failed"]) + (answer["state"] != "done")
        if as_json:
            out.json(answer)
        elif not waiting:
            out.line(f"accepted as operation {answer['id']}: {many(answer['total'], 'node')}")
            out.note(f"strata operation wait {answer['id']} shows how far it is")
        for error in answer.get("errors", ()):
            out.note(f"{error['node']}: {error['detail']}")
    else:
        wrong = [result for result in answer["results"] if not result["ok"]]
        failed, revision = len(wrong), int(answer["revision"])
        if as_json:
            out.json(answer)
        else:
            out.line(
                f"{answer['changed']} of {many(len(answer['results']), 'node')} changed, revision {answer['revision']}"
            )
        _complain(session, wrong)
        if not answer["results"]:
            out.note(f"no node is all of this: {select}; a comma between names means any of them: n1,n2")
            return 1
    if failed or not waiting:
        return 1 if failed else 0
    return arrival(session, select, timeout, revision=revision)


def _complain(session: Session, wrong: list[Json]) -> None:
    """One line for each different error, with its nodes folded."""
    by_error: dict[str, list[str]] = {}
    for result in wrong:
        by_error.setdefault(str(result.get("error", "")), []).append(str(result["node"]))
    for error, names in by_error.items():
        session.out.note(f"{fold(names)}: {error}")


@select_help
@click.command()
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@click.option("--reason", required=True, help="Why; others will read it.")
@json_option
def hold(session: Session, select: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Take nodes out of automation until a person releases them.

    \b
    Example: strata node hold n0042 --reason 'DIMM 3 is being replaced'
    """
    answer = session.client.post("/v1/holds", {"select": " ".join(select), "reason": reason})
    _finish_many(session, answer, "held", as_json)


@select_help
@click.command()
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@wait_options
@json_option
def release(session: Session, select: tuple[str, ...], waiting: bool, timeout: float, as_json: bool) -> None:
    """Give held nodes back to automation.

    \b
    Example: strata node release n0042
             strata node release state:held --wait
    """
    answer = session.client.delete("/v1/holds", params={"select": " ".join(select)})
    _finish_many(session, answer, "released", as_json, wait=timeout if waiting else None)


@select_help
@click.command()
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@wait_options
@json_option
def retry(session: Session, select: tuple[str, ...], waiting: bool, timeout: float, as_json: bool) -> None:
    """Forget failures and faults, try again now.

    \b
    Example: strata node retry state:faulted
             strata node retry state:faulted --wait
    """
    answer = session.client.post("/v1/retries", {"select": " ".join(select)})
    _finish_many(session, answer, "retried", as_json, wait=timeout if waiting else None)


def _finish_many(session: Session, answer: Json, what: str, as_json: bool, wait: float | None = None) -> None:
    """Report, and then follow the nodes for ``wait`` seconds at most; None: not at all."""
    if as_json:
        session.out.json(answer)
    else:
        changed = int(answer["changed"])
        session.out.line(f"{what} {answer['nodeset']}" if changed else f"nothing to do: 0 nodes {what}")
    _complain(session, list(answer.get("errors", ())))
    if answer.get("errors"):
        exits.leave(exits.ERROR)
    if wait is not None and answer["changed"]:
        # By name: what selected them (state:faulted) may not be so any more.
        exits.leave(arrival(session, str(answer["nodeset"]), wait, revision=int(answer["revision"])))


@click.command()
@click.argument("nodes", nargs=-1)
@click.option("-f", "--file", "file", type=click.Path(path_type=Path, allow_dash=True), help="YAML or CSV; - is stdin.")
@click.option("--role", help="Role of all nodes named here.")
@click.option("--architecture", help="Architecture of all nodes named here.")
@click.option("--label", multiple=True, metavar="KEY=VALUE", help="Label for all nodes named here.")
@click.option("--location", help="Xname of the node; for one node only.")
@click.option("--nid", type=click.IntRange(min=0), help="NID of the node; for one node only.")
@click.option("--bmc", help="Address of its BMC; for one node only.")
@click.option(
    "--interface",
    multiple=True,
    metavar="mac=MAC,...",
    help="A network port, for one node: mac=, address=, name=, port=. May be repeated; the first one boots.",
)
@json_option
def add(
    session: Session,
    /,
    nodes: tuple[str, ...],
    file: Path | None,
    label: tuple[str, ...],
    interface: tuple[str, ...],
    as_json: bool,
    **fields: str | int | None,
) -> None:
    """Add nodes: a nodeset here, or a file.

    \b
    Example: strata node add n[0001-0064] --role compute --label rack=7
             strata node add n0065 --interface mac=52:54:00:12:34:56,address=10.77.0.11,name=boot
             strata node add -f nodes.csv
    A CSV file has a heading with name and any of location, nid, role, architecture, labels (k=v;k=v), bmc,
    interfaces (mac=...,address=...;mac=...). An interface without an address is given one.
    """
    from strata.cli import files

    given: Json = {name: value for name, value in fields.items() if value is not None}
    if label:
        given["labels"] = pairs(label, option="--label")
    if interface:
        given["interfaces"] = interfaces(interface)
    if bool(nodes) == (file is not None):
        raise click.UsageError("name nodes, or give a file with -f")
    if file is not None:
        if given:
            raise click.UsageError("with -f, write the fields into the file")
        specs = files.read_nodes(file)
    else:
        from strata.core.nodeset import expand

        specs = [{"name": name, **given} for name in expand(",".join(nodes))]
        if len(specs) > 1 and {"location", "nid", "bmc", "interfaces"} & set(given):
            raise click.UsageError("--location, --nid, --bmc and --interface belong to one node; use -f FILE for many")
    results = create(session.client, specs, session)
    wrong = [result for result in results if not result["ok"]]
    session.out.answer(as_json, results, f"added {len(results) - len(wrong)} of {many(len(results), 'node')}")
    _complain(session, wrong)
    if wrong:
        exits.leave(exits.CONFLICT if all(result.get("status") == 409 for result in wrong) else exits.ERROR)


def create(client: Client, specs: list[Json], session: Session) -> list[Json]:
    """Create nodes in batches; a result for each."""
    from strata.cli.progress import Meter

    results: list[Json] = []
    if len(specs) <= CREATE_BATCH:
        return _created(client, specs) if specs else []
    with Meter(session.out, "adding nodes") as meter:
        for start in range(0, len(specs), CREATE_BATCH):
            results += _created(client, specs[start : start + CREATE_BATCH])
            meter.update(len(results), len(specs))
    return results


def _created(client: Client, specs: list[Json]) -> list[Json]:
    return list(client.post("/v1/nodes", {"nodes": specs})["results"])


@select_help
@click.command()
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def delete(session: Session, select: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Forget nodes and all that was said about them. Nothing is done to the machines.

    \b
    Example: strata node delete n[0001-0004] --yes
    """
    from strata.cli.progress import Meter
    from strata.core.errors import StrataError

    client = session.client
    names = [str(item["name"]) for item in client.pages("/v1/nodes", {"select": " ".join(select), "fields": "name"})]
    if not yes and names:
        confirm(session, f"Forget {many(len(names), 'node')}: {fold(names)}?")
    wrong: list[Json] = []
    with Meter(session.out, "deleting nodes") as meter:
        for done, name in enumerate(names, 1):
            try:
                client.delete(f"/v1/nodes/{segment(name)}")
            except StrataError as error:
                if len(names) == 1:
                    raise
                wrong.append({"node": name, "error": error.detail})
            if len(names) > 1:
                meter.update(done, len(names))
    done = len(names) - len(wrong)
    session.out.answer(as_json, {"deleted": done, "errors": wrong}, f"deleted {done} of {many(len(names), 'node')}")
    _complain(session, wrong if not as_json else [])
    if wrong:
        exits.leave(exits.ERROR)


def confirm(session: Session, question: str) -> None:
    """Ask the person; where nobody can answer, say how to do without."""
    import sys

    if not sys.stdin.isatty():
        raise click.UsageError("not a terminal, so nobody can be asked to confirm: add --yes")
    if not click.confirm(question, err=True):
        raise click.Abort
