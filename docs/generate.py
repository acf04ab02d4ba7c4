"""Makes what can be read off the code: pages of the reference, and diagrams.

``python docs/generate.py`` writes them; ``--check`` writes nothing and fails if one is out of date. What the pages say
is in the docstrings and declarations of ``src/strata``; nothing is written twice.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
from drawings import DRAWINGS, draw, is_of
from forms import MARK, code, table, words
from ports_and_metrics import metrics_page, ports_page

REFERENCE = Path(__file__).resolve().parent / "reference"
PICTURES = REFERENCE.parent / "pictures"
WIDTH = 100
UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))

EXAMPLE = REFERENCE / "strata.yaml"


# ---- commands ----


def cli_page() -> str:
    """Every command with its help."""
    parts = [
        MARK,
        "# Commands\n",
        "Each command prints this with `--help`; the Debian package has the same as the manual page `strata(1)`.",
        "`SELECT` is the selector language, see [REST](rest.md#selectors).\n",
    ]
    for path, command, context in commands_of_strata():
        depth = "##" if len(path) <= 2 else "###"
        parts.append(f"{depth} {' '.join(path)}\n\n```text\n{_plain(command.get_help(context))}\n```\n")
    return "\n".join(parts)


def commands_of_strata() -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    """Every command, beginning with ``strata`` itself: its words, and in which context its help is right."""
    from strata.cli.main import cli

    return _commands(cli, ("strata",), None)


def help_lines() -> str:
    """Where each command is that is imported when it is named, and what it does, in one line."""
    from strata.cli.lazy import WIDEST, LazyGroup

    found = {
        place: group.get_command(context, name)
        for _, group, context in commands_of_strata()
        if isinstance(group, LazyGroup)
        for section in group.table.values()
        for name, place in section.items()
    }
    return "\n".join(
        f"{place} {command.get_short_help_str(WIDEST)}" for place, command in sorted(found.items()) if command
    )


def _commands(
    command: click.Command, path: tuple[str, ...], parent: click.Context | None
) -> Iterator[tuple[tuple[str, ...], click.Command, click.Context]]:
    context = click.Context(command, info_name=path[-1], parent=parent, terminal_width=WIDTH, max_content_width=WIDTH)
    yield path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            member = command.get_command(context, name)
            assert member is not None
            yield from _commands(member, (*path, name), context)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


# ---- REST ----


def rest_page() -> str:
    """Every operation and every record of the OpenAPI document."""
    from strata.api.app import create_litestar, openapi_schema
    from strata.api.rights import _ALWAYS, _STATUSES, handlers_of
    from strata.fleet.selectors import language as selectors

    schema = openapi_schema()
    rights = {(method, path): handler.opt["right"] for method, path, handler in handlers_of(create_litestar(1))}
    selecting = (selectors.__doc__ or "").split("=====")
    parts = [
        MARK,
        "# REST interface\n",
        f"OpenAPI {schema['openapi']}; a running service gives the whole document at `/v1/openapi.json`.",
        f"{schema['info']['description']}\n",
        "*Needs* names the right that a caller must have; [Give access](../how-to/give-access.md) says who has it.\n",
        "## Selectors\n",
        words(selecting[0].split("\n\n", 1)[1]) + "\n",
        table(("term", "selects"), _selector_terms(selectors.__doc__ or "")),
        "A document's `select` may use every term but `state:`, `fact:` and `want:`: whom it is about must not",
        "depend on what it does.\n",
        "## Answers that every operation may give\n",
        "Each is a [Problem](#problem). Operations that anybody may ask give no 401 and no 403.\n",
        table(("status", "meaning"), ((str(status), _STATUSES[status]) for status in _ALWAYS)),
    ]
    common = {str(status) for status in _ALWAYS}
    by_tag: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["other"])[0]
            right = rights[(method.upper(), path)]
            by_tag.setdefault(tag, []).append(_operation(method.upper(), path, operation, right, common))
    for tag in sorted(by_tag):
        parts += [f"## {tag.capitalize()}\n", *by_tag[tag]]
    parts.append("## Records\n")
    for name, record in sorted(schema["components"]["schemas"].items()):
        parts.append(_record(name, record))
    return "\n".join(parts)


def _selector_terms(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = re.match(r"(``.+?``)\s{2,}(.+)", line) or re.match(r"(``\S+``) (.+)", line)
        if found:
            yield words(found[1]), words(found[2])


def _operation(method: str, path: str, operation: Mapping[str, Any], right: object, common: Container[str]) -> str:
    lines = [f"### {method} {path}\n", words(operation.get("description") or operation.get("summary", "")) + "\n"]
    lines.append(f"Needs: {code(right) if right is not None else 'nothing, anybody may ask'}.\n")
    parameters = [p for p in operation.get("parameters", ()) if p["in"] != "path"]
    if parameters:
        rows = (
            (code(p["name"]), p["in"], _kind(p.get("schema", {})), words(p.get("description", ""))) for p in parameters
        )
        lines.append(table(("parameter", "in", "type", "meaning"), rows))
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        lines.append(f"Body (`{kind}`): {_kind(body['schema'])}.\n")
    answers = (
        (status, words(answer.get("description", "")), _answer(answer))
        for status, answer in sorted(operation["responses"].items())
        if status not in common
    )
    lines.append(table(("status", "meaning", "body"), answers))
    return "\n".join(lines)


def _answer(answer: Mapping[str, Any]) -> str:
    kinds = (_kind(body.get("schema", {})) or code(kind) for kind, body in answer.get("content", {}).items())
    return ", ".join(kind for kind in kinds if kind != "any")


def _record(name: str, record: Mapping[str, Any]) -> str:
    lines = [f"### {name}\n", words(record.get("description", "")) + "\n"]
    if "enum" in record:
        lines.append("One of " + ", ".join(code(value) for value in record["enum"]) + ".\n")
    required = set(record.get("required", ()))
    rows = [
        (code(field), _kind(schema), "yes" if field in required else "", words(schema.get("description", "")))
        for field, schema in record.get("properties", {}).items()
    ]
    if rows:
        lines.append(table(("field", "type", "required", "meaning"), rows))
    return "\n".join(lines)


def _kind(schema: Mapping[str, Any]) -> str:
    """A schema in few words; a record is a link."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_kind(part) for part in schema[key]))
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_kind(schema['additionalProperties'])}"
    return str(kind)


