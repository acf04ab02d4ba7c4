"""``strata ansible``: the fleet as Ansible's dynamic inventory."""

from __future__ import annotations

import click

from strata.cli.session import Session, pass_session
from strata.cli.words import complete_node, complete_select, no_blank
from strata.core.errors import NotFound


@click.group()
def ansible() -> None:
    """Give Ansible the fleet as its inventory."""


@ansible.command()
@click.option("--list", "whole", is_flag=True, help="All groups and hosts, as Ansible asks for them.")
@click.option("--host", default="", metavar="NODE", help="The variables of one host.", shell_complete=complete_node)
@click.option(
    "--select", multiple=True, default=("*",), metavar="SELECT", callback=no_blank, shell_complete=complete_select,
    help="Which nodes; all by default.",
)  # fmt: skip
@pass_session
def inventory(session: Session, whole: bool, host: str, select: tuple[str, ...]) -> None:
    """Print the fleet as a dynamic inventory for Ansible.

    Groups, roles (role_compute) and architectures (arch_x86_64) are its groups; in names of groups '-' and '.' become
    '_'. No secret is in it.

    \b
    Example: strata ansible inventory --list
             strata ansible inventory --host n1
             printf '#!/bin/sh\\nexec strata ansible inventory "$@"\\n' > strata.sh && chmod +x strata.sh
             ansible-playbook -i strata.sh site.yaml
    """
    if whole == bool(host):
        raise click.UsageError("give --list, or --host NODE")
    wanted = " ".join(select)
    found = session.client.get("/v1/ansible/inventory", {"select": host or wanted})
    if not host:
        session.out.json(found)
        return
    if host not in found["_meta"]["hostvars"]:
        raise NotFound(f"no such node: {host[:80]}", where="--host", hint="name one node")
    session.out.json(found["_meta"]["hostvars"][host])
