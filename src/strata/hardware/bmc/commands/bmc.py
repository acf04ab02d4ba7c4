"""``strata hardware``: what is asked of nodes' BMCs. (What hardware there is: ``hardware_inventory``.)"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.options import Watts
from strata.cli.output import Column, many
from strata.cli.session import Session
from strata.cli.waiting import arrival
from strata.cli.words import complete_node, complete_select, no_blank, segment, select_help
from strata.core.texts import NODE_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strata.cli.client import Json

SELECT = click.argument(
    "select", nargs=-1, required=True, metavar="SELECT", callback=no_blank, shell_complete=complete_select
)
NODE = click.argument("node", metavar="NODE", shell_complete=complete_node)

TARGETS = ("none", "pxe", "http", "media", "disk", "setup")


def number(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def send(
    session: Session,
    path: str,
    body: Json,
    done: str,
    *,
    as_json: bool,
    hint: str = "",
    wait: float | None = None,
) -> None:
    """Ask for something on many nodes and tell what became of it, and then ``hint``; exit code 1 where some failed.

    ``wait``: seconds to follow it, and then the nodes until none moves; None: not at all."""
    reply = session.client.request("POST", path, body=body)
    answer, tracked = reply.body, reply.status == 202
    if tracked and wait is not None:
        from strata.cli.progress import wait_operation

        answer = wait_operation(session.client, answer, session.out)
    if as_json:
        session.out.json(answer)
    elif tracked and wait is None:
        session.out.line(f"accepted as operation {answer['id']}: {many(answer['total'], 'node')}")
        session.out.note(f"strata operation wait {answer['id']} shows how far it is")
    elif not tracked:
        if answer["done_count"]:
            session.out.line(f"{done}: {answer['done']} ({many(answer['done_count'], 'node')})")
            if hint:
                session.out.note(hint)
        for failed in answer["failed"]:
            session.out.note(f"{failed['nodes']}: {failed['reason']}")
    failures = (answer["failed"] if wait is not None else 0) if tracked else answer["failed_count"]
    reached = 0
    if wait is not None and (tracked or answer["done_count"]):
        select = body["select"] if tracked else answer["done"]
        reached = arrival(session, select, wait, revision=answer.get("revision", 0))
    exits.leave(reached or (exits.ERROR if failures else 0))


def one(select: tuple[str, ...], to_see: str) -> str:
    """The part of the API about the one node that was selected."""
    if len(select) != 1 or not re.fullmatch(NODE_NAME, select[0]):
        raise click.UsageError(f"name one node to see {to_see}, not {' '.join(select)}")
    return f"/v1/nodes/{segment(select[0])}/bmc"


def show_of_each(
    session: Session,
    path: str,
    select: tuple[str, ...],
    part: str,
    fields: Sequence[ls.Field],
    view: ls.Listing,
    *,
    kind: str = "",
) -> None:
    """List the ``part`` of every selected node, or what of it is of a ``kind``; exit code 1 if none could be read."""
    found = session.client.get(path, {"select": " ".join(select)})["items"]
    rows: list[Json] = []
    for node in found:
        if node["trouble"]:
            session.out.note(f"{node['node']}: {node['trouble']}")
        rows += [{"node": node["node"], **item} for item in node[part] if not kind or item["kind"] == kind]
    ls.show(session, fields, rows, view)
    exits.leave(exits.ERROR if found and all(node["trouble"] for node in found) else 0)


@click.command()
@NODE
@ls.json_option
def bmc(session: Session, node: str, as_json: bool) -> None:
    """Show a node's BMC: who it is, whether it answers, what it would boot.

    \b
    Example: strata hardware bmc n00042
    """
    found = session.client.get(f"/v1/nodes/{segment(node)}/bmc")
    if as_json:
        session.out.json(found)
        return
    identity = found["identity"] or {}
    rows = [
        ("address", found["address"] or "-"),
        ("answers", "yes" if found["reachable"] else f"no: {found['trouble']}"),
        ("protocol", identity.get("protocol", "-")),
        ("machine", " ".join(filter(None, (identity.get("vendor"), identity.get("model")))) or "-"),
        ("serial", identity.get("serial") or "-"),
        ("uuid", identity.get("uuid") or "-"),
        ("firmware", identity.get("firmware") or "-"),
        ("quirks", ", ".join(identity.get("quirks", ())) or "-"),
        ("power", found["power"]),
        ("boot", _boot_text(found["boot"])),
        *((f"media {one['id']}", one["image"] or "empty") for one in found["media"]),
    ]
    session.out.table([Column("what"), Column("value")], [list(row) for row in rows])


def _boot_text(boot: Json | None) -> str:
    if boot is None:
        return "-"
    if boot.get("target") in (None, "none"):
        return "as the firmware says"
    return f"{boot['target']} {'once' if boot['once'] else 'from now on'} {boot.get('uri', '')}".strip()


@select_help
@click.command()
@SELECT
@click.argument("target", type=click.Choice(TARGETS))
@click.option("--always", is_flag=True, help="From now on, not only once.")
@click.option("--uri", default="", help="For http: what to boot.")
@click.option("--uefi/--bios", "uefi", default=None, help="Also set the boot mode to UEFI or BIOS.")
@ls.json_option
def boot(
    session: Session, select: tuple[str, ...], target: str, always: bool, uri: str, uefi: bool | None, as_json: bool
) -> None:
    """Say where nodes boot from next.

    \b
    Example: strata hardware boot n7 pxe
             strata hardware boot n7 http --uri https://10.0.0.1/boot.efi --always
    """
    body = {"select": " ".join(select), "target": target, "once": not always, "uri": uri, "uefi": uefi}
    done = "boots as the firmware says" if target == "none" else f"boots from {target}"
    send(session, "/v1/bmc/boot", body, done, as_json=as_json)


@select_help
@click.command()
@SELECT
@click.option("--insert", "image", default="", metavar="URI", help="The image to insert.")
@click.option("--eject", is_flag=True, help="Take out what is in the drive.")
@ls.json_option
def media(session: Session, select: tuple[str, ...], image: str, eject: bool, as_json: bool) -> None:
    """Insert an image into nodes' virtual drives, or eject it.

    \b
    Example: strata hardware media n7 --insert https://10.0.0.1/rescue.iso
    """
    if bool(image) == eject:
        raise click.UsageError("give --insert URI or --eject")
    body = {"select": " ".join(select), "image": image}
    send(session, "/v1/bmc/media", body, "ejected" if eject else "inserted", as_json=as_json)


@select_help
@click.command()
@SELECT
@click.option("--off", is_flag=True, help="Switch the light off.")
@ls.json_option
def identify(session: Session, select: tuple[str, ...], off: bool, as_json: bool) -> None:
    """Switch the identify light of nodes, so that somebody finds them in the room.

    \b
    Example: strata hardware identify n7
    """
    body = {"select": " ".join(select), "on": not off}
    send(session, "/v1/bmc/identify", body, "light off" if off else "light on", as_json=as_json)


LIMITS = (
    ls.plain("id"),
    ls.plain("name"),
    ls.Field("watts", lambda item: number(item["watts"]), key=lambda item: item["watts"] or 0, right=True),
    ls.Field("least", lambda item: number(item["least"]), right=True),
    ls.Field("most", lambda item: number(item["most"]), right=True),
    ls.plain("via"),
)


@select_help
@click.command()
@SELECT
@click.option("--set", "watts", type=Watts(1, 1e6, max_open=True), metavar="WATTS", help="Cap to this: 350W, 1.5kW.")
@click.option("--clear", is_flag=True, help="Take the cap off.")
@click.option("--limit", default="", metavar="ID", help="What to cap [default: the node].")
@ls.listing(LIMITS)
def limits(
    session: Session, select: tuple[str, ...], watts: float | None, clear: bool, limit: str, view: ls.Listing
) -> None:
    """Show which power caps a node takes, or cap nodes.

    \b
    Example: strata hardware limits n7
             strata hardware limits @compute --set 350W
             strata hardware limits n7 --clear
    """
    if clear and watts is not None:
        raise click.UsageError("give --set or --clear, not both")
    if clear or watts is not None:
        body = {"select": " ".join(select), "watts": watts, "limit": limit}
        send(session, "/v1/bmc/limits", body, "uncapped" if clear else f"capped to {watts:g} W", as_json=view.json)
        return
    ls.show(session, LIMITS, session.client.get(f"{one(select, 'what can be capped')}/limits")["items"], view)


@select_help
@click.command()
@SELECT
@click.option("--ntp", multiple=True, metavar="SERVER", help="Set the time servers (repeat for several).")
@click.option("--syslog", multiple=True, metavar="SERVER", help="Set the log servers.")
@ls.json_option
def settings(
    session: Session, select: tuple[str, ...], ntp: tuple[str, ...], syslog: tuple[str, ...], as_json: bool
) -> None:
    """Show or set the time and log servers of BMCs.

    \b
    Example: strata hardware settings n7
             strata hardware settings '*' --ntp 10.0.0.1 --ntp 10.0.0.2
    """
    if ntp or syslog:
        change = {name: list(value) for name, value in (("ntp", ntp), ("syslog", syslog)) if value}
        body = {"select": " ".join(select), "change": change}
        send(session, "/v1/bmc/settings", body, "set", as_json=as_json)
        return
    found = session.client.get(f"{one(select, 'its settings')}/settings")
    if as_json:
        session.out.json(found)
        return
    rows = [[name, "-" if found[name] is None else ", ".join(found[name]) or "none"] for name in ("ntp", "syslog")]
    session.out.table([Column("what"), Column("servers")], rows)
