"""``strata emergency-revoke``: nodes that nobody trusts any more are cut off."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.words import complete_select, no_blank, select_help
from strata.platform.flows.commands.flow import ask_words, begun


@select_help
@click.command("emergency-revoke")
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@click.option("--reason", required=True, help="Why; it goes into the audit log.")
@click.option("--confirm", default="", metavar="TEXT", help="'revoke N nodes', for scripts. Default: ask.")
@click.option("--dry-run", is_flag=True, help="Only show which nodes it would cut off.")
@click.option(
    "--wait/--no-wait", default=True, help="Wait until it has ended; exit code 1 if it failed.  [default: wait]"
)
@ls.json_option
def emergency_revoke(
    session: Session, select: tuple[str, ...], reason: str, confirm: str, dry_run: bool, wait: bool, as_json: bool
) -> None:
    """Revoke nodes' certificates at once. They get no more secrets, images or commands until they boot anew.

    \b
    Example: strata emergency-revoke @rack12 --reason 'a key was lost' --dry-run
             strata emergency-revoke @rack12 --reason 'a key was lost' --confirm 'revoke 32 nodes'
    """
    chosen = " ".join(select)
    if dry_run or not confirm:
        found = session.client.get("/v1/nodes", {"select": chosen, "folded": True})
        words = f"revoke {many(found['total'], 'node')}"
        if dry_run:
            said = f"would cut off {many(found['total'], 'node')}: {found['nodeset']}; to do it, confirm with: {words}"
            session.out.answer(as_json, {"nodes": found["nodeset"], "total": found["total"], "confirm": words}, said)
            return
        confirm = ask_words(session, words, f"This cuts off {many(found['total'], 'node')}: {found['nodeset']}")
    body = {"select": chosen, "reason": reason, "confirm": confirm}
    begun(session, session.client.post("/v1/emergency-revoke", body), wait, as_json)
