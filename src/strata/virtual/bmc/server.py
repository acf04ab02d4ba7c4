"""The simulated fleet behind real sockets: every node's BMC speaks Redfish, all from one process.

    python -m strata.virtual.bmc.server --nodes 256 --port 0 --seed 7 --pdus

prints one line of JSON with the address when it listens; SIGTERM stops it. A BMC is told from the others
by path (``http://127.0.0.1:PORT/bmc/n7/redfish/v1``), by port (one each) or by address (127.x.y.z, one each). Where
there is a ``plant``, its BMCs are served too, after those of the nodes: ``/bmc/pdu-x1000m0``,
``/bmc/cc-x1000c0``, ``/bmc/sw-leaf1``, ``/bmc/fm-hsn``.
``POST /agents/observe``, ``act`` and ``permits`` speak for the nodes' agents (``gateway``). ``GET /fleet/power``
is what all BMCs would tell of power, in one reply; ``GET /fleet/effects`` is
for tests: what the nodes were told, as they know it themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import uvloop

from strata.core.errors import BadRequest
from strata.virtual.bmc.certificate import self_signed
from strata.virtual.bmc.http import HttpProtocol, Manner, Reply, Request
from strata.virtual.bmc.mischief import Mischief, Prankster
from strata.virtual.bmc.outbox import Outbox
from strata.virtual.bmc.ssdp import PORT as SSDP_PORT
from strata.virtual.bmc.ssdp import Announcer
from strata.virtual.bmc.tricks import after, before
from strata.virtual.fleet.agents import Gateway
from strata.virtual.fleet.faults import Faults, Timing
from strata.virtual.fleet.names import node_names
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.fleet.power import encode
from strata.virtual.meters import kinds_of
from strata.virtual.plant.bmc import ChassisBmc, PduBmc
from strata.virtual.plant.plant import Plant
from strata.virtual.plant.switch import SwitchBmc
from strata.virtual.redfish.bmc import Account, Bmc
from strata.virtual.redfish.body import error
from strata.virtual.redfish.node import NodeBmc
from strata.virtual.redfish.site import Site

By = Literal["path", "port", "address"]

SIMULATED_ACCOUNT = Account("root", "simulated")
"""What simulated BMCs accept unless told otherwise. It guards nothing."""

FIRST_ADDRESS = IPv4Address("127.1.0.1")
"""Of the first BMC, where they are told apart by address."""


_BEAT = 0.1
"""Seconds between two looks at the nodes that somebody listens to."""


class BmcServer:
    """Serves ``nodes``, and the machine room around them if there is a ``plant``. ``clock`` gives the model's time in
    seconds; by default, since the server was made."""

    def __init__(
        self,
        nodes: SimNodes,
        *,
        plant: Plant | None = None,
        account: Account = SIMULATED_ACCOUNT,
        mischief: Mischief | None = None,
        clock: Callable[[], float] | None = None,
        by: By = "path",
        first_address: IPv4Address = FIRST_ADDRESS,
        tls: ssl.SSLContext | None = None,
        ssdp: bool = False,
        ssdp_address: str = "127.0.0.1",
        ssdp_port: int = SSDP_PORT,
    ) -> None:
        begun = time.monotonic()
        self.nodes = nodes
        self.plant = plant
        self.site = Site(nodes)
        self.by = by
        self.clock = clock or (lambda: time.monotonic() - begun)
        self.address = ""
        """Where it listens: ``http://127.0.0.1:PORT``."""
        self.requests = 0
        self.ssdp = Announcer(self._announced) if ssdp else None
        self.outbox = Outbox()
        self._first_address = first_address
        self._ssdp_at = ssdp_address, ssdp_port
        self._account = account
        self._mischief = mischief or Mischief()
        self._tls = tls
        self._names = (*nodes.names, *(plant.names if plant else ()))
        self._index = nodes.index | {name: nodes.count + i for i, name in enumerate(plant.names if plant else ())}
        self._bmcs: dict[int, tuple[Bmc, Prankster]] = {}
        self._swapped: dict[int, int] = {}
        self._gateway = Gateway(nodes)
        self._servers: list[asyncio.Server] = []
        self._listening: list[int] = []
        self._ports: dict[int, int] = {}
        self._connections: set[HttpProtocol] = set()
        self._beat: asyncio.TimerHandle | None = None

    async def start(self, port: int = 0) -> None:
        """Listen on loopback; port 0 takes a free one. By port: on as many as there are BMCs."""
        for i in range(len(self._names) if self.by == "port" else 1):
            self._servers.append(await self._listen(port + i if port else 0))
            self._listening.append(self._servers[-1].sockets[0].getsockname()[1])
        self._ports = {found: i for i, found in enumerate(self._listening)}
        self.address = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._listening[0]}"
        self.site.send = self.outbox.send
        if self.ssdp is not None:
            await self.ssdp.start(*self._ssdp_at)
        self._beat = asyncio.get_running_loop().call_later(_BEAT, self._on_beat)

    async def stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        if self.ssdp is not None:
            self.ssdp.stop()
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        await self.outbox.close()

    def url(self, name: str) -> str:
        """Where the BMC of node ``name`` (or that of the machine room with that name) answers."""
        i = self._find(name)
        scheme, _, rest = self.address.partition("://")
        host, _, port = rest.partition(":")
        if self.by == "port":
            return f"{scheme}://{host}:{self._listening[i]}"
        if self.by == "address":
            return f"{scheme}://{self._first_address + i}:{port}"
        return f"{self.address}/bmc/{name}"

    def bmc(self, name: str) -> NodeBmc:
        """The BMC of node ``name``: what it was told, its sessions."""
        found = self._pair(self._find(name))[0]
        if not isinstance(found, NodeBmc):
            raise BadRequest("not the BMC of a node", where=name)
        return found

    def prank(self, name: str) -> Prankster:
        """The way in for tests: how the BMC of that name misbehaves."""
        return self._pair(self._find(name))[1]

    def swap_bmcs(self, one: str, other: str) -> None:
        """Somebody has mixed up two cables: at the address of each, the other BMC answers from now on."""
        a, b = self._find(one), self._find(other)
        self._swapped[a], self._swapped[b] = self._swapped.get(b, b), self._swapped.get(a, a)

    def refuse(self, name: str) -> None:
        """By port only: nobody listens any more where the BMC of ``name`` did."""
        if self.by != "port":
            raise BadRequest("BMCs share a port: let it be silent instead", where=name)
        self._servers[self._find(name)].close()

    def change_certificate(self) -> None:
        """From the next connection on, show another certificate; those that are open are cut."""
        if self._tls is None:
            raise BadRequest("there is no certificate without TLS", where="tls")
        self_signed(self._tls)
        for connection in list(self._connections):
            connection.close()

    def beat(self) -> None:
        """Tell those who listen what became of the nodes since the last time; the server does so by itself."""
        attended = np.array(sorted(self.site.attended), dtype=np.int64)
        if not len(attended):
            return
        now = self.clock()
        states = np.stack([self.nodes.truth(name, attended, now).codes for name in ("power", "os")], axis=1)
        for i, state in zip(attended.tolist(), states.tolist(), strict=True):
            bmc = self._pair(i)[0]
            if isinstance(bmc, NodeBmc) and bmc.attended:
                bmc.notice(now, (state[0], state[1]))
                bmc.report(now)
            else:
                self.site.attended.discard(i)

    def _on_beat(self) -> None:
        self.beat()
        self._beat = asyncio.get_running_loop().call_later(_BEAT, self._on_beat)

    async def _listen(self, port: int) -> asyncio.Server:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.by == "address":
            # All of 127/8 must reach us, and nobody from outside: any address, but only the loopback device.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        listener.bind(("" if self.by == "address" else "127.0.0.1", port))
        return await asyncio.get_running_loop().create_server(
            lambda: HttpProtocol(self._handle, self._connections), sock=listener, ssl=self._tls, backlog=4096
        )

    def _announced(self) -> Iterator[tuple[str, str]]:
        for i, name in enumerate(self._names):
            if i >= self.nodes.count or not self.nodes.bmc_dead[i]:
                yield self._pair(i)[0].uuid("Manager"), f"{self.url(name)}/redfish/v1/"

    def _find(self, name: str) -> int:
        if name not in self._index:
            raise BadRequest("no such simulated node", where=name)
        return self._index[name]

    def _pair(self, i: int) -> tuple[Bmc, Prankster]:
        pair = self._bmcs.get(i)
        if pair is None:
            pair = self._make(i), Prankster(i, self.nodes.seed, self._mischief)
            self._bmcs[i] = pair
        return pair

    def _make(self, i: int) -> Bmc:
        if i < self.nodes.count:
            return NodeBmc(self.site, i, self._account, self.clock)
        assert self.plant is not None
        name = self._names[i]
        kind = PduBmc if name in self.plant.pdus else ChassisBmc if name in self.plant.enclosures else SwitchBmc
        return kind(self.site, self.plant, name, self._account)

    def _handle(self, request: Request) -> Reply:
        self.requests += 1
        if request.path.startswith(("/agents/", "/fleet/")):
            return self._answer_for_all(request, self.clock())
        found = self._resolve(request)
        if found is None:
            return error(404, "ResourceMissingAtURI", "No BMC answers here.")
        i, path = found
        if self._swapped:
            i = self._swapped.get(i, i)
        if i < self.nodes.count and self.nodes.silent(self.nodes.all[i : i + 1], self.clock())[0]:
            return Reply(204, manner=Manner.NEVER)
        bmc, prankster = self._pair(i)
        tricks, delay = prankster.next(request.method)
        reply = before(tricks, prankster, bmc, request, path) if tricks else None
        if reply is None:
            reply = bmc.answer(request, path, self.clock())
            reply = after(tricks, reply) if tricks else reply
        return reply._replace(delay=delay) if delay else reply

    def _answer_for_all(self, request: Request, now: float) -> Reply:
        """What is said of the whole fleet at once: for its agents, for whoever measures its power, and for tests."""
        if request.headers.get("authorization") != self._account.basic:
            return Reply(401, b"who are you?", kind="text/plain")
        method = "GET" if request.path in ("/fleet/effects", "/fleet/power") else "POST"
        if request.method != method:
            return Reply(405, headers=(("Allow", method),))
        if request.path == "/fleet/effects":
            return Reply(200, msgspec.json.encode(self._effects()))
        if request.path == "/fleet/power":
            return Reply(200, encode(self.nodes, now), kind="application/msgpack")
        try:
            body = self._gateway.answer(request.path.removeprefix("/agents/"), request.body, now)
        except BadRequest as wrong:
            return Reply(400, str(wrong).encode(), kind="text/plain; charset=utf-8")
        return Reply(404) if body is None else Reply(200, body, kind="application/msgpack")

    def _effects(self) -> dict[str, object]:
        """The nodes' own book: how often each mutation was taken, and what should never be in it."""
        nodes = self.nodes
        return {
            "counts": nodes.effects.counts(),
            "twice": nodes.effects.twice(),
            "idle": nodes.effects.idle(),
            "repeated": {nodes.names[node]: taken for node, taken in nodes.effects.repeated().items()},
            "fenced": int(nodes.fences.refused.sum()),
            "jobs_lost": int(nodes.jobs.lost.sum()),
            **({"plant": self.plant.effects} if self.plant is not None else {}),
        }

    def _resolve(self, request: Request) -> tuple[int, str] | None:
        """Which BMC is meant, and the path below it."""
        if self.by == "path":
            _, first, name, rest = [*request.path.split("/", 3), "", "", ""][:4]
            i = self._index.get(name) if first == "bmc" else None
            return None if i is None else (i, f"/{rest}")
        host, port = request.local
        i = self._ports.get(port) if self.by == "port" else int(IPv4Address(host)) - int(self._first_address)
        return (i, request.path) if i is not None and 0 <= i < len(self._names) else None


