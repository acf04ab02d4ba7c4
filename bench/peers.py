"""OpenStack Ironic and Strata side by side: the same simulated BMCs, the same client, one after the other.

    .venv/bin/python bench/peers.py --json
    .venv/bin/python bench/peers.py --nodes 500 --json

Ironic comes from PyPI in the versions of ``ironic.txt``, in a virtual environment under ``~/.cache/strata``: API and
conductor in one process (its own ``ironic`` command, noauth), hardware type ``redfish``, PostgreSQL on a local socket
behind it. Strata is ``strata serve hardware`` on SQLite; its API is asked through its front door, with TLS and a token,
and Ironic's by plain HTTP with neither. Each starts empty, and is alone while it is measured. Simulated BMCs that
switch on by ``ForceOn`` only are left out: Ironic does not know how.

``enrol_s``: from the first request to when every node is known with the power that its BMC says (in Ironic:
``manageable``). ``power_on_s``: from the request that all be on (Ironic: one for each node) to when each is known to
be. ``get_p50_ms``: one node, asked for over and over by one client; ``get_per_s``: by several. ``memory_mb``: of all
its processes, the database's too; what they share is counted once. Ratios: Ironic's over Strata's, or for rates
Strata's over Ironic's, so that more than 1 is to Strata's favour.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import aiohttp
from load import Door, load, request
from measure import Figures, arguments, child, family, main, say, scratch, show, wait_until

from strata.virtual.bmc.server import FIRST_ADDRESS, SIMULATED_ACCOUNT
from strata.virtual.fleet.names import node_names

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.postgres import postgres

VERSIONS = Path(__file__).with_name("ironic.txt")
CLIENTS = 8
"""Requests under way at one time."""
LIMIT = 900.0
"""Seconds for each phase: whoever takes longer is not measured but broken."""
_LOOK = 0.2
_MICROVERSION = {"X-OpenStack-Ironic-API-Version": "1.81"}


class Bmc(NamedTuple):
    """A node's name, and where its BMC answers."""

    node: str
    address: str


class Manager(Protocol):
    """One of the two, as far as it is measured."""

    async def enrol(self, http: aiohttp.ClientSession, bmcs: Sequence[Bmc]) -> None:
        """Ask for all nodes to be looked after."""

    async def power_on(self, http: aiohttp.ClientSession, bmcs: Sequence[Bmc]) -> None:
        """Ask for all of them to be switched on."""

    async def power(self, http: aiohttp.ClientSession) -> list[str]:
        """What it knows of the power of each node that it looks after: on, off."""

    def read_one(self, bmc: Bmc) -> tuple[Door, bytes]:
        """Where and how one node is asked for."""

    def headers(self) -> dict[str, str]:
        """What every request has."""

    def pids(self) -> Sequence[int]:
        """Its processes."""


class Ironic:
    """OpenStack Ironic."""

    def __init__(self, port: int, pids: Callable[[], Sequence[int]]) -> None:
        self._base = f"http://127.0.0.1:{port}/v1"
        self._door = Door(("127.0.0.1", port))
        self.pids = pids
        self.headers = _MICROVERSION.copy

    async def enrol(self, http: aiohttp.ClientSession, bmcs: Sequence[Bmc]) -> None:
        async def one(bmc: Bmc) -> None:
            info = {
                "redfish_address": bmc.address,
                "redfish_system_id": "/redfish/v1/Systems/1",
                "redfish_username": SIMULATED_ACCOUNT.user,
                "redfish_password": SIMULATED_ACCOUNT.password,
            }
            await _send(
                http, "POST", f"{self._base}/nodes", {"name": bmc.node, "driver": "redfish", "driver_info": info}
            )
            await _send(http, "PUT", f"{self._base}/nodes/{bmc.node}/states/provision", {"target": "manage"})

        await _each(bmcs, one)

    async def power_on(self, http: aiohttp.ClientSession, bmcs: Sequence[Bmc]) -> None:
        async def one(bmc: Bmc) -> None:
            await _send(http, "PUT", f"{self._base}/nodes/{bmc.node}/states/power", {"target": "power on"})

        await _each(bmcs, one)

    async def power(self, http: aiohttp.ClientSession) -> list[str]:
        found, address = [], f"{self._base}/nodes?fields=provision_state,power_state,uuid&limit=1000"
        while address:
            page = await _send(http, "GET", address)
            found += [item for item in page["nodes"] if item["provision_state"] == "manageable"]
            address = page.get("next", "")
        return [item["power_state"].removeprefix("power ") for item in found if item["power_state"]]

    def read_one(self, bmc: Bmc) -> tuple[Door, bytes]:
        return self._door, request("GET", f"/v1/nodes/{bmc.node}").replace(
            b"\r\n\r\n", "".join(f"\r\n{name}: {value}" for name, value in _MICROVERSION.items()).encode() + b"\r\n\r\n"
        )


