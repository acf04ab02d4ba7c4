"""``strata freeze`` and ``thaw``: the brake for the fleet, a group or a node. (For holds: ``strata node hold``.)"""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.session import Session
from strata.cli.words import complete_group, complete_node, segment

FIELDS = (
    ls.plain("scope"),
    ls.plain("reason"),
    ls.plain("author"),
    ls.moment("since"),
)


def _scope(group: str | None, node: str | None) -> str:
    if group and node:
        raise click.UsageError("give --group or --node, not both")
    return f"group:{group}" if group else f"node:{node}" if node else "fleet"


@click.command()
@click.option("--group", shell_complete=complete_group, help="Only this group.")
@click.option("--node", shell_complete=complete_node, help="Only this node.")
@click.option("--reason", help="Why; others will read it.")
@click.option("--list", "listing", is_flag=True, help="Show the brakes that are on.")
@ls.listing(FIELDS, sort="scope")
def freeze(
    session: Session, group: str | None, node: str | None, reason: str | None, listing: bool, view: ls.Listing
) -> None:
    """Stop all automation for the fleet, a group or a node. What is under way ends; nothing new begins.

    \b
    Example: strata freeze --reason 'cooling plant is down'
             strata freeze --group gpu --reason 'firmware trial'
             strata freeze --list
    """
    if listing:
        ls.show(session, FIELDS, session.client.get("/v1/freezes")["items"], view)
        return
    if not reason:
        raise click.UsageError("say why with --reason (or --list the brakes that are on)")
    scope = _scope(group, node)
    answer = session.client.post("/v1/freezes", {"scope": scope, "reason": reason})
    session.out.answer(view.json, answer, f"frozen: {scope}. 'strata thaw{_options(group, node)}' lets it go on")


@click.command()
@click.option("--group", shell_complete=complete_group, help="Only this group.")
@click.option("--node", shell_complete=complete_node, help="Only this node, or each of a nodeset.")
@ls.json_option
def thaw(session: Session, group: str | None, node: str | None, as_json: bool) -> None:
    """Undo 'strata freeze' or 'strata emergency-off': let automation go on.

    \b
    Example: strata thaw
             strata thaw --group gpu
             strata thaw --node 'n[0001-0064]'
    """
    from strata.core.nodeset import expand

    scope = _scope(group, node)
    for one in [f"node:{name}" for name in expand(node)] if node and not group else [scope]:
        session.client.delete(f"/v1/freezes/{segment(one)}")
    session.out.answer(as_json, {"thawed": scope}, f"thawed: {scope}")


def _options(group: str | None, node: str | None) -> str:
    return f" --group {group}" if group else f" --node {node}" if node else ""
