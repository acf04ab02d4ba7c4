"""``strata cloud-init``: what nodes' images learn of their nodes when they start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import many
from strata.cli.reading import read_text
from strata.cli.session import Session
from strata.cli.words import complete_node, complete_select, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.plain("select"),
    ls.number("nodes"),
    ls.number("priority"),
    ls.Field("user data", lambda item: (item["user_data"].splitlines() or ["-"])[0]),
    ls.Field("vendor data", lambda item: (item["vendor_data"].splitlines() or ["-"])[0], shown=False),
    ls.Field("ssh keys", lambda item: len(item["ssh_keys"]), right=True),
)
_TEXT = click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)


@click.group("cloud-init")
def cloud_init() -> None:
    """Give nodes their cloud-init data: user-data, vendor-data and ssh keys."""


def _show(session: Session, found: Json) -> None:
    keys = (("ssh key", key) for key in found["ssh_keys"])
    session.out.fields((*((field, found[field]) for field in ("name", "select", "nodes", "priority")), *keys))
    for field in ("user_data", "vendor_data"):
        if found[field]:
            session.out.text(f"--- {field.replace('_', '-')}\n{found[field]}")


_NAMED = Named(cloud_init, "document", "/v1/cloud-init", FIELDS, report=_show)
_NAMED.list("List the cloud-init documents, and how many nodes each is for.", "strata cloud-init list")
_NAMED.show("Show one document.", "strata cloud-init show site")
_NAMED.delete("Delete a cloud-init document.", "strata cloud-init delete gpu")


@cloud_init.command()
@click.argument("name")
@click.option(
    "--select",
    default="*",
    metavar="SELECT",
    show_default=True,
    shell_complete=complete_select,
    help="Nodes that it is for.",
)
@click.option(
    "--priority",
    default=0,
    show_default=True,
    help="If several documents fit a node, the user data of the highest priority is used.",
)
@click.option("--user-data", type=_TEXT, help="File with the data; '-' is standard input.")
@click.option("--vendor-data", type=_TEXT, help="File with the data; '-' is standard input.")
@click.option("--ssh-key", "ssh_keys", multiple=True, type=_TEXT, help="File with public keys, one on a line.")
@ls.json_option
def put(
    session: Session,
    name: str,
    select: str,
    priority: int,
    user_data: Path | None,
    vendor_data: Path | None,
    ssh_keys: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Create or replace cloud-init data for the selected nodes. Put no secrets in it: whoever has a node's address can
    read it.

    \b
    Example: strata cloud-init put site --user-data site.yaml --ssh-key admins.pub
             strata cloud-init put gpu --select @gpu --priority 10 --user-data gpu.yaml
    """
    body = {
        "select": select,
        "priority": priority,
        "user_data": _text(user_data),
        "vendor_data": _text(vendor_data),
        "ssh_keys": [line.strip() for file in ssh_keys for line in _text(file).splitlines() if line.strip()],
    }
    found = session.client.put(_NAMED.path(name), body)
    session.out.answer(as_json, found, f"{name}: for {many(found['nodes'], 'node')}")


@cloud_init.command()
@click.argument("node", shell_complete=complete_node)
@ls.json_option
def render(session: Session, node: str, as_json: bool) -> None:
    """Show the files that a node gets: meta-data, user-data, vendor-data, network-config.

    \b
    Example: strata cloud-init render n1
    """
    found = session.client.get(f"/v1/nodes/{segment(node)}/cloud-init")
    if as_json:
        session.out.json(found)
        return
    for field in ("meta_data", "user_data", "vendor_data", "network_config"):
        session.out.text(f"--- {field.replace('_', '-')}\n{found[field]}")


def _text(path: Path | None) -> str:
    return read_text(path) if path is not None else ""