class Strata:
    """Strata, its hardware layer alone."""

    def __init__(self, state: Path, token: str, pids: Callable[[], Sequence[int]]) -> None:
        port = int((state / "url").read_text().strip().rpartition(":")[2])
        self.tls = ssl.create_default_context(cafile=state / "ca" / "ca.crt")
        self._base = f"https://localhost:{port}/v1"
        self._door = Door(("localhost", port), self.tls)
        self._token = token
        self.pids = pids

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    async def enrol(self, http: aiohttp.ClientSession, bmcs: Sequence[Bmc]) -> None:
        account = {"pattern": "default", "user": SIMULATED_ACCOUNT.user, "password": SIMULATED_ACCOUNT.password}
        await _send(http, "PUT", f"{self._base}/hardware/credentials", account)
        nodes = [{"name": bmc.node, "bmc": bmc.address} for bmc in bmcs]
        await _send(http, "POST", f"{self._base}/nodes", {"nodes": nodes})

    async def power_on(self, http: aiohttp.ClientSession, bmcs: Sequence[Bmc]) -> None:
        await _send(http, "POST", f"{self._base}/desires", {"select": "*", "set": {"power": ["on"]}})

    async def power(self, http: aiohttp.ClientSession) -> list[str]:
        page = await _send(http, "GET", f"{self._base}/nodes?fields=facts&limit=10000")
        told = [item["facts"].get("power", {}).get("value") for item in page["items"]]
        return [value for value in told if value in ("on", "off")]

    def read_one(self, bmc: Bmc) -> tuple[Door, bytes]:
        return self._door, request("GET", f"/v1/nodes/{bmc.node}", token=self._token)


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each phase of reading; there are two for each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("ironic", "strata"), help="one of them, without ratios")
    given = parser.parse_args()
    if not 1 <= given.nodes <= 10_000:
        parser.error("--nodes: 1 to 10,000")
    figures: Figures = {"nodes": given.nodes, "clients": CLIENTS}
    found: dict[str, dict[str, float]] = {}
    with scratch() as directory:
        if given.only != "strata":
            figures["ironic"] = _version()
            programs = _installed(quiet=given.json)
            with _bmcs(given) as bmcs, _ironic(directory / "i", programs, quiet=given.json) as ironic:
                found["ironic"] = _measured(ironic, bmcs, given)
        if given.only != "ironic":
            with _bmcs(given) as bmcs, _strata(directory / "s", quiet=given.json) as strata:
                found["strata"] = _measured(strata, bmcs, given)
    figures |= {f"{who}_{name}": value for who, values in found.items() for name, value in values.items()}
    if not given.only:
        figures |= _ratios(found["ironic"], found["strata"])
    show(figures, as_json=given.json)


def _ratios(ironic: Mapping[str, float], strata: Mapping[str, float]) -> Figures:
    """Always so that more is better for Strata."""
    return {
        f"{name}_ratio": strata[name] / ironic[name] if name.endswith("_per_s") else ironic[name] / strata[name]
        for name in strata
    }


