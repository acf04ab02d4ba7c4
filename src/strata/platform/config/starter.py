"""The starter repository: a small machine, layered as a large one would be, that can be applied as it is."""

from __future__ import annotations

import json

from strata.platform.config.documents import schema

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
labels: {vendor: example}
"""

_GROUPS = """# Groups that every system of this site has; their members are in systems/.
kind: group
name: workers
description: nodes that run jobs
nodes: {role: compute}
"""

_DESIRES = """# What is wanted of nodes. The narrower selection wins, then the later layer; 'priority' overrules both.
kind: desire
name: workers-power
select: "@workers"
set: {power: off}
"""

_NODES = """# The nodes of this system. One line each; what they share stands above them.
kind: nodes
role: compute
nodes:
  - {name: n1, labels: {rack: r1}}
  - {name: n2, labels: {rack: r1}}
  - {name: n3, labels: {rack: r2}}
  - {name: n4, labels: {rack: r2}}
---
kind: group
name: workers
members: n[1-4]
"""


def files(system: str) -> dict[str, str]:
    """Path → text of everything in it."""
    return {
        "README.md": _README,
        "vendor/defaults.yaml": _SCHEMA_LINE.format(up="../") + _VENDOR,
        "site/groups.yaml": _SCHEMA_LINE.format(up="../") + _GROUPS,
        "site/desires.yaml": _SCHEMA_LINE.format(up="../") + _DESIRES,
        f"systems/{system}/nodes.yaml": _SCHEMA_LINE.format(up="../../") + _NODES,
        SCHEMA: json.dumps(schema(), indent=1) + "\n",
    }
