"""How long the ``capmc`` command takes for the whole machine, its own start included, as a scheduler runs it.

    .venv/bin/python bench/capmc.py --nodes 20000 --json

A controller with a simulated fleet that is ready and measured serves behind nginx; the command goes through TLS with a
client certificate of its own, and what it prints is checked. Figures are the best of ``--rounds``; Slurm waits for 5 s.
``start_s`` is the command alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from controlled import GOAL, controlled, describe, in_process
from measure import Figures, arguments, child, main, peak_mb, say, scratch, show, wait_until

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.front_door import front_door

CODE = "from strata.capmc_cli.capmc import main; main()"


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", help=argparse.SUPPRESS)  # directory: be the service
    given = parser.parse_args()
    if given.serve:
        asyncio.run(_serve(Path(given.serve), given.nodes))
        return
    with scratch() as directory:
        say(f"starting a controller of {given.nodes:,} nodes", quiet=given.json)
        command = [sys.executable, __file__, "--nodes", str(given.nodes), "--serve", str(directory)]
        with child(command) as service:
            wait_until("the service", (directory / "ready").exists, service, limit=600)
            show(_measure(given, directory, service), as_json=given.json)


def _measure(given: argparse.Namespace, directory: Path, service: subprocess.Popen[bytes]) -> Figures:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    environment |= {
        "OS_KEY": str(directory / "client.key"),
        "OS_CERT": str(directory / "client.crt"),
        "OS_CACERT": str(directory / "ca" / "ca.crt"),
        "OS_SERVICE_URL": (directory / "ready").read_text(),
    }

    def best(*arguments: str) -> tuple[float, Any, int]:
        taken = []
        for _ in range(given.rounds):
            begun = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", CODE, *arguments], env=environment, capture_output=True, check=True
            )
            taken.append(time.perf_counter() - begun)
        if done.stderr:
            raise SystemExit(f"not silent: {done.stderr[:300]!r}")
        reply = {} if arguments[0] == "--help" else json.loads(done.stdout)
        if reply.get("e"):
            raise SystemExit(f"{arguments[0]}: {done.stdout[:300]!r}")
        return min(taken), reply, len(done.stdout)

    start, _, _ = best("--help")
    status, found, size = best("node_status")
    _check("node_status", len(found["ready"]), given.nodes)
    say(f"node_status {status:.2f} s, {size:,} bytes", quiet=given.json)
    caps, found, size = best("get_power_cap")
    computes = sum("controls" in one for one in found["nids"])
    if computes < 0.9 * given.nodes:
        raise SystemExit(f"get_power_cap: only {computes} nodes have a cap to tell")
    say(f"get_power_cap {caps:.2f} s, {size:,} bytes", quiet=given.json)
    can, found, _ = best("get_power_cap_capabilities")
    _check("capabilities", sum(len(group["nids"]) for group in found["groups"]), computes)
    counters, found, size = best("get_node_energy_counter", "--nids", f"1-{given.nodes}")
    _check("counters", found["nid_count"], given.nodes)
    return {
        "nodes": given.nodes,
        "start_s": start,
        "node_status_s": status,
        "get_power_cap_s": caps,
        "capabilities_s": can,
        "energy_counter_s": counters,
        "peak_rss_mb": peak_mb(service.pid),
    }


def _check(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise SystemExit(f"{what}: {found} of {wanted} nodes")


class _NoBmcs:
    """In place of what sends caps: no BMC is asked in what is measured here."""

    async def read(self, *_: object) -> None:
        raise AssertionError("a BMC was asked")


async def _serve(directory: Path, count: int) -> None:
    """Serve until SIGTERM."""
    from strata.fleet.access.credentials import Authenticator
    from strata.power.capmc.service import CapmcService
    from strata.power.telemetry.columns import PowerColumns
    from support.rooms import api_services

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await describe(directory, count)
    nodes, drivers = in_process(count, 1)
    nodes.put(nodes.all, now=0.0, identity="issued", **GOAL)
    async with contextlib.AsyncExitStack() as parts:
        service = await parts.enter_async_context(controlled(directory, drivers))
        columns = PowerColumns()
        authenticator = Authenticator(service.controller.store, service.ledger)
        capmc = CapmcService(service, columns, _NoBmcs())  # type: ignore[arg-type]
        services = api_services(fleet=service, authenticator=authenticator, rooms={CapmcService: capmc})
        door = await parts.enter_async_context(front_door(services, directory))
        door.certificate("workload-manager", name="client")
        while service.view.fact_mask("personality", "active").sum() != count:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        uids = service.registry.uids[service.registry.alive]

        def measured() -> None:
            now = time.time()
            columns.put(uids, cap=np.where(uids % 3, 0.0, 350.0), cap_time=now, least=200.0, most=425.0, supply=425.0)
            columns.put(uids, energy=uids * 1000.0, energy_time=now, power=300.0, power_time=now)

        measured()
        (directory / "ready.new").write_text(door.url)
        (directory / "ready.new").rename(directory / "ready")
        while not stop.is_set():
            measured()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 10)


if __name__ == "__main__":
    main(run)
