"""``strata energy show``, ``top`` and ``history``: what nodes, cabinets and the machine draw."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.times import DURATION, WHEN, span, when
from strata.cli.words import complete_select, no_blank, select_help

if TYPE_CHECKING:
    from strata.cli.client import Json
    from strata.power.telemetry import plot as draw

SELECT = click.argument("select", nargs=-1, metavar="[SELECT]", callback=no_blank, shell_complete=complete_select)
METRICS = ("power", "accel-power", "temperature", "cap", "energy")


def watts(value: float | None) -> str:
    """``250 W``, ``1.5 kW``, ``2 MW``; ``-`` for what is not known."""
    from strata.core.units import show_watts

    return "-" if value is None else show_watts(value)


def joules(value: float | None) -> str:
    """``950 J``, ``1.2 kWh``, ``3.4 MWh``; ``-`` for what is not known."""
    if value is None:
        return "-"
    for unit, size in (("GWh", 3.6e12), ("MWh", 3.6e9), ("kWh", 3.6e6), ("kJ", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g} J"


def _cap(item: Json) -> str:
    return "none" if item["cap"] == 0 else watts(item["cap"])


def _field(name: str, title: str = "") -> ls.Field:
    return ls.Field(title or name, lambda i: watts(i[name]), lambda i: i[name] or 0, right=True)


NODES = (
    ls.plain("node"),
    _field("power"),
    _field("accel_power", "accel"),
    ls.Field("cap", _cap, lambda i: i["cap"] or 0, right=True),
    ls.Field(
        "temperature",
        lambda i: "-" if i["temperature"] is None else f"{i['temperature']:.0f} °C",
        lambda i: i["temperature"] or 0,
        right=True,
    ),
    ls.Field("energy", lambda i: joules(i["energy"]), lambda i: i["energy"] or 0, right=True, shown=False),
    ls.moment("measured", of="time"),
)

PARTS = (
    ls.plain("name"),
    _field("now"),
    _field("least"),
    _field("average"),
    _field("most"),
    ls.Field("measured", lambda i: f"{i['measured']} of {i['nodes']}", lambda i: i["measured"], right=True),
)


@select_help
@click.command()
@SELECT
@ls.listing(NODES)
def show(session: Session, select: tuple[str, ...], view: ls.Listing) -> None:
    """Show what nodes draw now; without SELECT, the machine and its cabinets.

    \b
    Example: strata energy show
             strata energy show n[1-4]
             strata energy show @gpu --sort -power
    """
    if select:
        found = session.client.pages("/v1/power/nodes", {"select": " ".join(select)})
        ls.show(session, NODES, found, view)
        return
    system = session.client.get("/v1/power/system")
    cabinets = session.client.get("/v1/power/cabinets")["items"]
    if view.json:
        session.out.json({"system": system, "cabinets": cabinets})
        return
    if view.columns or view.sort or view.match:
        raise click.UsageError("--columns, --sort and --match are for nodes: name some ('*' is all)")
    parts = [system["system"], *({**one, "name": one["name"] or "(no place)"} for one in cabinets)]
    ls.show(session, PARTS, parts, ls.Listing(False, (), "", ()))
    length = span(system["end"] - system["start"])
    known = "" if system["known"] > 0.995 else f"; measured for {system['known']:.0%} of that time"
    session.out.note(f"{joules(system['joules'])} in the last {length}{known}")


@select_help
@click.command()
@SELECT
@click.option("-n", "--count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many nodes.")
@click.option(
    "--by",
    type=click.Choice(("power", "accel_power", "temperature", "energy", "cap")),
    default="power",
    show_default=True,
    help="Order by this.",
)
@click.option("--lowest", is_flag=True, help="Show the lowest instead.")
@ls.listing(NODES)
def top(session: Session, select: tuple[str, ...], count: int, by: str, lowest: bool, view: ls.Listing) -> None:
    """Show the nodes that draw the most.

    \b
    Example: strata energy top -n 20
             strata energy top @gpu --by temperature
    """
    order = by if lowest else f"-{by}"
    found = session.client.get("/v1/power/nodes", {"select": " ".join(select) or "*", "sort": order, "limit": count})
    ls.show(session, NODES, found["items"], view)


@select_help
@click.command()
@SELECT
@click.option("--metric", type=click.Choice(METRICS), default="power", show_default=True,
              help="What was measured; of energy, what each node used in each step.")  # fmt: skip
@click.option("--since", "start", type=WHEN, default="1h", show_default=True, help="From when: 1h (ago), or a date.")
@click.option("--until", "end", type=WHEN, default="now", show_default=True, help="Up to this time.")
@click.option("--step", type=DURATION, help="Length of one step [default: about 240 steps].")
@click.option("--each", is_flag=True, help="Every node by itself (at most 1000).")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.option(
    "--parquet",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write every node's samples into FILE (without --step, as they were measured).",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw it into FILE.svg (or .png).",
)
@ls.json_option
def history(
    session: Session,
    select: tuple[str, ...],
    metric: str,
    start: float,
    end: float,
    step: float | None,
    each: bool,
    as_csv: bool,
    parquet: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Show a metric over time, of all selected nodes together or of each.

    \b
    Example: strata energy history
             strata energy history n[1-4] --each --since 10m
             strata energy history @gpu --metric temperature --plot gpu.svg
             strata energy history '*' --since 7d --step 1h --csv
             strata energy history '*' --since 1h --parquet power.parquet
    """
    from strata.power.telemetry import plot as draw

    if step is not None and step <= 0:
        raise click.BadParameter("a step is longer than that", param_hint="'--step'")
    asked = {
        "select": " ".join(select) or "*",
        "metric": metric,
        "start": f"{start:.3f}",
        "end": f"{end:.3f}",
        "step": f"{step:g}" if step else None,
    }
    if parquet is not None:
        _export(session, parquet, asked)
        return
    found = session.client.get("/v1/power/history", {**asked, "each": each or metric == "energy" or None})
    lines = [draw.Line(one["node"], one["values"]) for one in found["each"]]
    if metric == "energy":
        lines = [draw.Line(line.name, draw.rises(line.values)) for line in lines]
    if metric != "energy" and not each:
        lines = [draw.Line(" ".join(select) or "system", found["values"])]
    if plot is not None:
        if len(lines) > draw.LINES:
            raise click.UsageError(f"a plot shows at most {draw.LINES} nodes by themselves, not {len(lines)}")
        title = f"{metric} of {' '.join(select) or 'the system'}"
        draw.write_plot(plot, title, found["unit"], found["times"], lines)
        session.out.note(f"drawn into {plot}")
        return
    if as_json:
        session.out.json(found)
    elif as_csv:
        _csv(session, found, lines)
    else:
        _sparklines(session, found, lines)


