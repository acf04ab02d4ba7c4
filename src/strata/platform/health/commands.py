"""``strata health``: checks that nodes run, and what is done about those that fail them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.times import DURATION, when
from strata.cli.words import complete_select, no_blank, select_help

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.Field("kind", lambda item: item["spec"]["kind"]),
    ls.Field("select", lambda item: item["spec"].get("select", "*")),
    ls.Field("severity", lambda item: item["spec"].get("severity", "critical")),
    ls.Field("every", lambda item: f"{item['spec'].get('every', 60):g}s", right=True),
    ls.number("nodes"),
    ls.number("failing"),
    ls.Field("trusted", lambda item: "yes" if item["trusted"] else "no"),
    ls.Field("description", lambda item: item["spec"].get("description") or "-", shown=False),
    ls.plain("author", shown=False),
)
NODE_FIELDS = (
    ls.plain("node"),
    ls.plain("health", colour=lambda word: {"ok": "green", "failing": "red", "repaired": "yellow"}.get(word, "")),
    ls.Field("failing", lambda item: ", ".join(one["check"] for one in item["failing"]) or "-"),
    ls.Field("why", lambda item: "; ".join(one["reason"] for one in item["failing"]) or item["why"] or "-"),
    ls.Field("repairs", lambda item: ", ".join(item["repairs"]) or "-"),
)


@click.group()
def health() -> None:
    """Check whether nodes are fit for jobs, and say what is done if not.

    Checks only report. Nodes with the desire health=ok are drained, repaired and returned automatically:
    strata node set @compute health=ok
    """


def _read(text: str, source: str) -> Mapping[str, Any]:
    from strata.platform.health.files import read_checks

    return read_checks(text, source)


def _with_failing(session: Session, found: Json) -> None:
    session.out.fields(
        (
            ("name", found["name"]),
            *((key, value) for key, value in found["spec"].items()),
            ("nodes", found["nodes"]),
            ("failing", found["failing"]),
            ("trusted", "yes" if found["trusted"] else "no: too many nodes fail it"),
            ("author", found["author"]),
        )
    )
    for item in found["items"]:
        for one in item["failing"]:
            if one["check"] == found["name"]:
                session.out.line(f"  {item['node']}: {one['reason']} (since {when(one['since'])})")


CHECKS = Named(health, "check", "/v1/health-checks", FIELDS, report=_with_failing)
CHECKS.list("List the checks, and how many nodes fail each.", "strata health list")
CHECKS.show("Show a check, and which nodes fail it.", "strata health show scratch")
CHECKS.put_files(
    _read,
    lambda found: many(found["nodes"], "node"),
    "Declare the checks that FILES (YAML; - is standard input) hold, or change them. All are read before any is put.",
    "strata health put checks.yaml",
)
CHECKS.delete("Delete a check.", "strata health delete scratch")


@select_help
@health.command()
@click.argument("select", nargs=-1, shell_complete=complete_select)
@ls.listing(NODE_FIELDS, sort="node")
def nodes(session: Session, select: tuple[str, ...], view: ls.Listing) -> None:
    """List nodes with what they fail, and what was done about it within a day.

    \b
    Example: strata health nodes @compute --match health=failing
    """
    found = session.client.get("/v1/node-health", {"select": " ".join(select) or "*"})
    ls.show(session, NODE_FIELDS, found["items"], view)


@select_help
@health.command()
@click.argument("select", nargs=-1, required=True, callback=no_blank, shell_complete=complete_select)
@ls.json_option
def check(session: Session, select: tuple[str, ...], as_json: bool) -> None:
    """Run the checks of nodes now; exit code 1 if one fails or cannot be run.

    \b
    Example: strata health check 'n[1-4]'
    """
    found = session.client.post("/v1/node-health/check", {"select": " ".join(select)})["items"]
    if as_json:
        session.out.json(found)
    else:
        for item in found:
            _report(session, item)
    if any(item["error"] or any(item["results"].values()) for item in found):
        exits.leave(exits.ERROR)


def _report(session: Session, item: Json) -> None:
    if item["error"]:
        session.out.line(f"{item['node']}: not checked: {item['error']}", colour="red")
        return
    wrong = {name: why for name, why in item["results"].items() if why}
    passed = sum(why == "" for why in item["results"].values())
    unsure = len(item["results"]) - len(wrong) - passed
    more = f", {unsure} could not be told" if unsure else ""
    session.out.line(f"{item['node']}: {many(passed, 'check')} passed, {len(wrong)} failed{more}")
    for name, why in wrong.items():
        session.out.line(f"  {name}: {why}", colour="red")


@health.command()
@click.option("--repair", help="What is tried, in order: restart, reboot, power-cycle; 'none' for nothing.")
@click.option("--per-day", type=click.IntRange(0, 100), help="Most repairs of one node within a day.")
@click.option(
    "--most",
    type=click.FloatRange(0, 100),
    help="If more than this percentage of nodes fail the same check, the check is suspect and no longer counts.",
)
@click.option("--steady", type=DURATION, help="How long a repaired node must be well.")
@ls.json_option
def policy(
    session: Session,
    repair: str | None,
    per_day: int | None,
    most: float | None,
    steady: float | None,
    as_json: bool,
) -> None:
    """Show what is done about nodes that fail, or change it.

    \b
    Example: strata health policy
             strata health policy --repair restart,reboot,power-cycle --per-day 2
    """
    found = session.client.get("/v1/health-policy")
    repairs = None if repair is None else [word for word in repair.split(",") if word and repair != "none"]
    change: dict[str, Any] = {"repairs": repairs, "per_day": per_day, "most": most, "steady": steady}
    change = {key: value for key, value in change.items() if value is not None}
    if change:
        found = session.client.put("/v1/health-policy", {**found, **change})
    if as_json:
        session.out.json(found)
        return
    session.out.fields(
        (
            ("repair", ", then ".join(found["repairs"]) or "nothing"),
            ("per day", found["per_day"]),
            ("most", f"{found['most']:g} % of the nodes that run a check"),
            ("steady", f"{found['steady']:g} s"),
        )
    )
