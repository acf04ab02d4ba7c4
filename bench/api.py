"""How fast the API answers, next to an nginx that serves static files of the same sizes in the same run.

    .venv/bin/python bench/api.py --json

The whole daemon runs in a process of its own with a simulated fleet that is ready and being watched over. Doors: the
local socket, and TLS through the front door (nginx) with a bearer token. nginx for comparison has one worker and the
same doors; ``one_node_ratio`` and ``list_100_ratio`` are our rates over its. ``cpu_us``: processor time of the server
(and its front door) for one request, which no client can distort.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from controlled import GOAL, simulator
from load import Door, Load, ask, load, request
from measure import Figures, arguments, child, cpu_seconds, family, main, peak_mb, say, scratch, show, wait_until

KINDS = {"one_node": "/v1/nodes/n00500", "list_100": "/v1/nodes?select=%40gpu&limit=100"}
"""What is measured: one node, and a filtered list of up to a hundred."""


class Contestant(NamedTuple):
    """A server under load."""

    doors: dict[str, Door]
    pids: tuple[int, ...]
    """Its processes, of which the time is counted."""


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each phase; there are eight")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)  # directory, simulator: be the daemon
    given = parser.parse_args()
    if given.serve:
        _serve(Path(given.serve[0]), given.serve[1], given.nodes)
        return
    if given.nodes < 500:
        parser.error("--nodes: at least 500")
    with scratch() as directory, simulator(given.nodes, given.seed) as (address, _):
        command = [sys.executable, __file__, "--nodes", str(given.nodes), "--serve", str(directory / "s"), address]
        say(f"starting the daemon with {given.nodes:,} nodes", quiet=given.json)
        with child(command) as daemon:
            show(_measure(given, directory, daemon), as_json=given.json)


def _serve(directory: Path, address: str, nodes: int) -> None:
    """What ``strata serve`` does, with a simulated fleet that takes no time to boot."""
    from strata.daemon import running
    from strata.daemon.settings import Settings, SimulatedSettings
    from strata.fleet.settings import ListenSettings, LogSettings

    running.run(
        Settings(
            state_dir=directory,
            controller_id="bench",
            listen=ListenSettings(port=0),
            simulated=SimulatedSettings(nodes=nodes, address=address),
            logs=LogSettings(level="error"),
        )
    )


def _measure(given: argparse.Namespace, directory: Path, daemon: subprocess.Popen[bytes]) -> Figures:
    state = directory / "s"
    admin = Door(str(state / "admin.sock"))
    wait_until("the daemon", lambda: (state / "url").exists() and _ready(admin), daemon)
    _bring_to_ready(admin, given.nodes)
    body = json.dumps({"role": "viewer", "ttl": 3600}).encode()
    token = json.loads(ask(admin, request("POST", "/v1/auth/tokens", body=body)).body)["token"]
    tls = ssl.create_default_context(cafile=state / "ca" / "ca.crt")
    port = int((state / "url").read_text().strip().rpartition(":")[2])
    strata = Contestant({"": admin, "tls_": Door(("localhost", port), tls)}, tuple(family(daemon.pid)))
    bodies = {kind: ask(admin, request("GET", path)).body for kind, path in KINDS.items()}
    figures: Figures = {"nodes": given.nodes, "connections": given.connections, "seconds_per_phase": given.seconds}
    figures |= {f"{kind}_bytes": len(body) for kind, body in bodies.items()}
    with _nginx(directory / "n", bodies, state / "ca", tls) as nginx:
        for door in ("", "tls_"):
            for kind, path in KINDS.items():
                say(f"{door}{kind}", quiet=given.json)
                ours = _phase(given, strata, door, request("GET", path, token=token if door else ""))
                theirs = _phase(given, nginx, door, request("GET", f"/{kind}"))
                figures |= _figures(f"{door}{kind}", ours, theirs)
    figures["peak_rss_mb"] = peak_mb(daemon.pid)
    return figures


def _phase(given: argparse.Namespace, who: Contestant, door: str, wire: bytes) -> tuple[Load, float]:
    """Load, and the server's processor seconds per request."""
    used = sum(map(cpu_seconds, who.pids))
    begun = time.perf_counter()
    found = load(who.doors[door], wire, connections=given.connections, seconds=given.seconds)
    whole = (time.perf_counter() - begun) / found.seconds  # warming up is in the processor time
    return found, (sum(map(cpu_seconds, who.pids)) - used) / (found.requests * whole)


