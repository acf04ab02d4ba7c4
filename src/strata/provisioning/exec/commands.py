"""``strata node exec`` and ``strata cp``: run a command on nodes, copy a file to them, through their agents."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import fold, many
from strata.cli.session import Session
from strata.cli.times import DURATION
from strata.cli.words import complete_select, select_help

if TYPE_CHECKING:
    from strata.cli.client import Json

MOST_COPIED = 2**20
"""Bytes of a file that is copied to nodes: each gets them in one message."""
# A file is not there before all of it is: a reader never sees a part, and a full disk leaves the old one.
_RECEIVE = """
set -e; part=$1.part.$$; trap 'rm -f "$part"' EXIT
cat > "$part"; [ "$(wc -c < "$part")" -eq "$3" ]; chmod "$2" "$part"; mv -f "$part" "$1"; trap - EXIT
"""
_WAIT = 10  # seconds that the service holds a question for more results


@select_help
@click.command("exec")
@click.argument("select", shell_complete=complete_select)
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND [ARGUMENT]...")
@click.option("--minos", is_flag=True, help="Run it in the minimal OS, not in the personality.")
@click.option("--member", default="", help="Run it in this member of the personality [default: its first].")
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="Give up on a node after this long.")
@click.option("--stream", is_flag=True, help="Print each node's output as it comes, not folded.")
@ls.json_option
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
    """Run a command on the nodes that SELECT names. Identical output is printed once, under the list of nodes that
    gave it.

    The command is not run in a shell; use 'sh -c' for that. Standard output and standard error are merged. Exit code 1
    if it failed on any node; Ctrl-C ends it on all of them.

    \b
    Example: strata node exec @compute -- uname -a
             strata node exec --minos --timeout 5s 'n[0001-0004]' -- dmesg
    """
    if minos and member:
        raise click.UsageError("--minos and --member exclude each other")
    request = {"select": select, "argv": list(argv), "where": "minos" if minos else member, "timeout": timeout}
    run_on_nodes(session, request, stream=stream, as_json=as_json)


def run_on_nodes(
    session: Session, request: Json, *, title: str = "exec", stream: bool = False, as_json: bool = False
) -> None:
    """Have it run, show what comes, and leave with what came of it."""
    run = session.client.post("/v1/exec", request)
    results: list[Json] = []
    interrupted = False
    try:
        _follow(session, run, results, title=title, stream=stream and not as_json)
    except KeyboardInterrupt:
        interrupted = True
        session.client.close()  # an answer may be half read
        session.client.delete(f"/v1/exec/{run['id']}")
        session.out.note(f"cancelled; {many(int(run['total']) - len(results), 'node')} had not answered")
    if as_json:
        session.out.json(sorted(results, key=lambda item: str(item["node"])))
    elif not stream:
        _folded(session, results)
    failed = _failures(session, results, quiet=as_json)
    exits.leave(exits.INTERRUPTED if interrupted else exits.ERROR if failed else 0)


def _follow(session: Session, run: Json, results: list[Json], *, title: str, stream: bool) -> None:
    from strata.cli.progress import Meter

    total = int(run["total"])
    with Meter(session.out, title) as meter:
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


@select_help
@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.argument("to", metavar="SELECT:PATH")
@click.option("--mode", default="", metavar="OCTAL", help="Its permissions. Default: those of FILE; 644 for '-'.")
@click.option("--minos", is_flag=True, help="Copy it into the minimal OS, not into the personality.")
@click.option("--member", default="", help="Copy it into this member of the personality [default: its first].")
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="Give up on a node after this long.")
@ls.json_option
def cp(
    session: Session, file: Path, to: str, mode: str, minos: bool, member: str, timeout: float, as_json: bool
) -> None:
    """Copy a file to nodes, through their agents. The file arrives complete or not at all. It is lost when the node
    reboots; files that must stay belong in the configuration ('strata config').

    \b
    Example: strata cp motd @compute:/etc/motd
             strata cp fix.sh 'n[1-4]:/usr/local/sbin/fix.sh' --mode 755
    """
    import base64

    if minos and member:
        raise click.UsageError("--minos and --member exclude each other")
    select, colon, path = to.partition(":/")
    if not colon or not select:
        raise click.UsageError(f"{to!r} is not SELECT:/PATH, such as @compute:/etc/motd")
    if mode and not re.fullmatch(r"[0-7]{3,4}", mode):
        raise click.UsageError(f"--mode takes octal permissions such as 644, not {mode!r}")
    if str(file) == "-":
        data, mode = sys.stdin.buffer.read(MOST_COPIED + 1), mode or "644"
    else:
        with file.open("rb") as source:
            data = source.read(MOST_COPIED + 1)
        mode = mode or f"{file.stat().st_mode & 0o777:o}"
    if len(data) > MOST_COPIED:
        raise click.UsageError(
            f"{file}: more than {MOST_COPIED >> 10} KiB; put it into an image, or fetch it from nodes"
        )
    request = {
        "select": select,
        "argv": ["/bin/sh", "-c", _RECEIVE, "cp", f"/{path}", mode, str(len(data))],
        "where": "minos" if minos else member,
        "timeout": timeout,
        "stdin": base64.b64encode(data).decode(),
    }
    run_on_nodes(session, request, title=f"copied to /{path}", as_json=as_json)
