"""The starter repository: a small machine, layered as a large one would be, that can be applied as it is. What
``strata up`` makes is described by the same files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from strata.core.nodeset import fold
from strata.platform.config.documents import schema
from strata.platform.config.importing import flow

SCHEMA = ".strata/schema.json"
_SCHEMA_LINE = "# yaml-language-server: $schema={up}.strata/schema.json\n"

_README = """# The configuration of this machine

| folder | holds | rules over |
|---|---|---|
| `vendor/` | what came with the machine | |
| `site/` | what all systems of this site share | `vendor/` |
| `systems/NAME/` | what one system has of its own | both |

Of a node, what all nodes have is ruled over by what its groups say, and that by what the node itself says.

    strata config check                what is wrong with it, with file, line and column
    strata config show n1 --explain    where each value of a node comes from
    strata config plan                 what applying it would change
    strata config apply                apply what is committed
"""

_VENDOR = """# What came with the machine. Replace it when the vendor sends another.
kind: defaults
architecture: x86_64
labels: {{vendor: {vendor}}}
"""

_GROUPS = """# Groups that every system of this site has; their members are in systems/.
kind: group
name: {group}
description: nodes that run jobs
nodes: {{role: compute}}
"""

_DESIRES = """# What is wanted of nodes. The narrower selection wins, then the later layer; 'priority' overrules both.
kind: desire
name: {desire}
select: "@{group}"
set: {wanted}
"""

_NODES = """# The nodes of this system. One line each; what they share stands above them.
kind: nodes
role: compute
nodes:
{nodes}---
kind: group
name: {group}
members: {members}
"""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the repository describes."""

    nodes: Sequence[Mapping[str, Any]]
    """As they stand in a file: ``{name: n1, labels: {rack: r1}}``."""
    group: str
    """All of them."""
    desire: str
    """The document that says what is wanted of the group."""
    wanted: Mapping[str, str]
    vendor: str


EXAMPLE = Machine(
    nodes=[{"name": f"n{number}", "labels": {"rack": f"r{(number + 1) // 2}"}} for number in range(1, 5)],
    group="workers",
    desire="workers-power",
    wanted={"power": "off"},
    vendor="example",
)


def files(system: str, machine: Machine = EXAMPLE) -> dict[str, str]:
    """Path → text of everything in it."""
    said = {
        "vendor": machine.vendor,
        "group": machine.group,
        "desire": machine.desire,
        "wanted": "{" + ", ".join(f"{name}: {value}" for name, value in machine.wanted.items()) + "}",
        "nodes": "".join(f"  - {flow(node)}\n" for node in machine.nodes),
        "members": fold(node["name"] for node in machine.nodes),
    }
    return furnished(
        {
            "vendor/defaults.yaml": _VENDOR.format(**said),
            "site/groups.yaml": _GROUPS.format(**said),
            "site/desires.yaml": _DESIRES.format(**said),
            f"systems/{system}/nodes.yaml": _NODES.format(**said),
        }
    )


def furnished(found: Mapping[str, str]) -> dict[str, str]:
    """A repository with what helps people who edit it: the schema, which each of its files names, and what is where."""
    named = {path: _schema_line(path) + text for path, text in found.items()}
    return {"README.md": _README, **named, SCHEMA: json.dumps(schema(), indent=1) + "\n"}


def _schema_line(path: str) -> str:
    """The first line of a file, by which editors find the schema; what is delivered to nodes has none."""
    is_ours = path.endswith(".yaml") and "files" not in path.split("/")
    return _SCHEMA_LINE.format(up="../" * path.count("/")) if is_ours else ""
