"""``strata watch``: what happens, as it happens."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from strata.cli.session import Session, pass_session
from strata.cli.words import complete_select, no_blank, select_help

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strata.cli.client import Event, Json

KINDS = ("transition", "desire", "hold", "freeze", "node", "operation", "compacted")
_COLOURS = {"desire": "cyan", "hold": "magenta", "freeze": "blue", "compacted": "yellow"}
_SUBJECTS = ("node", "nodes", "scope", "key", "name", "id")
_SHOWN = {*_SUBJECTS, "time", "since", "gone", "count", "controller", "variable", "old", "new", "source", "cause"}


@select_help
@click.command()
@click.argument("select", nargs=-1, callback=no_blank, shell_complete=complete_select)
@click.option("--since", type=click.IntRange(min=0), help="Begin at this revision. Default: now.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this kind; may be repeated.")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on a line.")
@pass_session
def watch(
    session: Session,
    select: tuple[str, ...],
    since: int | None,
    kinds: tuple[str, ...],
    count: int | None,
    as_json: bool,
) -> None:
    """Show changes of the selected nodes until interrupted. After a lost connection it continues where it stopped.

    \b
    Example: strata watch @compute
             strata watch --kind transition --json
    """
    shown = 0
    for event in session.client.events("/v1/watch", {"select": " ".join(select), "since": since}):
        if kinds and event.kind not in kinds:
            continue
        if as_json:
            revision = int(event.id) if event.id.isdigit() else None
            session.out.json_line({"revision": revision, "event": event.kind, "data": event.data})
        else:
            session.out.line(describe(event, live=since is None), colour=_COLOURS.get(event.kind, ""))
        shown += 1
        if shown == count:
            return


def describe(event: Event, *, live: bool = True) -> str:
    """One event in words; what it carries beyond the usual is shown as ``key=value``.

    One without a time of its own happened just now if it is ``live``, otherwise nobody knows when.
    """
    if event.kind == "compacted":
        return "--:--:--  compacted   some changes are gone: list again to see how things stand"
    data: Json = event.data if isinstance(event.data, dict) else {"": event.data}
    at = data.get("time")
    moment = datetime.fromtimestamp(at) if isinstance(at, int | float) else datetime.now() if live else None
    clock = f"{moment:%H:%M:%S}" if moment else "--:--:--"
    subject = next((str(data[key]) for key in _SUBJECTS if data.get(key)), "")
    told = " ".join(_words(event.kind, data))
    return f"{clock}  {event.kind:<10}  {subject}  {told}".rstrip()


def _words(kind: str, data: Json) -> Iterator[str]:
    if kind == "operation":
        yield f"{data.get('kind', '')} {data.get('state', '')}: {data.get('done')} of {data.get('total')} done,"
        yield f"{data.get('failed')} failed"
        return
    if data.get("gone"):
        yield "is gone"
    if "variable" in data:
        yield f"{data['variable']} {data.get('old', '?')} → {data.get('new', '?')}"
    by = ": ".join(str(data[key]) for key in ("source", "cause") if data.get(key))
    if by:
        yield f"({by})"
    for key, value in data.items():
        if key not in _SHOWN and value not in ("", None):
            yield f"{key}={value}"
