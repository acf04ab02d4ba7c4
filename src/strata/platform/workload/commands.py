"""``strata workload``: the site's workload managers, and what they say of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session, pass_session
from strata.cli.times import when
from strata.cli.words import complete_select, items, pairs, segment

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
    """Connect the site's workload managers, so that no job loses its node."""


@workload.command()
@click.argument("kind", type=click.Choice(("slurm", "gridengine")))
@click.option("--name", default="", help="What to call it. Default: its kind.")
@click.option("--on", metavar="[USER@]HOST", help="Run its commands there, by ssh. Default: where the controller runs.")
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="What its commands find the cluster by: SLURM_CONF, SGE_ROOT..."
)
@click.option(
    "--map", "maps", multiple=True, metavar="OURS=ITS", help="Nodes that it calls otherwise: nodesets of the same size."
)
@ls.json_option
@pass_session
def connect(
    session: Session,
    kind: str,
    name: str,
    on: str | None,
    env: tuple[str, ...],
    maps: tuple[str, ...],
    as_json: bool,
) -> None:
    """Connect a workload manager that runs already, or change how it is reached.

    From then on nothing that could hurt a job is done to a node before the workload manager has let go of it.

    \b
    Example: strata workload connect slurm
             strata workload connect slurm --name old --on strata@login1 --env SLURM_CONF=/etc/slurm-old/slurm.conf
             strata workload connect slurm --map 'n[1-8]=nid[00001-00008]'
    """
    body = {"kind": kind, "on": on, "env": pairs(env, option="--env"), "names": pairs(maps, option="--map")}
    found: Json = session.client.request("PUT", f"/v1/workloads/{segment(name or kind)}", body=body).body
    if as_json:
        session.out.json(found)
        return
    session.out.line(f"connected {found['kind']} {found['name']}: it knows {many(found['nodes'], 'node')} of ours")
    if found["strangers"]:
        session.out.note(f"It has nodes that Strata does not know: {found['strangers']}")
    if found["missing"]:
        session.out.note(f"It does not know these, so that no job of its can be there: {found['missing']}")


@workload.command("list")
@ls.listing(FIELDS, sort="name")
@pass_session
def list_(session: Session, view: ls.Listing) -> None:
    """List the connected workload managers, and whether they answer.

    \b
    Example: strata workload list
    """
    ls.show(session, FIELDS, items(session.client.get("/v1/workloads")), view)


@workload.command()
@click.argument("name")
@ls.json_option
@pass_session
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one of them.

    \b
    Example: strata workload show slurm
    """
    found: Json = session.client.get(f"/v1/workloads/{segment(name)}")
    if as_json:
        session.out.json(found)
        return
    session.out.fields(
        (
            ("name", found["name"]),
            ("kind", found["kind"]),
            ("on", found["on"] or "here"),
            *((key, value) for key, value in found["env"].items()),
            *((ours, f"is {theirs}") for ours, theirs in found["names"].items()),
            ("answers", "yes" if found["answers"] else f"no: {found['trouble'] or 'not asked yet'}"),
            ("seen", when(found["seen"]) if found["seen"] is not None else "not yet"),
            ("nodes", f"{found['nodes']}; {found['drained']} drained, {found['busy']} with jobs"),
            ("not ours", found["strangers"] or "-"),
            ("not its", found["missing"] or "-"),
            ("connected", f"{when(found['connected'])} by {found['author']}"),
        )
    )


@workload.command()
@click.argument("name")
@click.argument("select", nargs=-1, shell_complete=complete_select)
@ls.listing(NODE_FIELDS, sort="node")
@pass_session
def nodes(session: Session, name: str, select: tuple[str, ...], view: ls.Listing) -> None:
    """List nodes as a workload manager sees them: state, jobs, who drained them and why.

    \b
    Example: strata workload nodes slurm @rack12 --match workload=out
    """
    found = session.client.get(f"/v1/workloads/{segment(name)}/nodes", params={"select": " ".join(select)})
    ls.show(session, NODE_FIELDS, items(found), view)


@workload.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Although nodes are drained that nobody would resume then.")
@ls.json_option
@pass_session
def disconnect(session: Session, name: str, force: bool, as_json: bool) -> None:
    """Ask a workload manager no more. Where none is left, no node is switched off, as a job may run.

    \b
    Example: strata workload disconnect old
    """
    params = {"force": "true"} if force else {}
    session.client.request("DELETE", f"/v1/workloads/{segment(name)}", params=params)
    session.out.answer(as_json, {"disconnected": name}, f"disconnected {name}")
