"""A real etcd cluster on the loopback interface, for tests: start it, kill, pause and restart members.

Every member is a process that this class started and ends by its id.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from strata.api.nginx import free_port

START_LIMIT = 60.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, each another."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port("127.0.0.1"))
    return [*found]


class EtcdCluster:
    """``size`` members with their data under ``directory``."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        ports = free_ports(2 * size)
        self.names = [f"m{i}" for i in range(size)]
        self._client = dict(zip(self.names, ports[:size], strict=True))
        self._peer = dict(zip(self.names, ports[size:], strict=True))
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._paused: set[str] = set()

    @staticmethod
    def available() -> bool:
        """Whether etcd is installed (Debian: etcd-server)."""
        return shutil.which("etcd") is not None

    @property
    def endpoints(self) -> list[str]:
        """``host:port`` of each member, for clients."""
        return [f"127.0.0.1:{self._client[name]}" for name in self.names]

    def endpoint(self, name: str) -> str:
        """``host:port`` of one member."""
        return f"127.0.0.1:{self._client[name]}"

    def url(self, prefix: str) -> str:
        """The address of a store under ``prefix``."""
        return f"etcd://{','.join(self.endpoints)}/{prefix}"

    def start(self) -> None:
        """Start all members and wait until they agree on a leader."""
        for name in self.names:
            self._spawn(name)
        for name in self.names:
            self._wait_healthy(name)

    def stop(self) -> None:
        """End all members."""
        for name in self.names:
            self.kill(name)

    def kill(self, name: str) -> None:
        """End one member at once (SIGKILL); its data stay."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()
        self._paused.discard(name)

    def restart(self, name: str) -> None:
        """Start a member that was killed and wait until it serves."""
        self._spawn(name)
        self._wait_healthy(name)

    def pause(self, name: str) -> None:
        """Stop a member in its tracks (SIGSTOP): connections stay open, nothing answers."""
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        self._paused.add(name)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # sent is not yet obeyed

    def resume(self, name: str) -> None:
        """Let a paused member go on (SIGCONT)."""
        self._processes[name].send_signal(signal.SIGCONT)
        self._paused.discard(name)
        self._wait_healthy(name)

    def heal(self) -> None:
        """Bring every member back."""
        for name in list(self._paused):
            self._processes[name].send_signal(signal.SIGCONT)
            self._paused.discard(name)
        for name in self.names:
            if name not in self._processes:
                self._spawn(name)
        for name in self.names:
            self._wait_healthy(name)

    def leader(self) -> str:
        """The member that leads now."""
        for name in self.names:
            if name in self._processes and name not in self._paused:
                status = self._ask(name, "/v3/maintenance/status")
                if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                    return name
        raise RuntimeError("the cluster has no leader")

    def _spawn(self, name: str) -> None:
        data = self._directory / name
        exists = data.exists()
        client, peer = f"http://127.0.0.1:{self._client[name]}", f"http://127.0.0.1:{self._peer[name]}"
        log = (self._directory / f"{name}.log").open("ab")
        with log:
            self._processes[name] = subprocess.Popen(
                [
                    "etcd",
                    f"--name={name}",
                    f"--data-dir={data}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    "--initial-cluster=" + ",".join(f"{n}=http://127.0.0.1:{p}" for n, p in self._peer.items()),
                    f"--initial-cluster-state={'existing' if exists else 'new'}",
                    "--heartbeat-interval=100",
                    "--election-timeout=1000",
                    "--logger=zap",
                    "--log-level=error",
                ],
                stdout=log,
                stderr=log,
                # The Go runtime would otherwise start a thread per core for each member.
                env={**os.environ, "GOMAXPROCS": "1", "ETCD_UNSUPPORTED_ARCH": ""},
            )

    def _wait_healthy(self, name: str) -> None:
        deadline = time.monotonic() + START_LIMIT
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
                request = urllib.request.Request(f"http://127.0.0.1:{self._client[name]}/health")
                with urllib.request.urlopen(request, timeout=10) as reply:
                    if json.load(reply).get("health") == "true":
                        return
            if self._processes[name].poll() is not None:
                raise RuntimeError(f"etcd member {name} ended: see {self._directory / name}.log")
            time.sleep(0.05)
        raise RuntimeError(f"etcd member {name} is not healthy after {START_LIMIT:.0f} s")

    def _ask(self, name: str, path: str) -> dict[str, dict[str, str] | str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self._client[name]}{path}", data=b"{}", method="POST")
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)  # type: ignore[no-any-return]
