"""How many DHCP exchanges a second: ours and Kea's, asked by perfdhcp, one after the other on the same two namespaces.

    .venv/bin/python bench/boot_dhcp.py --json

Each is asked at several rates, by perfdhcp with one thread and with two, and the best counts: too little shows nothing,
too much is lost in perfdhcp itself, whose second thread takes a core that the server may need.
Kea is configured with one pool and what it does by default, which is to write leases to a file (``kea_per_s``), and
once more as fast as it goes: leases in memory only, every core (``kea_in_memory_per_s``). Ours knows as many nodes as
perfdhcp pretends to be. Needs root (network namespaces), kea-dhcp4-server and kea-admin.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address
from pathlib import Path

import uvloop
from measure import Figures, arguments, child, main, say, scratch, show

from strata.core.node import Interface, Node
from strata.provisioning.dhcp.listener import Listener
from strata.provisioning.dhcp.responder import Responder
from strata.provisioning.directory import Directory
from strata.provisioning.networks import parse

SERVER = "10.77.0.1"
CLIENT = "10.77.0.2"
_FIRST_MAC = 0x000C01020300
"""Where perfdhcp's clients begin; they end within 256 of their number."""
_FIRST_ADDRESS = int(IPv4Address("10.77.1.0"))
RATES = (8000, 14_000, 16_000, 24_000, 32_000, 40_000)
THREADS = ("single", "multi")
"""As perfdhcp names its modes."""
_RATE = re.compile(r"^Rate: ([0-9.]+) 4-way exchanges/second", re.MULTILINE)


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--clients", type=int, default=20_000, help="machines that perfdhcp pretends to be")
    parser.add_argument("--seconds", type=int, default=2, help="for each rate")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="exchanges a second to ask for")
    parser.add_argument("--serve", metavar="INTERFACE", help="serve ours there, for perfdhcp (used by the benchmark)")
    given = parser.parse_args()
    if given.serve:
        uvloop.run(_serve(given.serve, given.clients))
        return
    figures = measure(clients=given.clients, seconds=given.seconds, rates=given.rates, quiet=given.json)
    show(figures, as_json=given.json)


def measure(*, clients: int = 20_000, seconds: int = 2, rates: Sequence[int] = RATES, quiet: bool = True) -> Figures:
    """``dhcp_ratio_to_kea``, ``dhcp_per_s``, ``kea_per_s`` and ``kea_in_memory_per_s``."""
    with scratch() as directory, _namespaces() as (server, client):
        inside = ("ip", "netns", "exec", server)
        environment = {**os.environ, "KEA_PIDFILE_DIR": str(directory), "KEA_LOCKFILE_DIR": str(directory)}
        found: dict[str, float] = {}
        for name, config in _keas("strata0", directory).items():
            say(name, quiet=quiet)
            file = directory / "kea.json"
            file.write_text(json.dumps(config))
            with child([*inside, "kea-dhcp4", "-c", str(file)], env=environment, stdout=subprocess.DEVNULL):
                found[name] = _perfdhcp(client, clients, seconds, rates)
        say("dhcp_per_s", quiet=quiet)
        own = [sys.executable, str(Path(__file__)), "--serve", "strata0", "--clients", str(clients)]
        with child([*inside, *own]):
            found["dhcp_per_s"] = _perfdhcp(client, clients, seconds, rates)
    return {"dhcp_ratio_to_kea": found["dhcp_per_s"] / found["kea_per_s"], **found}


@contextlib.contextmanager
def _namespaces() -> Iterator[tuple[str, str]]:
    """Two namespaces with a cable between them: ``strata0`` in each."""
    names = [f"strata-bench-{os.getpid()}-{end}" for end in (1, 2)]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("-n", names[0], "link", "add", "strata0", "type", "veth", "peer", "name", "strata0", "netns", names[1])
        for name, address in zip(names, (SERVER, CLIENT), strict=True):
            _ip("-n", name, "address", "add", f"{address}/16", "dev", "strata0")
            _ip("-n", name, "link", "set", "strata0", "up")
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _perfdhcp(namespace: str, clients: int, seconds: int, rates: Sequence[int]) -> float:
    command = ["ip", "netns", "exec", namespace, "perfdhcp", "-4", "-l", "strata0", SERVER]
    deadline = time.monotonic() + 20
    # One exchange first: it is up when it answers.
    while not _rate([*command, "-n", "1", "-R", "1", "-W", "100000"]):
        if time.monotonic() > deadline:
            raise RuntimeError("the DHCP server did not answer within 20 s")
    command += ["-R", str(clients), "-p", str(seconds), "-W", "100000"]
    found = max(_rate([*command, "-g", mode, "-r", str(rate)]) for mode in THREADS for rate in rates)
    if not found:
        raise RuntimeError("perfdhcp tells no rate")
    return found


def _rate(command: list[str]) -> float:
    """perfdhcp ends with an error where a single reply was lost: that is no failure of a flood."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = _RATE.search(done.stdout)
    return float(found[1]) if found else 0.0


def _keas(interface: str, directory: Path) -> dict[str, Figures]:
    """The configurations to compare with, by the name of the figure."""
    subnet = {
        "id": 1,
        "subnet": "10.77.0.0/16",
        "pools": [{"pool": "10.77.1.0 - 10.77.254.255"}],
        "interface": interface,
    }
    common: Figures = {
        "interfaces-config": {"interfaces": [interface], "dhcp-socket-type": "udp"},
        "valid-lifetime": 3600,
        "subnet4": [subnet],
        "loggers": [{"name": "kea-dhcp4", "severity": "ERROR"}],
    }
    on_disk = {"lease-database": {"type": "memfile", "name": str(directory / "leases")}}
    in_memory = {
        "lease-database": {"type": "memfile", "persist": False},
        "multi-threading": {"enable-multi-threading": True, "thread-pool-size": os.cpu_count()},
    }
    return {"kea_per_s": {"Dhcp4": common | on_disk}, "kea_in_memory_per_s": {"Dhcp4": common | in_memory}}


async def _serve(interface: str, clients: int) -> None:
    # perfdhcp speaks as a relay does.
    text = f"subnets: [{{network: 10.77.0.0/16, interface: {interface}, server: {SERVER}, relays: [{CLIENT}]}}]"
    nodes = [
        Node(name=f"n{at}", uid=at + 1, interfaces=(Interface(mac=_mac(at), address=_address(at)),))
        for at in range(clients + 256)
    ]
    responder = Responder(parse(text, source="benchmark"), Directory(nodes))
    listener = Listener(interface, responder.answer)
    await listener.start()
    await asyncio.Event().wait()


def _mac(at: int) -> str:
    return (_FIRST_MAC + at).to_bytes(6, "big").hex(":")


def _address(at: int) -> str:
    return str(IPv4Address(_FIRST_ADDRESS + at))


if __name__ == "__main__":
    main(run)
