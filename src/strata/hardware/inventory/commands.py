"""``strata hardware``: find BMCs, and look at what they are made of. (To work them: ``bmc.commands``.)"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import Output, many
from strata.cli.reading import read_text
from strata.cli.session import Session
from strata.cli.times import WHEN, when
from strata.cli.words import complete_node, complete_select, segment, select_help
from strata.hardware.alerts.commands import severity_colour

if TYPE_CHECKING:
    from strata.cli.client import Json

KINDS = (
    "system", "chassis", "manager", "processor", "memory", "drive", "storage", "nic", "port", "accelerator",
    "power-supply", "fan", "pcie-device", "switch", "pdu", "outlet", "battery", "other",
)  # fmt: skip

BMCS = (
    ls.plain("address"),
    ls.Field("nodes", lambda item: ",".join(item["nodes"]) or "-"),
    ls.Field("vendor", lambda item: item["identity"]["vendor"] or "-"),
    ls.Field("model", lambda item: item["identity"]["model"] or "-"),
    ls.Field("serial", lambda item: item["identity"]["serial"] or "-"),
    ls.Field("firmware", lambda item: item["identity"]["firmware"] or "-", shown=False),
    ls.Field("uuid", lambda item: item["identity"]["uuid"] or "-", shown=False),
    ls.number("machines", shown=False),
    ls.Field("parts", lambda item: sum(item["components"].values()), key=lambda i: sum(i["components"].values())),
    ls.moment("seen"),
    ls.Field("trouble", lambda item: len(item["trouble"]) or "-", key=lambda item: len(item["trouble"])),
)
COMPONENTS = (
    ls.plain("node"),
    ls.plain("kind"),
    ls.plain("slot"),
    ls.plain("name"),
    ls.plain("vendor", shown=False),
    ls.plain("model"),
    ls.plain("part", shown=False),
    ls.plain("serial"),
    ls.plain("firmware"),
    ls.Field("health", lambda item: item["health"] or "-", colour=severity_colour),
    ls.plain("macs", shown=False),
    ls.plain("facts", shown=False),
    ls.plain("shape", shown=False),
    ls.plain("bmc", shown=False),
    ls.plain("id", shown=False),
)
CHANGES = (
    ls.moment("time"),
    ls.plain("what"),
    ls.plain("node"),
    ls.Field("kind", lambda item: item["kind"] or "bmc"),
    ls.plain("detail"),
    ls.plain("old"),
    ls.plain("new"),
    ls.plain("bmc", shown=False),
    ls.plain("component", shown=False),
)
CONFLICTS = (
    ls.plain("what"),
    ls.plain("value"),
    ls.Field("where", lambda item: " ".join(item["where"])),
    ls.moment("since"),
    ls.plain("hint"),
)


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option("--csv", type=click.Path(allow_dash=True), help="Addresses in a CSV file, with what is known of each.")
@click.option("--range", "ranges", multiple=True, metavar="RANGE", help="10.1.0.0/20 or 10.1.0.1-10.1.3.254.")
@click.option("--ssdp", is_flag=True, help="Ask the local networks for Redfish services.")
@click.option("--leases", type=click.Path(allow_dash=True), help="A lease file of ISC dhcpd, dnsmasq or Kea.")
@click.option("--dhcp", is_flag=True, help="The BMCs that appeared in DHCP.")
@click.option("--known", is_flag=True, help="Look again at every BMC that is known.")
@click.option("--mapping", type=click.Path(allow_dash=True), help="A CSV file that says where machines are.")
@click.option(
    "--accept",
    multiple=True,
    metavar="ADDRESS",
    help="Look at this address, and accept that another BMC answers there now.",
)
@click.option("--adopt", is_flag=True, help="Make nodes of the machines that are found.")
@click.option("--name", default="n{number:05}", show_default=True, help="Name for nodes that no file names.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is done, and show the result.")
@ls.json_option
def discover(
    session: Session,
    addresses: tuple[str, ...],
    csv: str | None,
    ranges: tuple[str, ...],
    ssdp: bool,
    leases: str | None,
    dhcp: bool,
    known: bool,
    mapping: str | None,
    accept: tuple[str, ...],
    adopt: bool,
    name: str,
    wait: bool,
    as_json: bool,
) -> None:
    """Find BMCs, and record the hardware that each tells of.

    Credentials are set beforehand: strata hardware credentials. Exit code 1 if something could not be read or was
    refused.

    \b
    Example: strata hardware discover --range 10.1.0.0/22 --mapping racks.csv --adopt
    """
    if not (addresses or csv or ranges or ssdp or leases or dhcp or known or accept):
        raise click.UsageError("say where to look: ADDRESS, --csv, --range, --ssdp, --leases, --dhcp or --known")
    body: Json = {
        "addresses": list(addresses),
        "csv": _text(csv),
        "ranges": list(ranges),
        "ssdp": ssdp,
        "leases": _text(leases, lenient=True),
        "dhcp": dhcp,
        "known": known,
        "mapping": _text(mapping),
        "accept": list(accept),
        "adopt": adopt,
        "name": name,
    }
    job = session.client.post("/v1/hardware/discover", body)
    if not wait:
        session.out.answer(as_json, job, f"accepted as operation {job['id']}: {job['total']} addresses")
        return
    _follow(session, job, as_json=as_json)


def _follow(session: Session, job: Json, *, as_json: bool) -> None:
    from strata.cli.progress import wait_operation

    job = wait_operation(session.client, job, session.out)
    report = session.client.get(f"/v1/hardware/discover/{segment(str(job['id']))}")
    if as_json:
        session.out.json({"job": job, "report": report})
    else:
        _tell(session.out, job, report)
    bad = job["state"] != "done" or job["failed"] or report["refused_count"]
    exits.leave(exits.ERROR if bad else 0)


def _tell(out: Output, job: Json, report: Json) -> None:
    """What it came to, in few lines; then what went wrong."""
    out.line(
        f"{report['found']} found: {report['new']} new, {report['changed']} changed, {report['swapped']} swapped; "
        f"{report['silent']} silent, {report['failed']} not readable"
    )
    if report["adopted"] or report["updated"] or report["refused_count"] or report["located"]:
        out.line(
            f"{many(report['adopted'], 'node')} adopted, {report['updated']} updated, "
            f"{report['refused_count']} refused; {report['located']} located"
        )
    if report["conflicts"]:
        out.note(f"{many(report['conflicts'], 'conflict')}: strata hardware conflicts")
    if report["troubled"]:
        out.note(f"{report['troubled']} not read whole: strata hardware list --match 'trouble=[0-9]*'")
    if unknown := report["not_understood"]:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(unknown.items(), key=lambda one: -one[1]))
        out.line(f"kept by the BMCs' own names: {listed} (strata hardware components --kind other)")
    for error in job.get("errors", ()):
        named = not error["node"] or error["detail"].startswith(f"{error['node']}: ")
        out.note(error["detail"] if named else f"{error['node']}: {error['detail']}")
    more = int(job["failed"]) - len(job.get("errors", ()))
    if more > 0:
        out.note(f"and {more} more")
    for refused in report["refused"]:
        out.note(f"{refused['machine']}: no node was made of it: {refused['why']}")
    if report["refused_count"] > len(report["refused"]):
        out.note(f"and {report['refused_count'] - len(report['refused'])} more")


@click.command("list")
@click.option("--limit", type=click.IntRange(min=1), help="Show at most this many BMCs.")
@ls.listing(BMCS)
def list_(session: Session, limit: int | None, view: ls.Listing) -> None:
    """List the discovered BMCs.

    \b
    Example: strata hardware list --match 'vendor=Contoso*' --columns address,model,firmware
    """
    ls.show(session, BMCS, session.client.pages("/v1/hardware/bmcs", limit=limit), view)


@click.command()
@click.argument("what", metavar="NODE|ADDRESS", shell_complete=complete_node)
@ls.json_option
def show(session: Session, what: str, as_json: bool) -> None:
    """Show what a node, or everything behind a BMC, is made of.

    \b
    Example: strata hardware show n00042
    """
    if "://" in what:
        found = session.client.get("/v1/hardware/bmc", {"address": what})
        summary = found["summary"]
        about = [("nodes", " ".join(summary["nodes"])), ("trouble", "; ".join(summary["trouble"]))]
    else:
        found = summary = session.client.get(f"/v1/nodes/{segment(what)}/hardware")
        about = [("node", found["node"]), ("serial", found["serial"]), ("uuid", found["uuid"])]
    if as_json:
        session.out.json(found)
        return
    identity = summary["identity"]
    session.out.fields(
        (
            ("BMC", summary.get("bmc") or summary.get("address")),
            *about,
            ("vendor", identity["vendor"]),
            ("model", identity["model"]),
            ("firmware", identity["firmware"]),
            ("seen", when(summary["seen"])),
        )
    )
    session.out.line()
    for depth, part in _tree(found["components"]):
        session.out.line("  " * depth + _described(part), colour=severity_colour(part["health"] or "ok"))


def _tree(parts: list[Json]) -> Iterable[tuple[int, Json]]:
    """Parts with how deep they are, each below what it is in. One that is in itself is at the top."""
    ids = {part["id"] for part in parts}
    below: dict[str, list[Json]] = {}
    for part in parts:
        below.setdefault(part["parent"] if part["parent"] in ids else "", []).append(part)
    seen: set[str] = set()
    for root in (*below.get("", []), *parts):
        stack = [(0, root)]
        while stack:
            depth, part = stack.pop()
            if part["id"] not in seen:
                seen.add(part["id"])
                yield depth, part
                order = sorted(below.get(part["id"], []), key=lambda p: (p["kind"], p["id"]), reverse=True)
                stack += [(depth + 1, child) for child in order]


def _described(part: Json) -> str:
    kind = part["kind"] if part["kind"] != "other" else part["shape"].partition(".")[0] or "other"
    label = ":".join(dict.fromkeys(filter(None, (part["slot"], part["name"]))))
    words = [kind, label, part["vendor"], part["model"]]
    words += [f"serial {part['serial']}"] if part["serial"] else []
    words += [f"firmware {part['firmware']}"] if part["firmware"] else []
    words += [" ".join(part["macs"])]
    words += [f"{name}={value}" for name, value in part["facts"].items() if name != "type"]
    words += [part["health"].upper()] if part["health"] not in (None, "ok") else []
    return "  ".join(filter(None, words))


@select_help
@click.command()
@click.argument("select", nargs=-1, metavar="[SELECT]...", shell_complete=complete_select)
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@click.option("--text", default="", help="Part of a name, model, part number or serial.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Show at most this many components."
)
@ls.listing(COMPONENTS)
def components(
    session: Session, select: tuple[str, ...], kind: str | None, text: str, limit: int, view: ls.Listing
) -> None:
    """List components of nodes; without SELECT, of everything that was discovered.

    \b
    Example: strata hardware components @gpu --kind accelerator
    """
    params = {"select": " ".join(select) or "*", "kind": kind, "text": text}
    ls.show(session, COMPONENTS, session.client.pages("/v1/hardware/components", params, limit=limit), view)


@select_help
@click.command()
@click.argument("select", nargs=-1, metavar="[SELECT]...", shell_complete=complete_select)
@click.option("--since", type=WHEN, help="From then on: 2h, 3d, 2026-01-31.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=10_000),
    default=100,
    show_default=True,
    help="Show at most this many changes.",
)
@ls.listing(CHANGES)
def history(session: Session, select: tuple[str, ...], since: float | None, limit: int, view: ls.Listing) -> None:
    """Show what was added, removed, swapped or moved; the newest first.

    \b
    Example: strata hardware history n00042 --since 30d
    """
    params = {"select": " ".join(select) or "*", "since": None if since is None else str(since), "limit": limit}
    ls.show(session, CHANGES, session.client.get("/v1/hardware/history", params)["items"], view)


@click.command()
@ls.listing(CONFLICTS)
def conflicts(session: Session, view: ls.Listing) -> None:
    """List what does not fit together: duplicates, swapped BMCs. Exit code 1 if there is something.

    \b
    Example: strata hardware conflicts
    """
    found = session.client.get("/v1/hardware/conflicts")["items"]
    ls.show(session, CONFLICTS, found, view)
    exits.leave(exits.ERROR if found else 0)


@click.command()
@click.argument("address")
@ls.json_option
def forget(session: Session, address: str, as_json: bool) -> None:
    """Remove a BMC from the inventory; its history and its nodes stay.

    \b
    Example: strata hardware forget https://10.1.0.7
    """
    from strata.cli.client import query

    session.client.delete(f"/v1/hardware/bmc{query({'address': address})}")
    session.out.answer(as_json, {"forgotten": address}, f"forgot {address}")


def _text(path: str | None, *, lenient: bool = False) -> str:
    """The contents of a file, or of standard input."""
    if not path:
        return ""
    return read_text(Path(path), lenient=lenient)
