"""``strata boot unknown``: machines that booted and are no nodes yet."""

from __future__ import annotations

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session

FIELDS = (
    ls.plain("mac"),
    ls.plain("serial"),
    ls.plain("uuid", shown=False),
    ls.plain("peer"),
    ls.plain("macs", shown=False),
    ls.moment("first"),
    ls.moment("last"),
)


@click.group()
def unknown() -> None:
    """Adopt machines that booted and are not nodes yet."""


_UNKNOWN = Named(unknown, "machine", "/v1/boot/unknown", FIELDS)
_UNKNOWN.list(
    "List the machines that wait to be adopted, the newest first.",
    "strata boot unknown list --columns mac,serial,peer",
    sort="",
)


@unknown.command()
@click.argument("mac")
@click.argument("name")
@click.option("--address", default="", help="Its address on the boot network [default: one that is free].")
@click.option("--location", default="", help="Where it is (an xname).")
@click.option("--role", default="compute", show_default=True, help="What it is for.")
@click.option("--bmc", default="", help="Where its BMC answers.")
@ls.json_option
def adopt(
    session: Session, mac: str, name: str, address: str, location: str, role: str, bmc: str, as_json: bool
) -> None:
    """Make a node of the machine with this MAC address. It boots as that node within half a minute.

    \b
    Example: strata boot unknown adopt 52:54:00:12:34:56 n0005 --address 10.77.0.15
    """
    body = {"name": name, "address": address, "location": location, "role": role, "bmc": bmc}
    node = session.client.post(f"/v1/boot/unknown/{mac.lower()}", body)
    session.out.answer(as_json, node, f"{node['name']} is a node now; it boots as that when it next says hello")


@unknown.command()
@click.argument("mac")
@ls.json_option
def forget(session: Session, mac: str, as_json: bool) -> None:
    """Forget a machine; if it says hello again, it is listed again.

    \b
    Example: strata boot unknown forget 52:54:00:12:34:56
    """
    session.client.delete(f"/v1/boot/unknown/{mac.lower()}")
    session.out.answer(as_json, {"forgotten": mac.lower()}, f"forgot {mac.lower()}")
