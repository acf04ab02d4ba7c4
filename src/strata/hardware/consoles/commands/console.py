"""``strata console``: what nodes' consoles print, now and before. Also ``strata hardware console``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.session import Session, pass_session
from strata.cli.times import WHEN, when
from strata.cli.words import complete_select, no_blank, segment, select_help

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strata.cli.client import Json

FIELDS = (
    ls.plain("node"),
    ls.plain("way"),
    ls.Field("open", lambda item: "yes" if item["connected"] else "no"),
    ls.number("lines"),
    ls.number("bytes"),
    ls.moment("last"),
    ls.plain("trouble"),
)


@select_help
@click.command()
@click.argument("select", nargs=-1, metavar="NODE | SELECT...", callback=no_blank, shell_complete=complete_select)
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0, 10_000),
    default=20,
    show_default=True,
    help="Show this many earlier lines first.",
)
@click.option("--no-follow", is_flag=True, help="Show the earlier lines and stop.")
@click.option("--dump", default="", metavar="FIRST-LAST", help="Show a kept excerpt, as an alert's `dump` names it.")
@click.option(
    "--search", "text", default="", metavar="TEXT", help="Find lines with TEXT in the consoles of many nodes."
)
@click.option("--regex", is_flag=True, help="With --search: TEXT is a regular expression, as in Python.")
@click.option("--since", type=WHEN, help="With --search: since then, 1h (an hour ago) or a date.")
@click.option("--until", type=WHEN, help="With --search: until then.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="With --search: show at most this many lines.",
)
@click.option("--type", "typing", is_flag=True, help="Interactive terminal: also send what you type. '~.' ends it.")
@click.option("--list", "list_", is_flag=True, help="Show how consoles are captured.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; when following, one object on a line.")
@pass_session
def console(
    session: Session,
    select: tuple[str, ...],
    lines: int,
    no_follow: bool,
    dump: str,
    text: str,
    regex: bool,
    since: float | None,
    until: float | None,
    limit: int,
    typing: bool,
    list_: bool,
    as_json: bool,
) -> None:
    """Follow a node's console until interrupted, type at it, or search many.

    \b
    Example: strata console n0042
             strata console n0042 --type
             strata console n0042 --lines 500 --no-follow
             strata console --search 'Kernel panic' @compute --since 1d
             strata console --list @compute
    """
    if list_:
        view = ls.Listing(as_json, (), "", ())
        ls.show(session, FIELDS, session.client.get("/v1/consoles", {"select": " ".join(select)})["items"], view)
    elif text:
        query = {"text": text, "select": " ".join(select), "regex": regex or None, "limit": limit}
        times = {name: None if at is None else f"{at:f}" for name, at in (("since", since), ("until", until))}
        _search(session, {**query, **times}, as_json)
    elif len(select) != 1:
        raise click.UsageError("name one node; several can be searched (--search TEXT) and listed (--list)")
    elif typing:
        from strata.hardware.consoles.commands.terminal import interact

        interact(session, select[0])
    elif dump:
        _print(session, _kept(session, select[0], dump), as_json)
    elif no_follow:
        _print(session, _tail(session, select[0], lines), as_json)
    else:
        for line in _followed(session, select[0], lines):
            if as_json:
                session.out.json_line(line)
            else:
                _line(session, line)


def _tail(session: Session, node: str, count: int) -> list[Json]:
    return list(session.client.get(f"/v1/nodes/{segment(node)}/console", {"lines": count})["items"])


def _kept(session: Session, node: str, dump: str) -> list[Json]:
    excerpt = dump.removeprefix(f"console:{node}:")
    return list(session.client.get(f"/v1/nodes/{segment(node)}/console/dumps/{segment(excerpt)}")["items"])


def _followed(session: Session, node: str, count: int) -> Iterator[Json]:
    """The last lines, then those that come, without a gap between them."""
    # One at least is asked for: it says where to go on.
    before = _tail(session, node, max(count, 1))
    yield from before[len(before) - count :] if count < len(before) else before
    newest = before[-1]["id"] if before else 0
    if not before:
        session.out.note(
            "nothing was printed yet; following it until Ctrl-C (strata console --list tells how it is read)"
        )
    path = f"/v1/nodes/{segment(node)}/console/follow"
    for event in session.client.events(path, {"since": newest}):
        if event.kind == "line":
            yield event.data
        elif event.kind == "compacted":
            session.out.note("some lines are not kept any more; going on from now")


def _search(session: Session, query: dict[str, str | int | bool | None], as_json: bool) -> None:
    found = session.client.get("/v1/consoles/search", query)
    if as_json:
        session.out.json(found)
        return
    hits = found["items"][::-1]
    width = max((len(hit["node"]) for hit in hits), default=0)
    for hit in hits:
        _line(session, hit["line"], f"{hit['node']:<{width}}  ")
    if not found["whole"]:
        session.out.note("there is more: narrow the search, or raise --limit")


def _print(session: Session, lines: list[Json], as_json: bool) -> None:
    if as_json:
        session.out.json(lines)
        return
    for line in lines:
        _line(session, line)


def _line(session: Session, line: Json, lead: str = "") -> None:
    source = line["source"]
    mark = "" if source == "serial" else f"[{source}] "
    session.out.line(f"{lead}{when(line['time'])}  {mark}{line['text']}", colour="yellow" if source == "strata" else "")
