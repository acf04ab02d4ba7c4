"""What a whole machine that boots asks of Strata: DHCP against Kea, boot scripts and images against nginx, and 5,000
nodes at once.

    .venv/bin/python bench/boot.py --json

``script_ratio_to_nginx`` compares boot scripts, made for each request, with nginx serving a file of the same size: the
same client (wrk), the same connections, in turns; the best turn of each counts. ``boot_5000_s`` is how long it takes
until every one of ``--nodes`` simulated nodes, each with an address of its own, has its script and its fragment, all of
which are on disk by then. Needs root (network namespaces), wrk, nginx, kea-dhcp4-server, kea-admin and QEMU.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import boot_dhcp
import boot_images
import boot_minos
import uvloop
from load import Door, ask, request
from measure import Figures, arguments, child, cpu_seconds, main, say, scratch, show, wait_until

from strata.api.nginx import find_nginx, free_port
from strata.core.node import Interface, Node
from strata.fleet.access.authority import Authority, Issued
from strata.fleet.alarm import Alarm
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.fragment import Site
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.questions import Questions
from strata.provisioning.boot.service import BootService
from strata.provisioning.directory import Directory
from strata.provisioning.identity.identity import Identity
from strata.provisioning.minos.artefacts import Artefacts, Manifest, Part
from strata.provisioning.minos.soundness import Soundness
from strata.provisioning.networks import parse
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.sqlite.store import SqliteStore

_CONNECTIONS = 32
_AT_ONCE = 1000
"""Connections that the simulated nodes hold open together."""
_RATE = re.compile(r"^Requests/sec:\s+([0-9.]+)", re.MULTILINE)
_COUNT = re.compile(r"^\s+(\d+) requests in", re.MULTILINE)
_BAD = re.compile(r"Non-2xx or 3xx responses|Socket errors")


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=5000, help="that boot at once")
    parser.add_argument("--seconds", type=int, default=5, help="of each load")
    parser.add_argument("--scripts-only", action="store_true", help="leave DHCP, images and the minimal OS out")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)  # directory: be the boot service
    given = parser.parse_args()
    if given.serve:
        uvloop.run(_serve(given.serve, given.nodes))
        return
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed: apt-get install wrk")
    figures = measure(nodes=given.nodes, seconds=given.seconds, quiet=given.json)
    if not given.scripts_only:
        figures |= boot_dhcp.measure(quiet=given.json)
        figures |= boot_images.measure(quiet=given.json)
        figures |= boot_minos.measure(quiet=given.json)
    show(figures, as_json=given.json)


def measure(*, nodes: int = 5000, seconds: int = 5, rounds: int = 3, quiet: bool = True) -> Figures:
    """``script_ratio_to_nginx``, ``scripts_per_s``, ``nginx_per_s``, ``boot_5000_s``, and processor times."""
    with scratch() as directory, contextlib.ExitStack() as parts:
        own = [sys.executable, __file__, "--nodes", str(nodes), "--serve", str(directory)]
        service = parts.enter_context(child(own))
        wait_until("the boot service", (directory / "ready").exists, service)
        port = int((directory / "ready").read_text())
        path = f"/boot/script?mac={_mac(0)}"
        body = ask(Door(("127.0.0.1", port)), request("GET", path)).body
        files = _static(directory, body)
        nginx = parts.enter_context(child([find_nginx(), "-p", str(directory), "-c", str(directory / "nginx.conf")]))
        wait_until("nginx", lambda: _answers(files), nginx)
        asked = {
            "script": (f"http://127.0.0.1:{port}{path}", service.pid),
            "nginx": (f"http://127.0.0.1:{files}/script", nginx.pid),
        }
        # In turns, and the best of each: what else the machine does must not favour one of them.
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
        for turn in range(rounds):
            for name, (url, pid) in asked.items():
                say(f"{name}, {turn + 1} of {rounds}", quiet=quiet)
                found[name].append(_wrk(url, pid, seconds))
        say("boot_5000_s", quiet=quiet)
        boot_s = uvloop.run(_boot_all(port, nodes))
    rate = {name: max(rate for rate, _ in turns) for name, turns in found.items()}
    cost = {name: min(cost for _, cost in turns) for name, turns in found.items()}
    return {
        "script_ratio_to_nginx": round(rate["script"] / rate["nginx"], 3),
        "scripts_per_s": round(rate["script"]),
        "nginx_per_s": round(rate["nginx"]),
        "script_cpu_us": round(cost["script"] * 1e6, 1),
        "nginx_cpu_us": round(cost["nginx"] * 1e6, 1),
        "script_bytes": len(body),
        "boot_nodes": nodes,
        "boot_5000_s": round(boot_s, 2),
    }


def _wrk(url: str, pid: int, seconds: int) -> tuple[float, float]:
    """Requests a second, and the processor time that the server spends on one; every answer must be good."""
    before = _cpu_s(pid)
    done = subprocess.run(
        ["wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{seconds}s", url], capture_output=True, text=True, check=True
    )
    spent = _cpu_s(pid) - before
    rate, count = _RATE.search(done.stdout), _COUNT.search(done.stdout)
    if rate is None or count is None or _BAD.search(done.stdout):
        raise SystemExit(f"wrk did not get what it asked for:\n{done.stdout}")
    return float(rate[1]), spent / int(count[1])


def _cpu_s(pid: int) -> float:
    """Processor time of a process and its children so far."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_seconds(each) for each in (pid, *map(int, children)))


