"""``strata node edit``: what the owners say a node is: its place, its BMC, its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli.listing import json_option
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.words import complete_select, interfaces, no_blank, pairs, segment, select_help

if TYPE_CHECKING:
    from strata.cli.client import Json


@select_help
@click.command()
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@click.option("--bmc", metavar="URL", help="Where its BMC answers (https://… or ipmi://…).")
@click.option("--location", metavar="XNAME", help="Its location, an xname.")
@click.option("--nid", type=int, help="Its NID.")
@click.option("--role", help="What it is for.")
@click.option("--architecture", help="x86_64, aarch64, ...")
@click.option("--label", multiple=True, metavar="KEY=VALUE", help="Add or change a label.")
@click.option("--unlabel", multiple=True, metavar="KEY", help="Remove a label.")
@click.option(
    "--interface",
    multiple=True,
    metavar="mac=MAC,...",
    help="Replaces all its network ports: mac=, address=, name=, port=. May be repeated; the first one boots.",
)
@json_option
def edit(
    session: Session,
    /,
    select: tuple[str, ...],
    label: tuple[str, ...],
    unlabel: tuple[str, ...],
    interface: tuple[str, ...],
    as_json: bool,
    **fields: str | int | None,
) -> None:
    """Change the description of nodes. What is not named stays.

    \b
    Example: strata node edit n0001 --bmc https://10.1.0.1 --location x1000c0s0b0n0
             strata node edit @compute --label rack=7 --unlabel trial
             strata node edit n0001 --interface mac=52:54:00:12:34:56,address=10.77.0.11
    """
    from strata.core.errors import StrataError

    change: Json = {name: value for name, value in fields.items() if value is not None}
    labels: Json = {**pairs(label, option="--label"), **dict.fromkeys(unlabel)}
    if labels:
        change["labels"] = labels
    if interface:
        change["interfaces"] = interfaces(interface)
    if not change:
        raise click.UsageError("say what to change (--bmc, --location, --label, ...)")
    client = session.client
    names = [str(item["name"]) for item in client.pages("/v1/nodes", {"select": " ".join(select), "fields": "name"})]
    if len(names) > 1 and {"location", "nid", "bmc", "interfaces"} & set(change):
        raise click.UsageError("--location, --nid, --bmc and --interface belong to one node")
    wrong: list[Json] = []
    for name in names:
        try:
            client.patch(f"/v1/nodes/{segment(name)}", change)
        except StrataError as error:
            if len(names) == 1:
                raise
            wrong.append({"node": name, "error": error.detail})
    done = len(names) - len(wrong)
    session.out.answer(as_json, {"changed": done, "errors": wrong}, f"changed {done} of {many(len(names), 'node')}")
    for one in wrong if not as_json else ():
        session.out.note(f"{one['node']}: {one['error']}")
    if wrong:
        exits.leave(exits.ERROR)
