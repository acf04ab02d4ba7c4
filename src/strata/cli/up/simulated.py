"""The simulator behind ``strata up --simulated``: a process of its own, whose nodes outlive the controller."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from strata.cli.converge import SEEN_AGAIN, wait
from strata.cli.session import Session
from strata.cli.times import span
from strata.cli.up.background import SIMULATOR, START_TIMEOUT, must_run, start
from strata.core.errors import Unavailable
from strata.core.host import process as ps

if TYPE_CHECKING:
    from strata.cli.client import Client, Json

GOAL = {
    "power": ["on"],
    "os": ["up"],
    "identity": ["issued"],
    "image": ["demo-1"],
    "personality": ["active"],
    "config": ["demo-1"],
    "workload": ["in"],
}
"""What ``up`` wants of every simulated node."""

FEEDERS = ("pdu-outlet", "chassis")
"""Roles of what feeds nodes: it has power, and nothing else can be wanted of it."""

DOCUMENT = "up"
SIMULATOR_OPTIONS = "simulator.options"
"""How the simulator was started, its port included: one that died is started again at the same address."""
SIMULATOR_LOG = "simulator.log"

TRY = (
    "strata status",
    "strata node list --group-by state",
    "strata node why NODE",
    "strata node set NODE image=demo-2 --wait",
    "strata watch",
    "strata stop                            # all of it stands still until strata up",
)


class Kept(NamedTuple):
    """The simulated fleet that there is."""

    nodes: int
    feeds: bool


def kept(directory: Path) -> Kept | None:
    """What an earlier ``up`` simulates here; None: nothing."""
    try:
        options = json.loads((directory / SIMULATOR_OPTIONS).read_text(encoding="utf-8"))
        return Kept(int(options[options.index("--nodes") + 1]), "--pdus" in options)
    except (OSError, ValueError, IndexError):
        return None


def follow(session: Session, client: Client, timeout: float) -> dict[str, int]:
    """Follow the nodes to what is wanted of them; the last counts by state."""
    return wait(client, "*", session.out, timeout=timeout, patience=SEEN_AGAIN)


def bring_to_ready(session: Session, client: Client, timeout: float, *, feeds: bool) -> dict[str, int]:
    """Want every node ready, and follow them there; the last counts by state."""
    roles = FEEDERS if feeds else ()
    nodes = {"name": DOCUMENT, "select": " ".join(f"!role:{role}" for role in roles) or "*", "set": GOAL}
    feeders = [{"name": f"{DOCUMENT}-{role}", "select": f"role:{role}", "set": {"power": ["on"]}} for role in roles]
    body: Json = {"documents": [nodes, *feeders], "prune": False, "dry_run": False}
    applied = client.post("/v1/apply", body)
    revision = int(applied["revision"])
    return wait(client, "*", session.out, timeout=timeout, revision=revision, patience=SEEN_AGAIN)


def simulator(session: Session, directory: Path, options: list[str]) -> str:
    """Where the simulator answers. It is started unless it runs; one that ran before keeps its options."""
    log = directory / SIMULATOR_LOG
    running = ps.load(directory / SIMULATOR)
    if running is not None and running.alive:
        return address_in(log) or ""
    kept = directory / SIMULATOR_OPTIONS
    if kept.exists():
        session.out.note("the simulator was gone: its nodes start from off")
        options = json.loads(kept.read_text(encoding="utf-8"))
    log.unlink(missing_ok=True)  # the address is its first line
    running = start(directory / SIMULATOR, log, ps.command("strata.virtual.bmc.server", *options))
    deadline = time.monotonic() + START_TIMEOUT
    while (address := address_in(log)) is None:
        must_run(running, "simulator", log)
        if time.monotonic() > deadline:
            raise Unavailable(f"no simulator after {span(START_TIMEOUT)}", where=str(log), hint="strata stop stops it")
        time.sleep(0.02)
    if not kept.exists():
        port = address.rpartition(":")[2]
        kept.write_text(json.dumps([*options, "--port", port]) + "\n", encoding="utf-8")
    return address


def address_in(log: Path) -> str | None:
    """What the simulator said when it began to listen."""
    try:
        return str(json.loads(log.read_text(encoding="utf-8").partition("\n")[0])["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def where(directory: Path) -> list[str]:
    """What to say about where the nodes are."""
    found = address_in(directory / SIMULATOR_LOG)
    return [f"nodes   {found}/bmc/NAME/redfish/v1 (the simulator)"] if found else []