def _export(session: Session, file: Path, asked: dict[str, str | None]) -> None:
    """A file that is whole, or not there."""
    from strata.cli.client import query
    from strata.cli.transfer import download

    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as into:
            size = download(session.client, "/v1/power/samples" + query({**asked, "format": "parquet"}), into)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    session.out.note(f"{size} bytes written into {file}")


def _csv(session: Session, found: Json, lines: list[draw.Line]) -> None:
    writer = csv.writer(session.out.stdout, lineterminator="\n")
    each = bool(found["each"])
    writer.writerow(["time", *([line.name for line in lines] if each else [found["metric"], "nodes"])])
    for place, time in enumerate(found["times"]):
        cells = [line.values[place] if place < len(line.values) else None for line in lines]
        if not each:
            cells.append(found["counts"][place])
        stamp = datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")
        writer.writerow([stamp, *("" if cell is None else cell for cell in cells)])


def _sparklines(session: Session, found: Json, lines: list[draw.Line]) -> None:
    from strata.power.telemetry import plot as draw

    def text(value: float) -> str:
        shown = {"W": watts, "J": joules}.get(found["unit"])
        return shown(value) if shown else f"{value:,.6g} {found['unit']}"

    rows: list[Json] = []
    for line in lines:
        known = [value for value in line.values if value is not None]
        figures = (min(known), sum(known) / len(known), max(known)) if known else None
        rows.append(
            {
                "name": line.name,
                "picture": draw.sparkline(line.values, 60),
                **{
                    name: text(figures[place]) if figures else "-"
                    for place, name in enumerate(("least", "average", "most"))
                },
            }
        )
    fields = (
        ls.plain("name"),
        ls.Field(f"{when(found['start'])} to {when(found['end'])}", lambda i: i["picture"]),
        ls.number("least"),
        ls.number("average"),
        ls.number("most"),
    )
    ls.show(session, fields, rows, ls.Listing(False, (), "", ()))
    counts = [count for count in found["counts"] if count] or [0]
    if found["nodes"] and min(counts) < found["nodes"]:
        session.out.note(f"of {many(found['nodes'], 'node')}, {min(counts)} to {max(counts)} were measured at a time")
    troubled = sum(1 for one in found["each"] if any(one["trouble"].values()))
    if troubled:
        session.out.note(f"{many(troubled, 'node')} with gaps, resets or doubtful values: --json says which")
