"""``strata workload``: the site's workload managers, and what they say of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.times import when
from strata.cli.words import complete_select, pairs, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.plain("kind"),
    ls.Field("on", lambda item: item["on"] or "here"),
    ls.Field("answers", lambda item: "yes" if item["answers"] else "no"),
    ls.number("nodes"),
    ls.number("drained"),
    ls.number("busy"),
    ls.plain("trouble"),
    ls.plain("strangers", shown=False),
    ls.plain("missing", shown=False),
)
NODE_FIELDS = (
    ls.plain("node"),
    ls.plain("workload"),
    ls.plain("state"),
    ls.plain("jobs"),
    ls.Field("drained by", lambda item: "strata" if item["ours"] else item["by"] or "-"),
    ls.plain("reason"),
    ls.plain("called", shown=False),
)


@click.group()
def workload() -> None:
    """Connect the site's workload managers, so that no running job loses its node."""


@workload.command()
@click.argument("kind", type=click.Choice(("slurm", "gridengine")))
@click.option("--name", default="", help="What to call it. Default: its kind.")
@click.option(
    "--on", metavar="[USER@]HOST", help="Run its commands on this host, by ssh. Default: on the controller's host."
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of its commands: SLURM_CONF, SGE_ROOT...")
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="OURS=ITS",
    help="Node names that differ: Strata's names = its names (same count).",
)
@click.option("--strata", metavar="PATH", help="Strata's command on its nodes. Default: strata, by their PATH.")
@click.option(
    "--images",
    metavar="FOLDER",
    help="Shared folder of unpacked images, visible on its nodes and controllers; its nodes then do not need Strata.",
)
@click.option("--runner", metavar="PATH", help="strata-run on its nodes. Default: /usr/lib/strata/strata-run.")
@ls.json_option
def connect(
    session: Session,
    /,
    kind: str,
    name: str,
    on: str | None,
    env: tuple[str, ...],
    maps: tuple[str, ...],
    as_json: bool,
    **on_nodes: str | None,
) -> None:
    """Connect a workload manager that runs already, or change how it is reached.

    From then on Strata drains a node there before it does anything that could hurt a job.

    \b
    Example: strata workload connect slurm
             strata workload connect slurm --name old --on strata@login1 --env SLURM_CONF=/etc/slurm-old/slurm.conf
             strata workload connect slurm --map 'n[1-8]=nid[00001-00008]'
             strata workload connect slurm --images /cluster/images
    """
    body = {"kind": kind, "on": on, "env": pairs(env, option="--env"), "names": pairs(maps, option="--map")}
    body |= {name: value for name, value in on_nodes.items() if value is not None}
    found = session.client.put(f"/v1/workloads/{segment(name or kind)}", body)
    if as_json:
        session.out.json(found)
        return
    session.out.line(f"connected {found['kind']} {found['name']}: it knows {many(found['nodes'], 'node')} of ours")
    if found["strangers"]:
        session.out.note(f"It has nodes that Strata does not know: {found['strangers']}")
    if found["missing"]:
        session.out.note(
            f"It does not know these, so Strata assumes that none of its jobs run there: {found['missing']}"
        )


def _show(session: Session, found: Json) -> None:
    session.out.fields(
        (
            ("name", found["name"]),
            ("kind", found["kind"]),
            ("on", found["on"] or "here"),
            *((key, value) for key, value in found["env"].items()),
            *((ours, f"is {theirs}") for ours, theirs in found["names"].items()),
            (
                "containers",
                f"{found['runner']}, {found['images']}" if found["images"] else f"by {found['strata'] or 'strata'}",
            ),
            ("answers", "yes" if found["answers"] else f"no: {found['trouble'] or 'not asked yet'}"),
            ("seen", when(found["seen"]) if found["seen"] is not None else "not yet"),
            ("nodes", f"{found['nodes']}; {found['drained']} drained, {found['busy']} with jobs"),
            ("not ours", found["strangers"] or "-"),
            ("not its", found["missing"] or "-"),
            ("connected", f"{when(found['connected'])} by {found['author']}"),
        )
    )


_NAMED = Named(workload, "workload manager", "/v1/workloads", FIELDS, report=_show)
_NAMED.list("List the connected workload managers, and whether they answer.", "strata workload list")
_NAMED.show("Show one of them.", "strata workload show slurm")


@workload.command()
@click.argument("name")
@click.argument("select", nargs=-1, shell_complete=complete_select)
@ls.listing(NODE_FIELDS, sort="node")
def nodes(session: Session, name: str, select: tuple[str, ...], view: ls.Listing) -> None:
    """List nodes as a workload manager sees them: state, jobs, who drained them and why.

    \b
    Example: strata workload nodes slurm @rack12 --match workload=out
    """
    found = session.client.get(f"/v1/workloads/{segment(name)}/nodes", params={"select": " ".join(select)})
    ls.show(session, NODE_FIELDS, found["items"], view)


@workload.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Even if nodes that Strata drained there stay drained.")
@ls.json_option
def disconnect(session: Session, name: str, force: bool, as_json: bool) -> None:
    """Disconnect a workload manager. With none connected, Strata powers off no node, because a job may be running.

    \b
    Example: strata workload disconnect old
    """
    params = {"force": "true"} if force else {}
    session.client.delete(f"/v1/workloads/{segment(name)}", params=params)
    session.out.answer(as_json, {"disconnected": name}, f"disconnected {name}")