def _static(directory: Path, body: bytes) -> int:
    """Write a plain nginx's configuration and the file that it serves; its port."""
    (directory / "files").mkdir()
    (directory / "files" / "script").write_bytes(body)
    port = free_port("127.0.0.1")
    (directory / "nginx.conf").write_text(
        f"""daemon off; worker_processes 2; pid nginx.pid; error_log stderr crit; user root;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 10000000;
  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  server {{ listen 127.0.0.1:{port}; root "{directory}/files"; }}
}}
"""
    )
    return port


def _answers(port: int) -> bool:
    try:
        return ask(Door(("127.0.0.1", port)), request("GET", "/script")).status == 200
    except OSError:
        return False


async def _boot_all(port: int, nodes: int) -> float:
    """Seconds until every node has its script and its fragment."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def boot(number: int) -> None:
        async with gate:
            script = await _get(port, f"/boot/script?mac={_mac(number)}", _address(number))
            at = script.index(b"/boot/fragment/")
            fragment = await _get(port, script[at : script.index(b" ", at)].decode(), _address(number))
            if not fragment:
                raise SystemExit(f"node {number} got no fragment")

    begun = time.perf_counter()
    await asyncio.gather(*(boot(number) for number in range(1, nodes + 1)))
    return time.perf_counter() - begun


async def _get(port: int, path: str, source: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(f"GET {path} HTTP/1.0\r\nUser-Agent: iPXE/1.21.1\r\n\r\n".encode())
    raw = await reader.read()
    writer.close()
    if raw[9:12] != b"200":
        raise SystemExit(f"{path}: {raw[:200]!r}")
    return raw[raw.index(b"\r\n\r\n") + 4 :]


def _mac(number: int) -> str:
    return f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"


def _address(number: int) -> str:
    return f"127.1.{number >> 8}.{number & 255}" if number else "127.0.0.1"


async def _serve(directory: Path, nodes: int) -> None:
    """The boot service as it is in a controller, with a store on disk; node 0 is the load generator's."""
    minos, signer = directory / "minos", Signer.open(directory / "signing")
    empty = Part(size=0, sha256=hashlib.sha256(b"").hexdigest())
    manifest = Manifest(
        arch="x86_64", kernel="", inputs=(), agent="", files="", modules=(), unpacked=0, vmlinuz=empty, initrd=empty
    )
    Artefacts(minos).add(manifest, b"", b"", signer)
    networks = parse("subnets: [{network: 127.0.0.0/8, interface: lo, server: 127.0.0.1}]", source="networks")
    directory_ = Directory(
        Node(name=f"n{n:05d}", uid=n, interfaces=(Interface(mac=_mac(n), address=_address(n)),))
        for n in range(nodes + 1)
    )
    authority = Authority.open(directory / "ca")
    store = SqliteStore(directory / "strata.db")

    def sign(csr: bytes, node: str) -> Issued:
        return authority.sign_csr(csr, node, "node", (), 86400)

    def alarm(one: Alarm) -> None:
        if one.severity != "ok":
            raise SystemExit(f"an alarm: {one}")

    async def hold(node: str, reason: str) -> None:
        raise SystemExit(f"{node} is to be held: {reason}")

    async def tail(node: str) -> str:
        return ""

    identity = Identity(store, sign, alarm)
    builds = Builds(minos, Soundness(minos, signer.public_pem, alarm))
    profiles = Profiles(store, Ledger(store), builds.digest)
    site = Site(controllers=lambda: ("https://127.0.0.1:8443",), ca=authority.pem.decode())

    async def speaks(name: str) -> bool | None:
        return False

    questions = Questions(attached=lambda _: False, speaks=speaks, held=lambda _: False, hold=hold, console_tail=tail)
    boot = BootService(networks, directory_, identity, profiles, site, questions, alarm, builds=builds)
    await identity.start()
    await profiles.start()
    await boot.start(port=0)
    (directory / "part").write_text(str(boot.server.port))
    (directory / "part").rename(directory / "ready")
    await asyncio.Event().wait()


if __name__ == "__main__":
    main(run)
