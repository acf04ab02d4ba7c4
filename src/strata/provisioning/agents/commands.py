"""``strata node agent``: what a node's agent says."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.output import Column
from strata.cli.session import Session
from strata.cli.times import span, when
from strata.cli.words import complete_node, segment


@click.command()
@click.argument("name", shell_complete=complete_node)
@click.option("--inventory", is_flag=True, help="The hardware that it reports, as JSON.")
@ls.json_option
def agent(session: Session, name: str, inventory: bool, as_json: bool) -> None:
    """Show what a node's agent says: its personality, images, health, measurements.

    \b
    Example: strata node agent n0042
             strata node agent n0042 --inventory
    """
    path = f"/v1/nodes/{segment(name)}/agent"
    if inventory:
        found = session.client.get(f"{path}/inventory")
        session.out.json(found if as_json else found["inventory"])
        return
    view = session.client.get(path)
    if as_json:
        session.out.json(view)
        return
    contact = view["contact"]
    session.out.fields(
        (
            ("node", view["node"]),
            ("attached", "yes" if view["attached"] else "no"),
            ("last word", when(contact) if contact else "none since this service runs"),
            ("boot", view["generation"] or ""),
            ("profile", view["profile"]),
            ("up for", span(view["uptime"]) if view["uptime"] else ""),
            ("personality", view["set"]),
            ("digest", view["set_digest"]),
            ("state", view["state"] if contact else ""),
            ("reason", view["reason"]),
            ("last failure", view["failure"]),
            ("problems", "; ".join(view["problems"])),
            ("pending", view["pending"] or ""),
        )
    )
    rows = [
        (item["name"], item["state"], "yes" if item["ready"] else "no", item["restarts"], item["reason"] or "-")
        for item in view["members"]
    ]
    if rows:
        session.out.line()
        session.out.table([Column(title) for title in ("member", "state", "ready", "restarts", "reason")], rows)