def _measured(manager: Manager, bmcs: Sequence[Bmc], given: argparse.Namespace) -> dict[str, float]:
    figures = asyncio.run(_changed(manager, bmcs, quiet=given.json))
    door, wire = manager.read_one(bmcs[len(bmcs) // 2])
    say("  reading one node", quiet=given.json)
    figures["get_p50_ms"] = load(door, wire, connections=1, seconds=given.seconds).p50_ms
    figures["get_per_s"] = load(door, wire, connections=CLIENTS, seconds=given.seconds).rate
    figures["memory_mb"] = sum(map(_share_mb, manager.pids()))
    return figures


async def _changed(manager: Manager, bmcs: Sequence[Bmc], *, quiet: bool) -> dict[str, float]:
    """Enrol and switch on; how long each took."""
    tls = getattr(manager, "tls", True)
    connector = aiohttp.TCPConnector(limit=CLIENTS, ssl=tls)
    async with aiohttp.ClientSession(connector=connector, headers=manager.headers()) as http:
        say("  enrolling", quiet=quiet)
        enrolled = await _timed(manager.enrol(http, bmcs), lambda: manager.power(http), ["off"] * len(bmcs))
        say("  switching on", quiet=quiet)
        switched = await _timed(manager.power_on(http, bmcs), lambda: manager.power(http), ["on"] * len(bmcs))
    return {"enrol_s": enrolled, "power_on_s": switched}


async def _timed(asking: Awaitable[None], look: Callable[[], Awaitable[list[str]]], goal: list[str]) -> float:
    begun = time.perf_counter()
    await asking
    while (found := await look()) != goal:
        if time.perf_counter() - begun > LIMIT:
            raise SystemExit(f"after {LIMIT:.0f} s {len(found)} nodes are known, {found.count('on')} of them on")
        await asyncio.sleep(_LOOK)
    return time.perf_counter() - begun


async def _each(bmcs: Sequence[Bmc], do: Callable[[Bmc], Awaitable[None]]) -> None:
    gate = asyncio.Semaphore(CLIENTS)

    async def one(bmc: Bmc) -> None:
        async with gate:
            await do(bmc)

    await asyncio.gather(*map(one, bmcs))


async def _send(http: aiohttp.ClientSession, method: str, address: str, body: object = None) -> Any:
    """What it answers. Ironic says 409 while it looks at a node by itself: then it is asked again."""
    deadline = time.monotonic() + 60
    while True:
        async with http.request(method, address, json=body) as reply:
            text = await reply.text()
        if reply.status == 409 and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK)
            continue
        if reply.status >= 400:
            raise SystemExit(f"{method} {address}: {reply.status} {text[:500]}")
        return json.loads(text) if text else None


def _share_mb(pid: int) -> float:
    """Memory of a process in MiB, its part of what it shares; 0 of one that has ended meanwhile."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


@contextlib.contextmanager
def _bmcs(given: argparse.Namespace) -> Iterator[list[Bmc]]:
    """Simulated BMCs, each at an address of its own, of nodes that are off and take no time."""
    spare = 2 * given.nodes + 10
    command = [sys.executable, "-m", "strata.virtual.bmc.server", "--by", "address", "--scale", "0"]
    with child([*command, "--nodes", str(spare), "--seed", str(given.seed)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the simulator did not start")
        port = json.loads(line)["address"].rpartition(":")[2]
        names = node_names(spare)
        there = [Bmc(name, f"http://{FIRST_ADDRESS + i}:{port}") for i, name in enumerate(names)]
        plain = itertools.islice(filter(_switches_on, there), given.nodes)
        yield list(plain)


def _switches_on(bmc: Bmc) -> bool:
    """Whether it takes ``On``, and not only ``ForceOn``."""
    headers = {"Authorization": SIMULATED_ACCOUNT.basic}
    asked = urllib.request.Request(f"{bmc.address}/redfish/v1/Systems/1", headers=headers)
    with urllib.request.urlopen(asked, timeout=60) as reply:
        reset = json.load(reply)["Actions"]["#ComputerSystem.Reset"]
    return "On" in reset.get("ResetType@Redfish.AllowableValues", ["On"])


@contextlib.contextmanager
def _strata(state: Path, *, quiet: bool) -> Iterator[Strata]:
    say("Strata", quiet=quiet)
    command = [sys.executable, "-m", "strata.cli", "serve", "hardware", "--state-dir", str(state)]
    command += ["--listen", "127.0.0.1:0", "--log-level", "error"]
    with child(command) as process:
        wait_until("Strata", lambda: (state / "url").exists(), process, LIMIT)
        ask = [sys.executable, "-m", "strata.cli", "auth", "token", "create", "--role", "admin"]
        done = subprocess.run(
            ask, env={**os.environ, "STRATA_STATE": str(state)}, capture_output=True, text=True, check=True
        )
        yield Strata(state, done.stdout.split()[0], lambda: list(family(process.pid)))


@contextlib.contextmanager
def _ironic(directory: Path, programs: Path, *, quiet: bool) -> Iterator[Ironic]:
    say("Ironic", quiet=quiet)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with postgres() as database:
        host = dict(part.split("=") for part in database.address.split())["host"]
        config = directory / "ironic.conf"
        _configure(config, port, f"postgresql+psycopg2://strata@/postgres?host={host}")
        to = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        make = [str(programs / "ironic-dbsync"), "--config-file", str(config), "create_schema"]
        with child(make, **to) as making:
            if making.wait(LIMIT) != 0:
                raise SystemExit("Ironic could not make its tables")
        with child([str(programs / "ironic"), "--config-file", str(config)], **to) as process:

            def up() -> bool:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                    return True
                return False

            wait_until("Ironic", up, process, LIMIT)
            assert database.process is not None
            roots = (process.pid, database.process.pid)
            yield Ironic(port, lambda: [pid for root in roots for pid in family(root)])


def _configure(config: Path, port: int, database: str) -> None:
    home = config.parent
    folders = {name: home / name for name in ("state", "http", "tftp", "images", "tftp-master", "instance-master")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    redfish = ("power", "management", "bios", "inspect", "firmware", "raid", "vendor")
    none = {"boot": "redfish-virtual-media", "deploy": "direct", "network": "noop", "console": "no-console",
            "storage": "noop", "rescue": "no-rescue"}  # fmt: skip
    sections: Mapping[str, Mapping[str, object]] = {
        "DEFAULT": {
            "auth_strategy": "noauth",
            "rpc_transport": "none",
            "host": "bench",
            "state_path": folders["state"],
            "tempdir": home,
            "enabled_hardware_types": "redfish",
            **{f"enabled_{kind}_interfaces": "redfish" for kind in redfish},
            **{f"enabled_{kind}_interfaces": name for kind, name in none.items()},
        },
        "api": {"host_ip": "127.0.0.1", "port": port},
        "database": {"connection": database},
        "deploy": {"http_root": folders["http"]},
        "pxe": {
            "tftp_root": folders["tftp"],
            "images_path": folders["images"],
            "tftp_master_path": folders["tftp-master"],
            "instance_master_path": folders["instance-master"],
        },
        "oslo_concurrency": {"lock_path": home / "locks"},
    }
    config.write_text(
        "".join(
            f"[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in section.items())
            for name, section in sections.items()
        )
    )


def _version() -> str:
    return next(line for line in VERSIONS.read_text().split() if line.startswith("ironic==")).partition("==")[2]


def _installed(*, quiet: bool) -> Path:
    """Where Ironic's programs are; they are installed if they are not there in these versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strata"
    home = cache / f"ironic-{hashlib.sha256(VERSIONS.read_bytes()).hexdigest()[:12]}"
    if not (home / "ready").exists():
        say("installing Ironic, once", quiet=quiet)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "-q", "install", "--disable-pip-version-check"]
        # What it installs goes to standard error: standard output is the result's.
        subprocess.run([*pip, "--no-deps", "-r", str(VERSIONS)], check=True, stdout=sys.stderr)
        (home / "ready").touch()
    return home / "bin"


if __name__ == "__main__":
    main(run)
