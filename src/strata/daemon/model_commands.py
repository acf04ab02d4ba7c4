"""``strata model``: check, plan with, draw and show a model, offline. Talks to no service and needs no fleet.

Without a file it is about the layers that Strata brings along. Everything heavy is imported inside the commands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strata.cli import exits
from strata.core.printable import clean

if TYPE_CHECKING:
    from strata.core.model import Layer, Model
    from strata.core.modelfile import ModelFile
    from strata.engine.planner import Plan

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.group("model")
def group() -> None:
    """Check, try out and draw a model: variables, and mutations between values.

    A model is YAML (see 'strata model show'); without FILE these commands are about Strata's own layers.
    """


@group.command()
@click.argument("file", required=False, type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Findings as JSON.")
def check(file: Path | None, as_json: bool) -> None:
    """Look for values that cannot be reached or left, and for mutations that contradict.

    Exit code 1 if there are errors; warnings and notes alone leave it 0.

    \b
    Example: strata model check site.yaml
    """
    from strata.core.errors import BadRequest
    from strata.engine.modelcheck import Finding
    from strata.engine.modelcheck import check as check_model

    try:
        source = _load(file)
        model = source.model()
    except BadRequest as error:
        found = [Finding("error", "invalid", error.where, _with_hint(error))]
    else:
        found = check_model(model, drivers=[driver.name for driver in source.drivers] if source.drivers else None)
    count = {level: sum(finding.level == level for finding in found) for level in ("error", "warning", "note")}
    if as_json:
        findings = [{"level": f.level, "code": f.code, "where": f.where, "text": f.text} for f in found]
        _print_json(
            {"ok": not count["error"], "errors": count["error"], "warnings": count["warning"]}, findings=findings
        )
    else:
        for finding in found:
            click.echo(clean(f"{finding.level}: {finding.where}: {finding.text} [{finding.code}]"))
        click.echo(", ".join(f"{number} {level}{'' if number == 1 else 's'}" for level, number in count.items()))
    exits.leave(exits.ERROR if count["error"] else 0)


@group.command()
@click.option("--model", "file", type=_FILE, help="The model [default: Strata's own layers].")
@click.option("--facts", multiple=True, metavar="K=V,...", help="What is true; what is not given is unknown.")
@click.option("--desires", multiple=True, metavar="K=V,...", help="What is wanted; K=A|B if either will do.")
@click.option("--deny", multiple=True, metavar="GUARD", help="A guard that says no. May be repeated.")
@click.option("--looked", default="", metavar="K,...", help="Variables that were looked at and stayed unknown.")
@click.option("--json", "as_json", is_flag=True, help="The plan as JSON.")
def plan(
    file: Path | None, facts: Sequence[str], desires: Sequence[str], deny: Sequence[str], looked: str, as_json: bool
) -> None:
    """Show the cheapest chain of mutations from facts to desires. If there is none, it says why, with exit code 3.

    For a variable that can have any value give real ones (image=v1 now, image=v2 wanted).

    \b
    Status: done (the goal holds), plan (do this), observe (look at these variables first; the mutations are the plan if
    they stay unknown, or else the most expensive plan that may follow), unreachable (and the reason).

    \b
    Example: strata model plan --facts power=off --desires image=v2,personality=active
    """
    from strata.core.errors import BadRequest
    from strata.engine.planner import Planner, classify

    model = _load(file).model()
    now = _assignments("--facts", facts)
    wanted = {name: value.split("|") for name, value in _assignments("--desires", desires).items()}
    assumed = frozenset(filter(None, (name.strip() for name in looked.split(","))))
    for name in sorted(assumed - set(model.variables)):
        raise BadRequest(f"no such state variable; known are {', '.join(model.variables)}", where=f"--looked {name}")
    planner = Planner(model, denied=frozenset(deny))
    symbols, goals = classify(model, now, wanted)
    found = planner.plan(symbols, goals, assumed)
    steps, cost = found.steps, found.cost
    if found.status == "observe" and not steps:
        worst = planner.worst_branch(symbols, goals, found.observe)
        steps, cost = (worst.steps, worst.cost) if worst is not None else ((), 0.0)
    if as_json:
        body = {"status": found.status, "mutations": list(steps), "cost": cost}
        _print_json(body, observe=list(found.observe), reason=found.reason)
    else:
        click.echo(_plan_text(model, found, steps, cost))
    exits.leave(exits.UNREACHABLE if found.status == "unreachable" else 0)


@group.command()
@click.argument("file", required=False, type=_FILE)
@click.option("--format", "kind", type=click.Choice(["dot", "svg"]), default=None, help="[default: dot, or as -o ends]")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here, not to the screen.")
def graph(file: Path | None, kind: str | None, output: Path | None) -> None:
    """Draw the model: a box per variable, an arrow per mutation. SVG needs Graphviz.

    \b
    Example: strata model graph -o model.svg
    """
    from strata.core.errors import BadRequest
    from strata.engine import modelgraph

    if kind is None:
        suffix = output.suffix.lower() if output is not None else ".dot"
        if suffix not in (".svg", ".dot", ".gv"):
            raise click.UsageError("-o ends in .svg or .dot, or say which with --format")
        kind = "svg" if suffix == ".svg" else "dot"
    model = _load(file).model()
    text = modelgraph.svg(model) if kind == "svg" else modelgraph.dot(model)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"cannot be written: {error.strerror}", where=str(output)) from None


@group.command()
@click.argument("file", required=False, type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="The model as JSON.")
def show(file: Path | None, as_json: bool) -> None:
    """List variables with their values, and mutations with what they need and do.

    \b
    Example: strata model show
    """
    model = _load(file).model()
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(model), indent=2).decode())
        return
    for variable in model.variables.values():
        values = "any value" if variable.open else " ".join(variable.values)
        seen = f", seen by {variable.observer}" if variable.observer else ""
        lost = "".join(f", lost when {name}={_or(some)}" for name, some in variable.lost_when.items())
        proves = "".join(
            f", {value} implies {name}={proved}"
            for value, others in variable.implies.items()
            for name, proved in others.items()
        )
        canary = ", tried on a canary first" if variable.canary else ""
        click.echo(clean(f"variable {variable.name}: {values}{seen}{lost}{proves}{canary}"))
    for mutation in model.mutations.values():
        effects = {name: value for name, value in model.effects(mutation).items() if name != mutation.variable}
        parts = [f"{mutation.variable}: {_or(mutation.start)} -> {mutation.to}"]
        parts += [f"needs {name}={_or(some)}" for name, some in mutation.requires.items()]
        parts += [f"not {name}={_or(some)}" for name, some in mutation.excludes.items()]
        parts += [f"asks {guard}" for guard in mutation.guards]
        parts += [f"makes {name} {value}" for name, value in effects.items()]
        parts += [f"cost {mutation.cost:g}", *(["destructive"] if mutation.destructive else [])]
        click.echo(clean(f"mutation {mutation.name}: {', '.join(parts)}"))


def _load(file: Path | None) -> ModelFile:
    from strata.cli.reading import read_text
    from strata.core.model import Layer
    from strata.core.modelfile import ModelFile, parse

    if file is None:
        return ModelFile(source="built-in model", layer=Layer(), below=built_in())
    return parse(read_text(file), source=str(file), layers=built_in())


def built_in() -> tuple[Layer, ...]:
    """The layers that Strata brings along, from the bottom up."""
    from strata.daemon.layers import LAYERS

    return tuple(layer.model for layer in LAYERS)


def _assignments(option: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in filter(None, (part.strip() for whole in texts for part in whole.split(","))):
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name or not value:
            raise click.UsageError(f"{option} takes VARIABLE=VALUE,..., not {text!r}")
        if name in found:
            raise click.UsageError(f"{option} gives {name} twice")
        found[name] = value
    return found


def _plan_text(model: Model, found: Plan, steps: Sequence[str], cost: float) -> str:
    if found.status == "done":
        return "done: the goal holds"
    if found.status == "unreachable":
        return clean(f"unreachable: {found.reason}")
    lines = [f"observe first: {', '.join(found.observe)}"] if found.observe else []
    if steps:
        when = "" if not found.observe else "then, if nothing is found, " if found.steps else "then at most "
        lines.append(f"{when}cost {cost:g}:")
    for name in steps:
        mutation = model.mutations[name]
        lines.append(f"  {name}  ({mutation.variable} -> {mutation.to}, cost {mutation.cost:g})")
    return "\n".join(map(clean, lines))


def _print_json(body: dict[str, Any], **more: object) -> None:
    click.echo(json.dumps(body | more, indent=2))


def _with_hint(error: Exception) -> str:
    hint = getattr(error, "hint", "")
    detail = getattr(error, "detail", str(error))
    return f"{detail} ({hint})" if hint else detail


def _or(values: frozenset[str]) -> str:
    return "|".join(sorted(values))