def _figures(name: str, ours: tuple[Load, float], theirs: tuple[Load, float]) -> Figures:
    found: Figures = {}
    for who, (measured, cpu) in ((name, ours), (f"nginx_{name}", theirs)):
        found[f"{who}_rps"] = measured.rate
        found[f"{who}_p50_ms"] = measured.p50_ms
        found[f"{who}_p99_ms"] = measured.p99_ms
        found[f"{who}_cpu_us"] = cpu * 1e6
        found[f"{who}_client_cores"] = measured.client_cores
    found[f"{name}_ratio"] = ours[0].rate / theirs[0].rate
    found[f"{name}_p99_ratio"] = ours[0].p99_ms / theirs[0].p99_ms
    return found


def _ready(door: Door) -> bool:
    with contextlib.suppress(OSError):
        return ask(door, request("GET", "/v1/ready")).status == 200
    return False


def _bring_to_ready(door: Door, count: int) -> None:
    document = {"name": "bench", "select": "*", "set": {name: [value] for name, value in GOAL.items()}}
    body = json.dumps({"documents": [document], "prune": False, "dry_run": False}).encode()
    answer = ask(door, request("POST", "/v1/apply", body=body))
    if answer.status != 200:
        raise SystemExit(f"the desire was not accepted: {answer}")
    deadline = time.monotonic() + 120
    while json.loads(ask(door, request("GET", "/v1/status")).body)["by_state"].get("ready", 0) < count:
        if time.monotonic() > deadline:
            raise SystemExit("the fleet is not ready after 120 s")
        time.sleep(0.1)


@contextlib.contextmanager
def _nginx(directory: Path, bodies: dict[str, bytes], ca: Path, tls: ssl.SSLContext) -> Iterator[Contestant]:
    """nginx with one worker that serves files of the same sizes, on a local socket and with TLS."""
    binary = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if binary is None:
        raise SystemExit("nginx is not installed; as root: apt-get install nginx-light")
    (directory / "files").mkdir(parents=True)
    for name, body in bodies.items():
        (directory / "files" / name).write_bytes(b"x" * len(body))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = directory / "nginx.sock"
    (directory / "nginx.conf").write_text(_config(directory, path, port, ca))
    with child([binary, "-p", str(directory), "-c", "nginx.conf", "-e", str(directory / "log")]) as process:
        doors = {"": Door(str(path)), "tls_": Door(("localhost", port), tls)}

        def up() -> bool:
            with contextlib.suppress(OSError):
                return all(ask(door, request("GET", "/list_100")).status == 200 for door in doors.values())
            return False

        wait_until("nginx", up, process)
        yield Contestant(doors, tuple(family(process.pid)))


def _config(directory: Path, path: Path, port: int, ca: Path) -> str:
    temporary: Sequence[str] = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    scratch_paths = "\n".join(f"  {kind}_temp_path {directory}/{kind};" for kind in temporary)
    user = "user root root;" if os.geteuid() == 0 else ""
    return f"""daemon off;
{user}
worker_processes 1;
pid {directory}/pid;
events {{ worker_connections 1024; }}
http {{
{scratch_paths}
  access_log off;
  sendfile on;
  tcp_nopush on;
  open_file_cache max=100;
  keepalive_requests 100000000;
  default_type application/json;
  server {{
    listen unix:{path};
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {ca}/server.crt;
    ssl_certificate_key {ca}/server.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    root {directory}/files;
  }}
}}
"""


if __name__ == "__main__":
    main(run)
