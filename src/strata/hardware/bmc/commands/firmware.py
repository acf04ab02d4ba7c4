"""``strata hardware bios`` and ``firmware``: settings and versions below the operating system."""

from __future__ import annotations

from typing import Any

import click

from strata.cli import listing as ls
from strata.cli.session import Session
from strata.cli.words import pairs, select_help
from strata.hardware.bmc.commands.bmc import SELECT, one, send, show_of_each

ATTRIBUTES = (ls.plain("name"), ls.plain("current"), ls.plain("staged"))


@select_help
@click.command()
@SELECT
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Stage a setting for the next restart.")
@ls.listing(ATTRIBUTES, sort="name")
def bios(session: Session, select: tuple[str, ...], changes: tuple[str, ...], view: ls.Listing) -> None:
    """Show the firmware settings of a node, or stage some for the next restart.

    \b
    Example: strata hardware bios n7 --match name=Boot*
             strata hardware bios @compute --set ProcHyperthreading=Disabled
    """
    if changes:
        attributes = {name: _value(text) for name, text in pairs(changes, option="--set").items()}
        body = {"select": " ".join(select), "attributes": attributes}
        send(session, "/v1/bmc/bios", body, "staged for the next restart", as_json=view.json)
        return
    found = session.client.get(f"{one(select, 'its settings')}/bios")
    names = {*found["current"], *found["staged"]}
    rows = [{"name": n, "current": found["current"].get(n), "staged": found["staged"].get(n)} for n in names]
    ls.show(session, ATTRIBUTES, rows, view)


def _value(text: str) -> Any:
    """A number or a truth value where it reads like one."""
    import json

    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool) else text


FIRMWARE = (
    ls.plain("node"),
    ls.plain("id"),
    ls.plain("name"),
    ls.plain("version"),
    ls.Field("updateable", lambda item: "yes" if item["updateable"] else "no"),
    ls.plain("component", shown=False),
)


@select_help
@click.command()
@SELECT
@click.option("--update", "uri", default="", metavar="URI", help="Have the BMCs fetch and install this.")
@click.option("--target", "targets", multiple=True, metavar="ID", help="Only this firmware (as listed).")
@click.option("--at-once", type=click.IntRange(1, 1000), default=10, show_default=True, help="Nodes at a time.")
@click.option(
    "--apply",
    "apply_time",
    type=click.Choice(("Immediate", "OnReset", "AtMaintenanceWindowStart", "InMaintenanceWindowOnReset")),
    help="When to apply it [default: the BMC decides].",
)
@ls.listing(FIRMWARE)
def firmware(
    session: Session,
    select: tuple[str, ...],
    uri: str,
    targets: tuple[str, ...],
    at_once: int,
    apply_time: str | None,
    view: ls.Listing,
) -> None:
    """List the firmware of nodes, or update it. Nodes are updated a few at a time; it stops when they fail.

    \b
    Example: strata hardware firmware @compute --match name=BIOS* --columns node,version
             strata hardware firmware @compute --update https://10.0.0.1/bios-2.1.bin
    """
    if uri:
        body = {
            "select": " ".join(select),
            "uri": uri,
            "targets": list(targets),
            "at_once": at_once,
            "apply_time": apply_time or "",
        }
        send(session, "/v1/bmc/firmware", body, "", as_json=view.json)
        return
    show_of_each(session, "/v1/bmc/firmware", select, "firmware", FIRMWARE, view)
