"""``strata project``: who may compute for what, how much, and what was used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session
from strata.cli.times import DURATION

if TYPE_CHECKING:
    from strata.cli.client import Json


def _of(item: Json, what: str) -> str:
    limit = item[f"{what}_hours"]
    booked = item[f"booked_{what}_hours"]
    return f"{item[f'used_{what}_hours']:.1f} + {booked:.1f} of {'any' if limit is None else f'{limit:g}'}"


def _energy(item: Json) -> str:
    limit = "" if item["kwh"] is None else f" of {item['kwh']:g}"
    if not item["measured_jobs"]:
        return f"not measured{limit}"
    part = "" if item["measured_jobs"] == item["ended_jobs"] else f" ({item['measured_jobs']} jobs)"
    return f"{item['used_kwh']:.3g} ± {item['kwh_error']:.2g}{limit}{part}"


FIELDS = (
    ls.plain("name"),
    ls.Field("core-hours", lambda item: _of(item, "core"), key=lambda item: item["used_core_hours"]),
    ls.Field("accelerator-hours", lambda item: _of(item, "accelerator")),
    ls.Field("kwh", _energy, key=lambda item: item["used_kwh"]),
    ls.Field("days", lambda item: f"{item['per'] / 86_400:g}", key=lambda item: item["per"]),
    ls.number("open_jobs"),
    ls.number("ended_jobs"),
    ls.Field("members", lambda item: " ".join(item["members"]) or "all"),
    ls.plain("description"),
    ls.number("revision", shown=False),
)


def _report(session: Session, found: Json) -> None:
    session.out.fields((field.name, field.text(found)) for field in FIELDS if field.shown)


@click.group("project")
def project() -> None:
    """Projects: quotas of jobs, and what was used."""


PROJECTS = Named(project, "project", "/v1/projects", FIELDS, report=_report)
PROJECTS.list("List projects, with the hours used and those booked by jobs that have not ended.", "strata project list")
PROJECTS.show("Show a project.", "strata project show physics")
PROJECTS.delete("Remove a project: its jobs are no longer counted.", "strata project delete physics")


@project.command("set")
@click.argument("name")
@click.option("--core-hours", type=float, help="Hours of one core.")
@click.option("--accelerator-hours", type=float, help="Hours of one accelerator.")
@click.option("--kwh", type=float, help="Kilowatt hours, where nodes are measured.")
@click.option("--per", type=DURATION, default="30d", show_default=True, help="Period that the quotas are for.")
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="ACCOUNT",
    help="Account whose jobs it takes; without any, all accounts.",
)
@click.option("--description", default="", help="What it is for.")
@ls.json_option
def set_(
    session: Session,
    name: str,
    core_hours: float | None,
    accelerator_hours: float | None,
    kwh: float | None,
    per: float,
    members: tuple[str, ...],
    description: str,
    as_json: bool,
) -> None:
    """Create a project, or replace all its settings. Jobs that are under way go on.

    \b
    Example: strata project set physics --core-hours 10000 --per 30d --member ada --member bob
    """
    body = {
        "core_hours": core_hours,
        "accelerator_hours": accelerator_hours,
        "kwh": kwh,
        "per": int(per),
        "members": list(members),
        "description": description,
    }
    PROJECTS.report(session, session.client.put(PROJECTS.path(name), body), as_json)
