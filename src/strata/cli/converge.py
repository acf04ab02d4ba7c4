"""Watch nodes go to their goal: counts by state until nothing moves. Shared by ``node set --wait`` and ``up``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from strata.cli import exits
from strata.cli.output import AT_GOAL, STATE_ORDER, counts
from strata.cli.progress import Meter

if TYPE_CHECKING:
    from strata.cli.client import Client
    from strata.cli.output import Output

MOVING = ("converging", "waiting", "unknown")
"""States that a node leaves by itself."""

_SETTLED_FOR = 1.0
"""Seconds that the picture must hold: a node between two steps can look as if it stood still."""
SEEN_AGAIN = 20.0
"""The same where nodes have just been switched on: one that could not be seen is looked at again a few times."""

_POLL = 0.25


def state_counts(client: Client, select: str) -> dict[str, int]:
    """How many of the selected nodes are in each state."""
    if select == "*":
        return dict(client.get("/v1/status")["by_state"])
    found: dict[str, int] = {}
    one: dict[str, str | int | bool | None] = {"select": select, "limit": 1, "fields": "name"}
    left = int(client.get("/v1/nodes", one)["total"])
    for state in STATE_ORDER:
        if left <= 0:
            break
        found[state] = int(client.get("/v1/nodes", {**one, "state": state})["total"])
        left -= found[state]
    if left > 0:  # each state is asked for by itself: these went from one to another meanwhile
        found["converging"] += left
    return found


def wait(
    client: Client,
    select: str,
    out: Output,
    *,
    timeout: float,
    revision: int = 0,
    patience: float = 0.0,
) -> dict[str, int]:
    """Follow the selected nodes until none moves, or for ``timeout`` seconds; the last counts by state.

    Nothing counts before the states show what was said at ``revision``. ``patience``: seconds until nodes that cannot
    get there are believed to stay so.
    """
    began = time.monotonic()
    settled: float | None = None
    with Meter(out, "at goal") as meter:
        while True:
            shown = not revision or int(client.get("/v1/status")["revision"]) >= revision
            revision = 0 if shown else revision
            found = state_counts(client, select)
            now = time.monotonic()
            if shown:
                rest = {state: count for state, count in found.items() if state not in AT_GOAL and count}
                there = sum(found.get(state, 0) for state in AT_GOAL)
                meter.update(there, sum(found.values()), counts(rest) if rest else "")
            if not shown or any(found.get(state) for state in MOVING):
                settled = None
            elif settled is None:
                settled = now
            elif now - settled >= max(_SETTLED_FOR, patience if found.get("unreachable") else 0.0):
                return found
            if now - began >= timeout:
                return found
            time.sleep(_POLL)


def verdict(found: dict[str, int]) -> int:
    """The exit code for the counts that ``wait`` gave: 0 all at their goals, 3 some cannot get there, else 1."""
    if found.get("unreachable"):
        return exits.UNREACHABLE
    return exits.ERROR if any(count for state, count in found.items() if state not in AT_GOAL) else 0