def main(arguments: list[str] | None = None) -> int:
    """Serve a simulated fleet until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="strata.virtual.bmc.server", description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--prefix", default="n", help="what nodes' names begin with")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--by", choices=("path", "port", "address"), default="path", help="how BMCs are told apart")
    parser.add_argument(
        "--first-address",
        type=IPv4Address,
        default=FIRST_ADDRESS,
        help="by address: the first BMC's; the loopback device must have them all",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies how long things take; 0: no time")
    parser.add_argument("--faults", default="{}", help="JSON object, fields as in fleet.faults.Faults")
    parser.add_argument("--mischief", default="{}", help="JSON object, fields as in bmc.mischief.Mischief")
    parser.add_argument("--job-share", type=float, default=0.0, help="share of the time in which a job runs on a node")
    parser.add_argument("--meters", default="fine", help="kinds of energy counters, by turns: 0.1kWh,stuck, or mixed")
    parser.add_argument("--password-file", type=Path, help="holds the password of the user root")
    parser.add_argument(
        "--pdus",
        choices=("on", "off"),
        nargs="?",
        const="on",
        help="serve PDUs, chassis BMCs and switches too; off: outlets and chassis begin switched off",
    )
    parser.add_argument("--tls", action="store_true", help="https, with a certificate made for the occasion")
    parser.add_argument("--ssdp", metavar="ADDRESS", help="answer SSDP searches on the interface with this address")
    parser.add_argument("--ssdp-port", type=int, default=SSDP_PORT)
    given = parser.parse_args(arguments)
    account = SIMULATED_ACCOUNT
    if given.password_file:
        account = Account("root", given.password_file.read_text().strip())
    names = node_names(given.nodes, given.prefix)
    nodes = SimNodes(
        given.nodes,
        seed=given.seed,
        names=names,
        timing=Timing(scale=given.scale, job_share=given.job_share),
        faults=msgspec.json.decode(given.faults, type=Faults),
        meters=kinds_of(given.meters),
    )
    mischief = msgspec.json.decode(given.mischief, type=Mischief)
    uvloop.run(
        _serve(
            lambda: BmcServer(
                nodes,
                plant=Plant(nodes, on=given.pdus == "on") if given.pdus else None,
                account=account,
                mischief=mischief,
                by=given.by,
                first_address=given.first_address,
                tls=self_signed() if given.tls else None,
                ssdp=bool(given.ssdp),
                ssdp_address=given.ssdp or "127.0.0.1",
                ssdp_port=given.ssdp_port,
            ),
            given.port,
        )
    )
    return 0


async def _serve(make: Callable[[], BmcServer], port: int) -> None:
    server = make()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await server.start(port)
    sys.stdout.write(msgspec.json.encode({"address": server.address, "nodes": server.nodes.count}).decode() + "\n")
    sys.stdout.flush()
    await stop.wait()
    await server.stop()


if __name__ == "__main__":
    sys.exit(main())
