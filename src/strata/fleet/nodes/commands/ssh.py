"""``strata ssh``: a shell on a node by its Strata name, at the address that Strata knows."""

from __future__ import annotations

import os

import click

from strata.cli.session import Session, pass_session
from strata.cli.words import complete_node, segment
from strata.core.errors import BadRequest, Unavailable

_PATIENCE = 10
"""Seconds that a node has to answer: a shell that never comes looks like one that is slow."""


@click.command()
@click.argument("name", metavar="[USER@]NODE", shell_complete=complete_node)
@click.argument("command", nargs=-1, metavar="[-- COMMAND [ARGUMENT]...]")
@click.option(
    "--jump", default="", metavar="HOST", help="Connect through this host, if nodes cannot be reached from here."
)
@pass_session
def ssh(session: Session, name: str, command: tuple[str, ...], jump: str) -> None:
    """Log in to a node by ssh. Its host key is looked up under the node's name, whatever address it has now.

    \b
    Example: strata ssh n0042
             strata ssh root@n0042 -- journalctl -b
    """
    user, at, node = name.rpartition("@")
    found = session.client.get(f"/v1/nodes/{segment(node)}")
    address = next((one["address"] for one in found["interfaces"] if one.get("address")), "")
    if not address:
        raise BadRequest(
            "no address is known of it",
            where=found["name"],
            hint=f"strata node edit {found['name']} --interface mac=MAC,address=ADDRESS",
        )
    words = [
        "ssh",
        "-o",
        f"HostKeyAlias={found['name']}",
        "-o",
        f"ConnectTimeout={_PATIENCE}",
        *(["-J", jump] if jump else []),
        "--",
        f"{user}{at}{address}",
    ]
    session.close()
    try:
        os.execvp("ssh", [*words, *command])
    except FileNotFoundError:
        raise Unavailable("there is no ssh on this machine", where="ssh", hint="install openssh-client") from None