# ---- the built-in model ----


def model_page() -> str:
    """What the layers declare."""
    from strata.core.model import Model
    from strata.daemon.layers import LAYERS

    whole = Model.of(*(layer.model for layer in LAYERS))
    parts = [
        MARK,
        "# The built-in model\n",
        "What Strata's own layers declare, lowest first. A site adds to it with a [model file](model-file.md).",
        "`strata model show` prints the same, `strata model graph` draws it. [The loop](../explanation/the-loop.md)",
        "explains [the states](../explanation/the-loop.md#the-state-of-a-node) that a node as a whole can be in.\n",
        "![Variables, their values, and the mutations between them](../pictures/built-in-model.svg)\n",
        "A box is a variable; an arrow is a mutation, with its cost and what it needs. Red: destructive.\n",
    ]
    for name, layer in ((declared.name, declared.model) for declared in LAYERS):
        parts.append(f"## Layer {name}\n")
        if layer.variables:
            parts += ["### Variables\n", _variables(layer.variables), "### Mutations\n"]
        parts += [_mutation(whole.mutations[m.name], whole) for m in layer.mutations]
        if layer.guards:
            rows = ((code(g.name), code(g.driver), f"{g.ask_again_after:g} s", g.doc) for g in layer.guards)
            parts += ["### Guards\n", table(("guard", "asked of", "asked again after", "question"), rows)]
        if layer.budgets:
            parts += ["### Budgets\n", _budgets(layer.budgets)]
        if layer.excludes:
            parts.append("### Conditions on other layers' mutations\n")
            added = ((code(name), _conditions(excludes)) for name, excludes in layer.excludes.items())
            parts.append(table(("mutation", "not while"), added))
    return "\n".join(parts)


