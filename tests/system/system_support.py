"""The whole of Strata as processes: a simulator, controllers, the command line. Every process that is started here is
ended here, by its id."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strata.cli.client import Client
from strata.cli.transport import Credentials, Endpoint
from strata.core.errors import StrataError
from strata.virtual.bmc.server import SIMULATED_ACCOUNT

READY = {
    "power": ["on"],
    "os": ["up"],
    "identity": ["issued"],
    "image": ["v1"],
    "personality": ["active"],
    "config": ["r1"],
    "workload": ["in"],
}
"""What a working node is: seven mutations from off."""

STEPS = ("power-on", "boot", "enrol", "load-image", "start-personality", "configure", "join-workload")

QUICK: dict[str, float] = dict.fromkeys(STEPS, 30.0)
"""Timeouts for nodes that are as quick as the simulated ones. A step that was written down before a crash and perhaps
never sent is waited for this long, so it bounds how long a test takes."""


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def strata(state: Path, *arguments: object, limit: float = 180.0, **environment: str) -> Done:
    """Run ``strata ARGUMENTS`` for the service whose state is in ``state``."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
    done = subprocess.run(
        [sys.executable, "-m", "strata.cli", *map(str, arguments)],
        env={**base, "STRATA_STATE": str(state), **environment},
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def connect(state: Path) -> Client:
    """Speaks to the service whose state is in ``state``, as its administrator."""
    return Client(Endpoint(f"unix:{state / 'admin.sock'}"), Credentials(), timeout=120.0)


def eventually(what: str, holds: Callable[[], Any], limit: float, every: float = 0.1) -> Any:
    """Ask until the answer is true, and return it; an answer that cannot be had is no."""
    deadline = time.monotonic() + limit
    while True:
        with contextlib.suppress(StrataError, OSError):
            if found := holds():
                return found
        if time.monotonic() > deadline:
            pytest.fail(f"not within {limit:g} s: {what}")
        time.sleep(every)


def nodeset(first: int, last: int) -> str:
    """Simulated nodes by number."""
    return f"n[{first:05d}-{last:05d}]"


def book_of(simulator: str) -> dict[str, Any]:
    """What the nodes of the simulator at an address were told, as they know it."""
    request = urllib.request.Request(f"{simulator}/fleet/effects", headers={"Authorization": SIMULATED_ACCOUNT.basic})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)  # type: ignore[no-any-return]


