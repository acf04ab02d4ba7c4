"""``strata power policy``: the documents that say what the site may draw, and which of them runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session
from strata.core.units import many
from strata.power.telemetry.commands import watts

if TYPE_CHECKING:
    from strata.cli.client import Json

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


def _simulated(item: Json) -> str:
    found = item["simulated"]
    if found:
        return f"{many(found['nodes'], 'node')}, peak {watts(found['peak'])}"
    return f"no: {item['unsimulated']}"


FIELDS = (
    ls.plain("name"),
    ls.Field("enabled", lambda i: "yes" if i["enabled"] else "no", lambda i: i["enabled"]),
    ls.Field("limit", lambda i: watts(i["limit"]), lambda i: i["limit"] or 0, right=True),
    ls.Field("simulated", _simulated),
    ls.plain("author"),
    ls.moment("changed", of="time"),
    ls.plain("doc", shown=False),
    ls.plain("digest", shown=False),
)


@click.group()
def policy() -> None:
    """Say how much power the site may draw, and how caps and idle nodes are managed."""


@policy.command("list")
@ls.listing(FIELDS, sort="name")
def list_(session: Session, view: ls.Listing) -> None:
    """List the policies, and say where the site stands.

    \b
    Example: strata power policy list
    """
    found = session.client.get("/v1/power/policies")
    ls.show(session, FIELDS, found["items"], view)
    if not view.json:
        session.out.note(_standing(found["site"]))


def _with_text(session: Session, found: Json) -> None:
    session.out.fields((field.name, field.text(found)) for field in FIELDS)
    session.out.line()
    session.out.text(found["text"])


POLICIES = Named(policy, "power policy", "/v1/power/policies", FIELDS, report=_with_text)
POLICIES.show("Show one policy, with what it says.", "strata power policy show over-provisioned")
POLICIES.step("enable", "Run a policy. The one that ran before stops.", "strata power policy enable over-provisioned")
POLICIES.step("disable", "Stop a policy. Caps stay as they are.", "strata power policy disable over-provisioned")
POLICIES.delete("Delete a policy that does not run.", "strata power policy delete over-provisioned")


@policy.command()
@click.argument("file", type=_FILE)
@click.option("--name", default="", help="Name of the policy [default: the name in the file, or else the file's name]")
@click.option("--without-simulation", "reason", default="", metavar="REASON", help="Accept it without a simulation.")
@ls.json_option
def put(session: Session, file: Path, name: str, reason: str, as_json: bool) -> None:
    """Create or replace a policy. A running policy goes on with the new content.

    Exactly this content must have been simulated: strata power simulate --policy FILE.

    \b
    Example: strata power policy put over-provisioned.yaml
    """
    from strata.cli.reading import read_text
    from strata.power.policies.policy import parse

    text = read_text(file)
    called = name or parse(text, source=str(file)).name or ("" if str(file) == "-" else file.stem)
    if not called:
        raise click.UsageError("it has no name: give --name")
    body = {"text": text, "without_simulation": reason}
    POLICIES.report(session, session.client.put(POLICIES.path(called), body), as_json)


def _standing(site: Json) -> str:
    """Where the site stands, in words."""
    if site["limit"] is None and not site["policy"]:
        return "The site has no limit, and no policy runs."
    words = [f"limit {watts(site['limit'])}" if site["limit"] is not None else "no limit"]
    if site["allowed"] is not None:
        words.append(f"at most {watts(site['allowed'])} may be drawn now")
    if site["over"]:
        words.append(f"{watts(site['over'])} too much: being lowered")
    if site["in_flight"]:
        words.append(f"{site['in_flight']} nodes with a command under way")
    words.append(f"kept by {site['controller'] or 'nobody yet'}")
    return "The site: " + ", ".join(words) + (f". Trouble: {site['error']}" if site["error"] else ".")