def _variables(variables: Iterable[Any]) -> str:
    rows = (
        (
            code(v.name),
            ("any value" + (", on a canary first" if v.canary else ""))
            if v.open
            else ", ".join(code(value) for value in v.values),
            f"{v.ages_out_after:g} s" if v.ages_out_after is not None else "never",
            code(v.observer),
            _conditions(v.lost_when),
            "; ".join(code(f"{value}: {k}={to}") for value, others in v.implies.items() for k, to in others.items())
            or "-",
            v.doc,
        )
        for v in variables
    )
    return table(("variable", "values", "ages out after", "seen by", "lost when", "implies", "meaning"), rows)


def _mutation(mutation: Any, model: Any) -> str:
    effects = {k: v for k, v in model.effects(mutation).items() if k != mutation.variable}
    rows = [
        ("changes", f"{code(mutation.variable)}: {' or '.join(sorted(mutation.start))} → {mutation.to}"),
        ("requires", _conditions(mutation.requires)),
        ("not while", _conditions(mutation.excludes)),
        ("also changes", ", ".join(f"{code(name)} → {value}" for name, value in effects.items()) or "-"),
        ("guards", ", ".join(code(guard) for guard in mutation.guards) or "-"),
        ("driver", f"{code(mutation.driver)}, at most {mutation.batch} nodes in one call"),
        ("cost, timeout", f"{mutation.cost:g}, {mutation.timeout:g} s"),
        ("destructive", "yes" if mutation.destructive else "no"),
        ("idempotent", "yes" if mutation.idempotent else "no"),
        ("believed after a failure", mutation.on_failure),
    ]
    return f"#### {mutation.name}\n\n" + (f"{mutation.doc}\n\n" if mutation.doc else "") + table(("", ""), rows)


def _budgets(budgets: Iterable[Any]) -> str:
    def limit(budget: Any) -> str:
        found = [f"{budget.limit:g} at once" if budget.limit is not None else ""]
        found += [f"{budget.percent:g} % at once" if budget.percent is not None else ""]
        found += [f"{budget.rate:g} starts a second" if budget.rate is not None else ""]
        return ", ".join(filter(None, found))

    def whom(budget: Any) -> str:
        if budget.mutations:
            return ", ".join(code(name) for name in budget.mutations)
        whose = f" of driver {code(budget.driver)}" if budget.driver else ""
        return f"every {'destructive ' if budget.destructive_only else ''}mutation{whose}"

    rows = ((code(b.name), whom(b), b.per, limit(b), b.doc) for b in budgets)
    return table(("budget", "brakes", "per", "limit", "meaning"), rows)


def _conditions(conditions: Mapping[str, Iterable[str]]) -> str:
    return ", ".join(f"{code(name)} = {' or '.join(sorted(values))}" for name, values in conditions.items()) or "-"


# ---- settings ----