class Program:
    """One process with its log."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, *arguments: str) -> None:
        """Start it."""
        assert not self.running
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def stop(self) -> None:
        """Ask it to end; make it end if it does not."""
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self) -> str:
        """Its last words."""
        return self.log.read_text(errors="replace")[-3000:]


class Simulator(Program):
    """A simulated fleet behind its own address."""

    def __init__(self, directory: Path, nodes: int, scale: float, seed: int = 1) -> None:
        super().__init__(directory / "simulator.log")
        self.nodes = nodes
        arguments = ("--nodes", str(nodes), "--scale", str(scale), "--seed", str(seed))
        self.launch("strata.virtual.bmc.server", *arguments)
        self.address: str = eventually("the simulator listens", self._said, 60.0)

    def _said(self) -> str:
        assert self.running, self.tail()
        line = self.log.read_text().partition("\n")[0]
        return str(json.loads(line)["address"]) if line else ""

    def effects(self) -> dict[str, Any]:
        """What the nodes were told, as they know it."""
        return book_of(self.address)

    def check_once(self, *, others: int, **counts: int) -> None:
        """No node took a step twice; ``others`` nodes took each step to ready, other numbers are in ``counts``."""
        book = self.effects()
        assert book["twice"] == []
        assert book["repeated"] == {}
        assert book["idle"] == 0
        assert book["counts"] == {**dict.fromkeys(STEPS, others), **counts}


class Controller(Program):
    """One ``strata serve``."""

    def __init__(
        self,
        directory: Path,
        name: str,
        simulator: Simulator | None,
        *,
        store: str = "",
        tls: bool = False,
        timeouts: Mapping[str, float] | None = None,
        more: Sequence[str] = (),
    ) -> None:
        super().__init__(directory / f"{name}.log")
        self.name = name
        self.state = directory / name
        self._arguments = ["serve", "--state-dir", str(self.state), "--controller-id", name, "--log-format", "text"]
        if simulator is not None:
            self._arguments += ["--simulator", simulator.address, "--simulated", str(simulator.nodes)]
        self._arguments += ["--listen", "127.0.0.1:0"] if tls else ["--no-tls"]
        self._arguments += ["--store", store] if store else []
        self._arguments += more
        if timeouts:
            site = directory / "site.yaml"
            site.write_text(json.dumps({"timeouts": timeouts}))
            self._arguments += ["--model", str(site)]
        self._client: Client | None = None

    def start(self) -> None:
        """Start it, without waiting."""
        self.launch("strata.cli", *self._arguments)

    def wait_ready(self, limit: float = 120.0) -> None:
        """Until it serves."""

        def ready() -> bool:
            assert self.running, self.tail()
            return bool(self.client.get("/v1/ready"))

        eventually(f"{self.name} is ready", ready, limit, every=0.05)

    @property
    def client(self) -> Client:
        """Speaks to it as its administrator."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    def connect(self) -> Client:
        """Another connection."""
        return connect(self.state)

    def stop(self) -> None:
        """Let go of it, and end it."""
        self.client.close()
        super().stop()

    def status(self) -> dict[str, Any]:
        """The fleet as this controller sees it."""
        return self.client.get("/v1/status")  # type: ignore[no-any-return]

    def leads(self) -> dict[str, int]:
        """Leader → how many parts, as this controller sees it."""
        found: dict[str, int] = {}
        for shard in self.status()["shards"]:
            found[shard["leader"]] = found.get(shard["leader"], 0) + 1
        return found

    def held_back(self) -> int:
        """Nodes that it was about to act on and did not, or that refused, because it no longer led."""
        connection = self.client.endpoint.connect(Credentials(), 30.0)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        late = [line for line in lines if 'outcome="fenced"' in line or 'outcome="withheld"' in line]
        return sum(int(float(line.rpartition(" ")[2])) for line in late)

    def want_ready(self, select: str = "*") -> None:
        """Desire that the selected nodes are ready."""
        document = {"name": "ready", "select": select, "set": READY}
        body = {"documents": [document], "prune": False, "dry_run": False}
        self.client.request("POST", "/v1/apply", body=body)

    def wait_all(self, state: str, count: int, limit: float) -> None:
        """Until ``count`` nodes are in ``state``."""
        last: dict[str, int] = {}

        def there() -> bool:
            last.update(self.status()["by_state"])
            return last.get(state, 0) == count

        try:
            eventually(f"{count} nodes {state}", there, limit)
        except BaseException:
            print(f"{self.name}: {last}\n{self._stories(state)}\n{self.tail()}")
            raise

    def _stories(self, state: str) -> str:
        """Why some nodes are not there."""
        found = []
        with contextlib.suppress(StrataError):
            for other in ("faulted", "waiting", "converging", "unknown", "unreachable", "held"):
                if other != state:
                    page = self.client.get("/v1/nodes", {"state": other, "limit": 2, "fields": "name"})
                    found += [str(self.client.get(f"/v1/nodes/{item['name']}/why")) for item in page["items"]]
        return "\n".join(found)


class World:
    """A short directory, and everything that was started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._programs: list[Program] = []

    def simulator(self, nodes: int, scale: float) -> Simulator:
        """Start a simulator."""
        found = Simulator(self.directory, nodes, scale)
        self._programs.append(found)
        return found

    def controller(self, name: str, simulator: Simulator | None, **more: Any) -> Controller:
        """A controller, not started yet."""
        found = Controller(self.directory, name, simulator, **more)
        self._programs.append(found)
        return found

    def stop(self) -> None:
        """End everything, controllers first."""
        for program in reversed(self._programs):
            program.stop()


@contextlib.contextmanager
def world() -> Iterator[World]:
    """Somewhere with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sys-") as name:
        found = World(Path(name))
        try:
            yield found
        finally:
            found.stop()
