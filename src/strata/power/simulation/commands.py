"""``strata power simulate``: try a power policy, offline. Needs no service; one that answers is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli.listing import json_option
from strata.cli.options import Between
from strata.cli.output import Column
from strata.cli.session import Session
from strata.cli.times import span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strata.power.simulation.outcome import Outcome

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
_LARGEST = 200_000
_FIGURES = ("jobs/day", "node-hours", "stretch", "p95", "wait", "MWh", "mean MW", "peak MW", "over limit")
_COLUMNS = (Column("run"), *(Column(figure, right=True) for figure in _FIGURES))


@click.command()
@click.option("--policy", "file", required=True, type=_FILE, help="The policy (YAML; - for standard input).")
@click.option("--nodes", type=click.IntRange(1, _LARGEST), default=1000, show_default=True, help="Size of the machine.")
@click.option("--limit", metavar="WATTS", help="What the site allows, such as 2MW [default: as the policy says]")
@click.option("--trace", type=_FILE, help="Recorded jobs: SWF, or what sacct -P prints [default: generated]")
@click.option("--days", type=Between(0, 31, min_open=True), default=1.0, show_default=True, help="Days to simulate.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Seed of the random jobs; the same seed gives the same jobs.",
)
@click.option("--load", type=Between(0, 10, min_open=True), default=1.1, show_default=True,
              help="Work of the generated jobs, as a multiple of what the nodes can do.")  # fmt: skip
@click.option("--die-after", metavar="TIME", help="The controller dies in its first change of caps after so long: 6h.")
@click.option("--alone", is_flag=True, help="Simulate only the policy, without the comparisons.")
@click.option("--no-record", is_flag=True, help="Do not tell the service that this policy was simulated.")
@json_option
def simulate(
    session: Session,
    file: Path,
    nodes: int,
    limit: str | None,
    trace: Path | None,
    days: float,
    seed: int,
    load: float,
    die_after: str | None,
    alone: bool,
    no_record: bool,
    as_json: bool,
) -> None:
    """Try a power policy on a simulated machine with jobs, before it is switched on.

    The same jobs are run again without a policy, with one cap for all, and uncapped on as many nodes as the limit
    feeds. Exit code 3 if more was drawn under the policy than the limit allows, at any instant. Otherwise the service,
    if there is one, notes that this content was simulated: strata power policy put takes it then.

    \b
    node-hours  work done, as hours of a node without a cap
    stretch     job run time relative to no caps: average, and (next column) p95

    \b
    Example: strata power simulate --policy site.yaml --nodes 8000 --limit 2MW
    """
    from strata.cli.reading import read_text
    from strata.core.errors import BadRequest
    from strata.core.units import seconds, watts
    from strata.power.policies.policy import parse
    from strata.power.simulation.simulation import Death, compare
    from strata.power.simulation.trace import generate
    from strata.power.simulation.trace_files import read

    text = read_text(file)
    policy = parse(text, source=str(file))
    allowed = _quantity("--limit", watts, limit) if limit else policy.limit
    if not allowed:
        raise BadRequest("the policy has no limit", where=str(file), hint="say it there, or with --limit 2MW")
    if allowed < nodes * policy.nodes.idle:
        needed = nodes * policy.nodes.idle
        raise BadRequest(f"{nodes} idle nodes draw {needed:g} W already", where="--limit", hint="fewer --nodes")
    death = Death(after=_quantity("--die-after", seconds, die_after)) if die_after else None
    queues = list(policy.queues)
    if trace is not None:
        jobs = read(read_text(trace), source=str(trace), nodes=nodes, high=policy.nodes.high, seed=seed, queues=queues)
    else:
        jobs = generate(seed, nodes=nodes, days=days, high=policy.nodes.high, load=load, queues=len(queues))
    runs = compare(policy, jobs, nodes=nodes, limit=allowed, days=days, seed=seed, death=death)
    outcomes = [next(runs)] if alone else list(runs)
    if as_json:
        import msgspec

        session.out.json(
            {"nodes": nodes, "limit_w": float(allowed), "jobs": len(jobs), "runs": msgspec.to_builtins(outcomes)}
        )
    else:
        session.out.table(_COLUMNS, [_row(outcome) for outcome in outcomes])
        for line in _against(outcomes):
            session.out.line(line)
    if outcomes[0].over_limit_s > 0:
        exits.leave(exits.UNREACHABLE)
    if not no_record and (policy.limit is None or allowed <= policy.limit):
        told = {"text": text, "nodes": nodes, "days": days, "limit": float(allowed), "peak": outcomes[0].peak_w}
        _record(session, told)


def _record(session: Session, told: dict[str, object]) -> None:
    """Tell the service, if there is one; who simulates where there is none has no use for it."""
    from strata.core.errors import Denied, StrataError

    try:
        session.client.post("/v1/power/simulations", told)
    except Denied as error:
        session.out.note(f"not recorded as simulated: {error}")
    except StrataError:
        return
    else:
        session.out.note("recorded as simulated: strata power policy put takes it now")


def _row(outcome: Outcome) -> tuple[object, ...]:
    return (
        outcome.name,
        f"{outcome.jobs_per_day:.0f}",
        f"{outcome.node_hours:.0f}",
        f"{outcome.stretch:.3f}",
        f"{outcome.stretch_95:.3f}",
        span(outcome.mean_wait_s),
        f"{outcome.energy_kwh / 1000:.2f}",
        f"{outcome.mean_w / 1e6:.3f}",
        f"{outcome.peak_w / 1e6:.3f}",
        span(outcome.over_limit_s) if outcome.over_limit_s else "never",
    )


def _against(outcomes: Sequence[Outcome]) -> list[str]:
    """How the policy stands beside each of the others, in words."""
    own, *others = outcomes
    return [
        f"Against {other.name}: {_more(own.node_hours, other.node_hours)} work, "
        f"{_more(own.energy_kwh, other.energy_kwh)} energy, "
        f"{_more(own.kwh_per_node_hour, other.kwh_per_node_hour)} energy for the same work."
        for other in others
    ]


def _more(own: float, other: float) -> str:
    return f"{(own / other - 1) * 100:+.1f} %" if other else "?"


def _quantity(option: str, read: Callable[[str], float], text: str) -> float:
    try:
        return float(read(text))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None
