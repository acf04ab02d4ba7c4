"""The site's own checks of a wave: commands that the configuration file names."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.printable import clean
from strata.fleet.drivers.subprocesses import run_command

LIMIT = 600.0
"""Seconds that a check may take."""
_MOST_OUTPUT = 1 << 20
_SHOWN = 300


async def run_check(command: Sequence[str], rollout: str, wave: int, nodes: str) -> str:
    """Why the wave is not good; empty: it is. The command gets the rollout, the wave's number and its nodes (folded)
    as STRATA_ROLLOUT, STRATA_WAVE and STRATA_NODES, and the nodes also on its standard input."""
    # A long nodeset would not fit into the environment; standard input has no such limit.
    env = {"STRATA_ROLLOUT": rollout, "STRATA_WAVE": str(wave), "STRATA_NODES": nodes[:100_000]}
    ended = await run_command(command, f"{nodes}\n".encode(), LIMIT, _MOST_OUTPUT, env)
    if isinstance(ended, str):
        return ended
    if ended.status == 0:
        return ""
    said = ended.errors or clean(ended.output.decode(errors="replace")).strip()
    return f"status {ended.status}: {said[-_SHOWN:] or 'it gives no reason'}"
