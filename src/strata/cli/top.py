"""``strata top``: the fleet live in a terminal. What needs somebody comes first, then what moves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from strata.cli.glance import Glance, glance, listed
from strata.cli.options import Between
from strata.cli.output import STATE_ORDER, many, state_colour
from strata.cli.session import Session, pass_session
from strata.cli.times import span
from strata.cli.words import complete_select, no_blank, select_help
from strata.core.errors import Denied, NotFound, Unavailable
from strata.core.nodeset import expand, fold
from strata.core.printable import clean

if TYPE_CHECKING:
    from rich.text import Text

    from strata.cli.client import Client, Json

MARKS = {"ready": "#", "off": "o", "converging": ">", "waiting": "~", "held": "H", "frozen": "*", "faulted": "X",
         "unreachable": "!", "unknown": "?", "unmanaged": "."}  # fmt: skip
"""What a state is drawn with, so that it is read without colours too."""
_WORST_FIRST = ("faulted", "unreachable", "unknown", "converging", "waiting", "held", "frozen")
_NODES = 200
"""Nodes that are asked for: more than any terminal has lines."""


class View(NamedTuple):
    """All that a frame shows."""

    seen: Glance
    nodes: tuple[Json, ...]
    """Those that are not at their goal, the worst first."""
    waits: Mapping[str, str]
    """Node → what holds it up, of those that wait."""
    operations: tuple[Json, ...]
    watts: float | None
    """None: nobody measures."""


@select_help
@click.command()
@click.argument("select", nargs=-1, metavar="[SELECT]", callback=no_blank, shell_complete=complete_select)
@click.option(
    "--interval", type=Between(0.2, 3600), default=2.0, show_default=True, help="Seconds between two updates."
)
@click.option("--once", is_flag=True, help="Show it once and exit; the default in a pipe.")
@pass_session
def top(session: Session, select: tuple[str, ...], interval: float, once: bool) -> None:
    """Watch the fleet live: states, trouble, alerts, what moves, rollouts. Ctrl-C ends it.

    \b
    Example: strata top
             strata top @compute --interval 5
             strata top --once
    """
    chosen = " ".join(select) or "*"
    client, out = session.client, session.out
    console = out.console()
    if once or not out.terminal:
        for line in frame(look(client, chosen), console.width, 10_000):
            console.print(line)
        return
    from rich.console import Group
    from rich.live import Live

    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            view = look(client, chosen)
            live.update(Group(*frame(view, console.width, console.height)), refresh=True)
            time.sleep(interval)


def look(client: Client, select: str) -> View:
    """Ask for a frame's contents: a fixed number of questions, whatever the size of the fleet."""
    seen = glance(client)
    nodes: list[Json] = []
    for state in _WORST_FIRST:
        if seen.status["by_state"].get(state) and len(nodes) < _NODES:
            query: dict[str, str | int | bool | None] = {
                "select": select, "state": state, "limit": _NODES - len(nodes), "fields": "name,state,doing,fault,hold",
            }  # fmt: skip
            nodes += client.get("/v1/nodes", query)["items"]
    waits: dict[str, str] = {}
    if waiting := [one["name"] for one in nodes if one["state"] == "waiting"]:
        for group in client.get("/v1/why", {"select": fold(waiting)})["items"]:
            held_up = ", ".join(f"{one['kind']} {one['name']}".strip() for one in group["blocked_by"])
            waits |= dict.fromkeys(expand(group["nodes"]), held_up)
    work = [one for one in listed(client, "/v1/operations", limit=20) if one["state"] in ("pending", "running")]
    watts = None
    with contextlib.suppress(Denied, NotFound, Unavailable):
        watts = client.get("/v1/power/system")["system"]["now"]
    return View(seen, tuple(nodes), waits, tuple(work), watts)


def frame(view: View, width: int, height: int) -> list[Text]:
    """The lines of the screen."""
    from rich.text import Text

    lines = [*_head(view, width)]
    for title, rows in (
        ("Alerts", [f"{one['severity']:<9}{_whom(one)}{one['message']}" for one in view.seen.alerts[:5]]),
        ("Rollouts", [told for _, told in view.seen.rolling()]),
        ("Operations", [_operation(one) for one in view.operations[:5]]),
    ):
        if rows:
            lines += [Text(), Text(title, style="bold"), *(Text(clean(row)) for row in rows)]
    if view.nodes:
        lines += [Text(), Text(f"{'Node':<16}{'State':<13}{'Doing':<28}Why", style="bold")]
        lines += [_node(node, view.waits) for node in view.nodes]
    if len(lines) > height - 1:
        hidden = len(lines) - (height - 2)
        lines = [*lines[: height - 2], Text(f"and {many(hidden, 'more line')}: strata node list")]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _head(view: View, width: int) -> Iterator[Text]:
    from rich.text import Text

    status = view.seen.status
    drawn = f"   {view.watts / 1000:.1f} kW" if view.watts is not None else ""
    up = span(time.time() - status["started"])
    yield Text(f"{many(status['nodes'], 'node')}{drawn}   controller {clean(status['controller'])}, up {up}")
    for trouble in status["troubles"]:
        yield Text(f"trouble: {clean(trouble)}", style="red")
    by_state = {state: status["by_state"].get(state, 0) for state in STATE_ORDER}
    bar = Text()
    for state, cells in _shares(by_state, min(width, 100)):
        bar.append(MARKS[state] * cells, style=state_colour(state))
    yield bar
    legend = Text()
    for state, count in by_state.items():
        if count:
            legend.append(f"{MARKS[state]} {count} {state}   ", style=state_colour(state))
    yield legend


def _shares(by_state: dict[str, int], width: int) -> Iterator[tuple[str, int]]:
    """How many cells of the bar a state has: its share, and one at least where there is a node."""
    total = sum(by_state.values())
    present = [state for state, count in by_state.items() if count]
    for state in present:
        yield state, 1 + by_state[state] * max(0, width - len(present)) // total


def _node(node: Json, waits: Mapping[str, str]) -> Text:
    from rich.text import Text

    doing = node.get("doing")
    doing_text = f"{doing['mutation']} ({span(time.time() - doing['since'])})" if doing else "-"
    why = node.get("fault") or (node.get("hold") or {}).get("reason") or waits.get(node["name"], "")
    line = Text(clean(f"{node['name']:<16}"))
    line.append(f"{node['state']:<13}", style=state_colour(node["state"]))
    line.append(clean(f"{doing_text:<28}{why}"))
    return line


def _operation(one: Json) -> str:
    failed = f", {one['failed']} failed" if one["failed"] else ""
    return f"{one['id']}  {one['kind']}: {one['done']} of {one['total']}{failed}  ({one['author']})"


def _whom(alert: Json) -> str:
    """Whom it is about, before what it says; alerts of the site are about nobody."""
    subject = alert.get("node") or alert.get("bmc")
    return f"{subject}: " if subject else ""
