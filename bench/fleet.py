"""What ``strata up --simulated`` runs, whole, over sockets: how soon a fleet is ready, what people feel meanwhile.

    .venv/bin/python bench/fleet.py --nodes 20000 --json
    (ulimit -n 20000; .venv/bin/python bench/fleet.py --nodes 20000 --json)

Service, simulator and front door are processes of their own on this machine. While the fleet comes up, the status is
asked for again and again, each time over a new connection, and once the fleet is frozen and thawed. ``idle_cores`` is
the service's own (with its front door) over half a minute that begins a minute after the last node was ready.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from load import Door, ask, request
from measure import Figures, arguments, child, cpu_seconds, family, main, peak_mb, percentile, say, scratch, show

from strata.cli.up.background import SERVICE, SIMULATOR
from strata.core.host import process as ps

PAUSE = 0.1
"""Seconds between two questions."""
FREEZE_AT = 0.1
"""The part of the fleet that is ready when it is frozen for a moment."""


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time-scale", type=float, default=20.0, help="how fast simulated nodes boot")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds between ready and idle")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds for which it is watched then")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which to give up")
    given = parser.parse_args()
    if given.nodes < 10:
        parser.error("--nodes: at least 10")
    with scratch() as directory:
        show(_measure(given, directory / "s"), as_json=given.json)


def _measure(given: argparse.Namespace, state: Path) -> Figures:
    with _brought_up(given, state) as (up, begun):
        person = Person(state, given.nodes, quiet=given.json)
        person.start()
        code = up.wait()
        took = time.perf_counter() - begun
        person.end()
        if code:
            raise SystemExit(f"strata up ended with code {code}: {person.seen}")
        if not person.froze:
            raise SystemExit("the fleet was never frozen: it was ready too soon")
        service, simulator = (ps.load(state / name) for name in (SERVICE, SIMULATOR))
        assert service is not None and simulator is not None
        listed = _timed("node", "list", "--json", state=state)
        say(f"ready after {took:.0f} s; idle now", quiet=given.json)
        time.sleep(max(0.0, given.settle - listed))
        pids, used, since = list(family(service.pid)), 0.0, time.perf_counter()
        used = sum(map(cpu_seconds, pids))
        time.sleep(given.idle)
        idle = (sum(map(cpu_seconds, pids)) - used) / (time.perf_counter() - since)
        return {
            "nodes": given.nodes,
            "up_s": took,
            "rss_mb": peak_mb(service.pid),
            "files": person.files,
            "files_allowed": _allowed(service.pid),
            "idle_cores": idle,
            "status_p50_s": percentile(person.times, 0.5),
            "status_p99_s": percentile(person.times, 0.99),
            "status_max_s": person.times[-1],
            "freeze_s": person.froze,
            "list_json_s": listed,
            "service_cpu_s": cpu_seconds(service.pid),
            "simulator_cpu_s": cpu_seconds(simulator.pid),
            "simulator_rss_mb": peak_mb(simulator.pid),
            "seed": given.seed,
        }


@contextlib.contextmanager
def _brought_up(given: argparse.Namespace, state: Path) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """``strata up`` at work, and when it began; all that it made is gone afterwards."""
    options = ["--simulated", "--nodes", str(given.nodes), "--seed", str(given.seed), "--state-dir", str(state)]
    options += ["--time-scale", str(given.time_scale), "--timeout", f"{given.limit:.0f}s"]
    begun = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL if given.json else None}
    try:
        with child([sys.executable, "-m", "strata.cli", "up", *options], **quiet) as up:
            yield up, begun
    finally:
        _timed("down", "--delete", "--state-dir", str(state))


class Person(threading.Thread):
    """Asks for the status from the first moment until it is told to end, and freezes the fleet once."""

    def __init__(self, state: Path, nodes: int, *, quiet: bool) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        """What each question took, in order of that once it has ended."""
        self.froze = 0.0
        self.files = 0
        """The most that the service had open."""
        self.seen: dict[str, int] = {}
        self._state = state
        self._nodes = nodes
        self._quiet = quiet
        self._over = threading.Event()

    def end(self) -> None:
        """No more questions."""
        self._over.set()
        self.join()
        self.times.sort()

    def run(self) -> None:
        door = Door(str(self._state / "admin.sock"))
        while not self._over.wait(PAUSE):
            begun = time.perf_counter()
            try:
                answer = ask(door, request("GET", "/v1/status"))
            except (FileNotFoundError, ConnectionRefusedError):
                continue  # it is not there yet
            self.times.append(time.perf_counter() - begun)
            self.seen = json.loads(answer.body)["by_state"]
            ready = self.seen.get("ready", 0)
            service = ps.load(self._state / SERVICE)
            if service is not None:
                self.files = max(self.files, len(os.listdir(f"/proc/{service.pid}/fd")))  # noqa: PTH208
            if not self.froze and ready >= FREEZE_AT * self._nodes:
                self._freeze(door)
                say(f"frozen and thawed in {self.froze:.2f} s", quiet=self._quiet)

    def _freeze(self, door: Door) -> None:
        begun = time.perf_counter()
        body = json.dumps({"scope": "fleet", "reason": "bench"}).encode()
        answer = ask(door, request("POST", "/v1/freezes", body=body))
        self.froze = time.perf_counter() - begun
        if answer.status >= 300:
            raise SystemExit(f"the fleet was not frozen: {answer}")
        ask(door, request("DELETE", "/v1/freezes/fleet"))


def _timed(*command: str, state: Path | None = None) -> float:
    """How long a command of the command line takes, from its start to its end."""
    environment = {**os.environ, **({"STRATA_STATE": str(state)} if state is not None else {})}
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "strata.cli", *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if done.returncode:
        raise SystemExit(f"strata {' '.join(command)}: {done.stderr.decode(errors='replace')[-500:]}")
    return time.perf_counter() - begun


def _allowed(pid: int) -> int:
    """Files that a process may open."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            return int(line.split()[3])
    return 0


if __name__ == "__main__":
    main(run)
