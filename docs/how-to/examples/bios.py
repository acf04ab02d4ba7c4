"""An example driver: keeps each node's BIOS profile in a small file, where a real one would ask the vendor's tool.

Strata runs it once per batch. It reads one JSON object on standard input and writes one, by node name, on standard
output. A node that it leaves out is unknown to Strata, so it only ever says what it has seen.
"""

import json
import os
import sys
from pathlib import Path

STATE = Path(os.environ["BIOS_STATE"])


def observe(node):
    """The profile in force; a node that was never set has none."""
    file = STATE / node["name"]
    return {"bios": file.read_text(encoding="utf-8") if file.exists() else "absent"}


def act(node):
    """Apply the wanted profile, unless a newer controller has acted on the node already."""
    fences = STATE / f"{node['name']}.fence"
    last = json.loads(fences.read_text(encoding="utf-8")) if fences.exists() else [0, 0]
    if node["fence"] <= last:
        return "fenced"
    fences.write_text(json.dumps(node["fence"]), encoding="utf-8")
    (STATE / node["name"]).write_text(node["goal"]["bios"], encoding="utf-8")
    return "done"


def permits(node):
    """Empty for yes, or why not."""
    return "BIOS changes are closed" if (STATE / "closed").exists() else ""


def main():
    """Answer the question on standard input."""
    STATE.mkdir(parents=True, exist_ok=True)
    question = json.load(sys.stdin)
    answer = {"observe": observe, "act": act, "permits": permits}[question["action"]]
    json.dump({node["name"]: answer(node) for node in question["nodes"]}, sys.stdout)


main()
