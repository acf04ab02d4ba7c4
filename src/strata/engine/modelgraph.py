"""A model as a picture: one box per variable, its values as nodes, mutations as edges. DOT text, or SVG by Graphviz.

Draws what is declared, without judging it (``modelcheck`` does that).
"""

from __future__ import annotations

import shutil
import subprocess

from strata.core.errors import Unavailable
from strata.core.model import UNKNOWN, Model, Mutation, Variable

_TIME_LIMIT = 60.0


def dot(model: Model) -> str:
    """The model in Graphviz's language."""
    lines = [
        "digraph model {",
        "  rankdir=LR; compound=true; fontname=Helvetica;",
        "  node [shape=box, style=rounded, fontname=Helvetica, fontsize=11];",
        "  edge [fontname=Helvetica, fontsize=9];",
    ]
    for variable in model.variables.values():
        lines += _cluster(model, variable)
    for mutation in model.mutations.values():
        lines += _edges(model, mutation)
    return "\n".join([*lines, "}", ""])


def svg(model: Model) -> str:
    """The model as an SVG picture; needs Graphviz's ``dot`` on the path."""
    return drawn(dot(model))


def drawn(text: str) -> str:
    """The SVG picture of a description in Graphviz's language."""
    program = shutil.which("dot")
    if program is None:
        raise Unavailable(
            "Graphviz's 'dot' is not installed", where="model graph", hint="apt-get install graphviz, or --format dot"
        )
    try:
        done = subprocess.run(
            [program, "-Tsvg"], input=text, capture_output=True, text=True, timeout=_TIME_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"'dot' took over {_TIME_LIMIT:.0f} s", where="model graph", hint="use --format dot and draw a part of it"
        ) from None
    if done.returncode != 0:
        raise Unavailable(f"'dot' failed: {done.stderr.strip()[:200]}", where="model graph")
    return done.stdout


def _cluster(model: Model, variable: Variable) -> list[str]:
    title = f"{variable.name} (any value)" if variable.open else variable.name
    seen = f"seen by {variable.observer}" if variable.observer else "not observed"
    lines = [f"  subgraph {_text('cluster_' + variable.name)} {{", f"    label={_text(title, seen)}; style=rounded;"]
    lines += [f"    {_node(variable.name, symbol)} [label={_text(symbol)}];" for symbol in variable.symbols]
    if _meets_unknown(model, variable.name):
        style = '"rounded,dashed"'
        lines.append(f"    {_node(variable.name, UNKNOWN)} [label={_text(UNKNOWN)}, style={style}];")
    return [*lines, "  }"]


def _meets_unknown(model: Model, name: str) -> bool:
    return any(m.variable == name and UNKNOWN in m.start for m in model.mutations.values())


def _edges(model: Model, mutation: Mutation) -> list[str]:
    label = [f"{mutation.name} ({mutation.cost:g})"]
    label += [f"needs {name}={'|'.join(sorted(some))}" for name, some in mutation.requires.items()]
    label += [f"not {name}={'|'.join(sorted(some))}" for name, some in mutation.excludes.items()]
    label += [f"asks {guard}" for guard in mutation.guards]
    effects = {name: symbol for name, symbol in model.effects(mutation).items() if name != mutation.variable}
    label += [f"sets {name}={symbol}" for name, symbol in effects.items() if symbol != UNKNOWN]
    forgotten = [name for name, symbol in effects.items() if symbol == UNKNOWN]
    if forgotten:
        label.append(f"forgets {', '.join(forgotten)}")
    colour = ", color=firebrick, fontcolor=firebrick" if mutation.destructive else ""
    end = _node(mutation.variable, mutation.to)
    return [
        f"  {_node(mutation.variable, start)} -> {end} [label={_text(*label)}{colour}];"
        for start in sorted(mutation.start)
        if start != mutation.to or len(mutation.start) == 1
    ]


def _node(variable: str, symbol: str) -> str:
    # Names of variables hold no colon, so two different nodes never get one name.
    return _text(f"{variable}:{symbol}")


def _text(*lines: str) -> str:
    """A quoted string of DOT, one line below the other; nothing in it can end the quotes or start an escape."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines)
    return '"' + "\\n".join(escaped) + '"'