def settings_page() -> str:
    """Every setting of the configuration file: meanings from the source, types and defaults from the classes."""
    from strata.daemon import CONFIG_FILE
    from strata.daemon.serve_commands import serve
    from strata.daemon.settings import Settings
    from strata.fleet.settings import FleetSettings

    options = {(parameter.name or "").replace("__", "."): parameter.opts[0] for parameter in serve.params}
    options |= {"listen.host": "--listen", "listen.port": "--listen", "layers": "LAYERS"}
    settings = Settings(state_dir=Path("$STRATA_STATE, or by user"), controller_id="the host's name")
    sections = dict(settings.sections())
    plain = [name for name in settings.__struct_fields__ if name not in sections]
    said = {**_docs(FleetSettings), **_docs(Settings)}
    parts = [
        MARK,
        "# Settings\n",
        f"What `strata serve` is told, in `{CONFIG_FILE}` or the file that `--config` names, in YAML. What is left out",
        "keeps its default. `strata serve --check` says whether a file is good; an error names line and column.",
        "[Configure the service](../how-to/configure.md) shows how to work with it.\n",
        f"```yaml\n{EXAMPLE.read_text(encoding='utf-8')}```\n",
        "- *Duration*: `90s`, `10m`, `1h30m`, `30d`, or a number of seconds. *Power*: `250W`, `1.5kW`, `2MW`, or a",
        "  number of watts. *Path*: relative to the directory of the file.",
        "- *Option* is the option of `strata serve` that sets it, before what the file says; for every other setting",
        "  there is `--set SETTING=VALUE`.",
        "- *Live*: taken over by a running service at SIGHUP. What is not needs a restart, and the log says so.\n",
        "## At the top\n",
        _settings("", plain, settings, said, options),
    ]
    for name, section in sections.items():
        heading = f"## {name}\n\n{words(type(section).__doc__ or '')}\n"
        fields = _settings(f"{name}.", section.__struct_fields__, section, _docs(type(section)), options)
        parts += [heading, fields]
    return "\n".join(parts)


def _docs(kind: type[Any]) -> dict[str, str]:
    """Fields of a class, each with the docstring that follows it."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, after in itertools.pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            assert isinstance(after.value, ast.Constant)
            found[field.target.id] = str(after.value.value)
    return found


def _settings(
    prefix: str, names: Iterable[str], values: Any, said: Mapping[str, str], options: Mapping[str, str]
) -> str:
    kinds = get_type_hints(type(values))
    rows = (
        (
            code(prefix + name),
            _setting_kind(kinds[name]),
            code(_default(getattr(values, name))),
            "yes" if name in getattr(values, "live", ()) else "",
            code(options.get(prefix + name, "")),
            words(said[name]),
        )
        for name in names
    )
    return table(("setting", "type", "default", "live", "option", "meaning"), rows)


def _setting_kind(kind: Any) -> str:
    """A type in the words of the file."""
    from strata.core.settings_section import Section
    from strata.core.units import Seconds, Watts

    if get_origin(kind) is Literal:
        return ", ".join(map(code, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"list of {_setting_kind(get_args(kind)[0])}"
    if get_args(kind):  # X | None
        return _setting_kind(get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, Section):
        return ", ".join(map(code, kind.__struct_fields__))
    names = {Seconds: "duration", Watts: "power", Path: "path", bool: "`true`, `false`", str: "text"}
    return names.get(kind, "whole number" if kind is int else "number")


def _default(value: Any) -> str:
    """A default as it is written in the file; nothing where there is none."""
    from strata.core.units import Seconds, Watts

    if isinstance(value, Seconds):
        size, unit = next((size, unit) for size, unit in UNITS if not value % size or size == 1)
        return f"{value / size:g}{unit}"
    if isinstance(value, Watts):
        return f"{value:g}W"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value) if value is not None else ""


PAGES = {
    "../../src/strata/cli/help_lines.txt": help_lines,  # first: the help of groups is made of it
    "cli.md": cli_page,
    "metrics.md": metrics_page,
    "model.md": model_page,
    "ports.md": ports_page,
    "rest.md": rest_page,
    "settings.md": settings_page,
}


def main() -> int:
    """Write the pages, or with --check compare them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    given = parser.parse_args()
    stale = []
    for name, describe in DRAWINGS.items():
        path, text = PICTURES / name, describe()
        if path.exists() and is_of(path.read_text(encoding="utf-8"), text):
            continue
        stale.append(name)
        if not given.check:
            path.write_text(draw(text), encoding="utf-8")
    for name, make in PAGES.items():
        path, text = REFERENCE / name, make().rstrip() + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not given.check:
            path.write_text(text, encoding="utf-8")
    if stale and given.check:
        print(f"out of date: {', '.join(stale)}; run 'make docs'", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
