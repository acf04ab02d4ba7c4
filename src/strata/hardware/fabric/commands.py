"""``strata fabric``: how things are cabled, and who shares a switch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.session import Session
from strata.cli.words import complete_select, select_help
from strata.core.printable import clean

if TYPE_CHECKING:
    from strata.cli.client import Json

NEAR = (
    ls.Field("switch", lambda item: item["switch"] or "(none known)"),
    ls.number("count"),
    ls.plain("nodes"),
)
MOST_CONFLICTS = 20
"""Conflicts that are shown: one switch that is wrong has one for each of its cables."""


@click.group()
def fabric() -> None:
    """See how things are cabled."""


@fabric.command()
@click.option("--dot", is_flag=True, help="A graph for Graphviz.")
@ls.json_option
def show(session: Session, dot: bool, as_json: bool) -> None:
    """Show switches and the nodes on them, as a tree; and what does not fit together.

    \b
    Example: strata fabric show
             strata fabric show --dot | dot -Tsvg -o fabric.svg
    """
    found = session.client.get("/v1/fabric")
    if as_json:
        session.out.json(found)
    elif dot:
        _dot(session, found)
    else:
        _tree(session, found)


@select_help
@fabric.command()
@click.argument("select", nargs=-1, shell_complete=complete_select)
@ls.listing(NEAR)
def near(session: Session, select: tuple[str, ...], view: ls.Listing) -> None:
    """List which of the selected nodes share a switch, most together first.

    \b
    Example: strata fabric near @compute
    """
    ls.show(session, NEAR, session.client.get("/v1/fabric/near", {"select": " ".join(select) or "*"})["items"], view)


def _tree(session: Session, found: Json) -> None:
    """Fabric, then the switches that only join others, then those with nodes, by where they lead."""
    from strata.core.nodeset import fold

    trunks = _trunks(found)
    by_fabric: dict[str, list[Json]] = {}
    for switch in found["switches"]:
        by_fabric.setdefault(switch["fabric"], []).append(switch)
    for name in sorted(by_fabric):
        session.out.line(f"fabric {name}" if name else "(fabric without a name)")
        leaves: dict[tuple[str, ...], list[Json]] = {}
        spines = {switch["id"] for switch in by_fabric[name] if not switch["nodes"]}
        for switch in by_fabric[name]:
            if switch["nodes"]:
                leaves.setdefault(tuple(sorted(trunks.get(switch["id"], set()) & spines)), []).append(switch)
        above = {spine for uplinks in leaves for spine in uplinks}
        for uplinks, members in sorted(leaves.items()):
            indent = "  "
            if uplinks:
                session.out.line(f"  {fold(uplinks)}")
                indent = "    "
            width = max(len(switch["id"]) for switch in members)
            for switch in members:
                session.out.line(f"{indent}{switch['id']:<{width}}  {switch['nodes']}")
        for spine in sorted(spines - above):
            session.out.line(f"  {spine}")
    if not found["switches"]:
        session.out.note("no switch is known; 'strata hardware discover' finds those that speak Redfish")
    for conflict in found["conflicts"][:MOST_CONFLICTS]:
        session.out.line(f"conflict: {conflict}", colour="red")
    if len(found["conflicts"]) > MOST_CONFLICTS:
        session.out.note(f"and {len(found['conflicts']) - MOST_CONFLICTS} more conflicts: --json shows them all")


def _dot(session: Session, found: Json) -> None:
    """Switches as boxes, the nodes of each folded into one."""
    session.out.line("graph fabric {")
    for switch in found["switches"]:
        session.out.line(f"  {_quoted(switch['id'])} [shape=box];")
        if switch["nodes"]:
            session.out.line(f"  {_quoted(switch['id'])} -- {_quoted(switch['nodes'])};")
    for a, others in sorted(_trunks(found).items()):
        for b in sorted(others):
            if a < b:
                session.out.line(f"  {_quoted(a)} -- {_quoted(b)};")
    session.out.line("}")


def _trunks(found: Json) -> dict[str, set[str]]:
    """Which switches are cabled to which."""
    known = {switch["id"] for switch in found["switches"]}
    trunks: dict[str, set[str]] = {}
    for link in found["links"]:
        a, b = (link[end].rpartition(":")[0] for end in ("a", "b"))
        if a in known and b in known:
            trunks.setdefault(a, set()).add(b)
            trunks.setdefault(b, set()).add(a)
    return trunks


def _quoted(text: str) -> str:
    return '"' + clean(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
