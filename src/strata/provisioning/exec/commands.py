"""``strata node exec``: run a command on nodes, through their agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import fold, many
from strata.cli.session import Session, pass_session
from strata.cli.times import DURATION
from strata.cli.words import complete_select, select_help

if TYPE_CHECKING:
    from strata.cli.client import Json

_WAIT = 10  # seconds that the service holds a question for more results


@click.command("exec")
@click.argument("select", shell_complete=complete_select)
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND [ARGUMENT]...")
@click.option("--minos", is_flag=True, help="In the minimal OS, beside the personality.")
@click.option("--member", default="", help="In this member of the personality [default: its first].")
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="How long it may take on a node.")
@click.option("--stream", is_flag=True, help="Print each node's output as it comes, not folded.")
@ls.json_option
@pass_session
def exec_(
    session: Session,
    select: str,
    argv: tuple[str, ...],
    minos: bool,
    member: str,
    timeout: float,
    stream: bool,
    as_json: bool,
) -> None:
    """Run a command on the nodes that SELECT names. Equal outputs are printed once, before them whose they are.

    There is no shell: 'sh -c' brings one. Standard output and standard error come together. Exit code 1 if it failed
    anywhere; interrupting ends it everywhere.

    \b
    Example: strata node exec @compute -- uname -a
             strata node exec --minos --timeout 5s 'n[0001-0004]' -- dmesg
    """
    if minos and member:
        raise click.UsageError("--minos and --member exclude each other")
    request = {"select": select, "argv": list(argv), "where": "minos" if minos else member, "timeout": timeout}
    run: Json = session.client.request("POST", "/v1/exec", body=request).body
    results: list[Json] = []
    interrupted = False
    try:
        _follow(session, run, results, stream=stream and not as_json)
    except KeyboardInterrupt:
        interrupted = True
        session.client.close()  # an answer may be half read
        session.client.request("DELETE", f"/v1/exec/{run['id']}")
        session.out.note(f"cancelled; {many(int(run['total']) - len(results), 'node')} had not answered")
    if as_json:
        session.out.json(sorted(results, key=lambda item: str(item["node"])))
    elif not stream:
        _folded(session, results)
    failed = _failures(session, results, quiet=as_json)
    exits.leave(exits.INTERRUPTED if interrupted else exits.ERROR if failed else 0)


def _follow(session: Session, run: Json, results: list[Json], *, stream: bool) -> None:
    from strata.cli.progress import Meter

    total = int(run["total"])
    with Meter(session.out, "exec") as meter:
        while True:
            meter.update(len(results), total)
            page = session.client.get(f"/v1/exec/{run['id']}", {"after": len(results), "wait": _WAIT})
            results.extend(page["items"])
            if stream:
                for item in page["items"]:
                    _lines(session, item["node"], item["output"])
            if page["state"] != "running" and len(results) >= int(page["done"]):
                meter.update(len(results), total)
                return


def _folded(session: Session, results: Iterable[Json]) -> None:
    same: dict[str, list[str]] = {}
    for item in results:
        same.setdefault(str(item["output"]), []).append(str(item["node"]))
    for output, nodes in sorted(same.items(), key=lambda pair: min(pair[1])):
        if output:
            _lines(session, fold(nodes), output)


def _lines(session: Session, who: str, output: str) -> None:
    for line in output.splitlines():
        session.out.line(f"{who}: {line.expandtabs()}")


def _failures(session: Session, results: Iterable[Json], *, quiet: bool) -> int:
    """Say where it failed, folded; how many nodes that are."""
    why: dict[str, list[str]] = {}
    for item in results:
        reason = str(item["error"]) or (f"exit {item['exit']}" if item["exit"] != 0 else "")
        if reason:
            why.setdefault(reason, []).append(str(item["node"]))
        if item["truncated"] and not quiet:
            session.out.note(f"{item['node']}: the output was cut off")
    if not quiet:
        for reason, nodes in why.items():
            session.out.note(f"{fold(nodes)}: {reason}")
    return sum(map(len, why.values()))


select_help(exec_)
