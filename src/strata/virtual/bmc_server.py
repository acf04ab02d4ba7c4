"""The simulated fleet behind real sockets: every node's controller speaks Redfish, all from one process.

    python -m strata.virtual.bmc_server --nodes 256 --port 0 --seed 7

prints one line of JSON with the address when it listens; SIGTERM stops it. A controller is told from the others
by path (``http://127.0.0.1:PORT/bmc/n7/redfish/v1``), by port (one each) or by address (127.x.y.z, one each).
``POST /agents/observe``, ``act`` and ``permits`` speak for the nodes' agents (``gateway``). ``GET /fleet/effects`` is
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
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Literal

import msgspec
import uvloop

from strata.core.errors import BadRequest
from strata.virtual.faults import Faults, Timing
from strata.virtual.fleet import node_names
from strata.virtual.gateway import Gateway
from strata.virtual.http import HttpProtocol, Manner, Reply, Request
from strata.virtual.mischief import Mischief, Prankster, Trick
from strata.virtual.nodes import SimNodes
from strata.virtual.redfish_tree import Account, Bmc, error

By = Literal["path", "port", "address"]

SIMULATED_ACCOUNT = Account("root", "simulated")
"""What simulated controllers accept unless told otherwise. It guards nothing."""

_FIRST_ADDRESS = int(IPv4Address("127.1.0.1"))


class BmcServer:
    """Serves ``nodes``. ``clock`` gives the model's time in seconds; by default, since the server was made."""

    def __init__(
        self,
        nodes: SimNodes,
        *,
        account: Account = SIMULATED_ACCOUNT,
        mischief: Mischief | None = None,
        clock: Callable[[], float] | None = None,
        by: By = "path",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        begun = time.monotonic()
        self.nodes = nodes
        self.by = by
        self.clock = clock or (lambda: time.monotonic() - begun)
        self.address = ""
        """Where it listens: ``http://127.0.0.1:PORT``."""
        self.requests = 0
        self._account = account
        self._mischief = mischief or Mischief()
        self._tls = tls
        self._bmcs: dict[int, tuple[Bmc, Prankster]] = {}
        self._gateway = Gateway(nodes)
        self._servers: list[asyncio.Server] = []
        self._listening: list[int] = []
        self._ports: dict[int, int] = {}
        self._connections: set[HttpProtocol] = set()

    async def start(self, port: int = 0) -> None:
        """Listen on loopback; port 0 takes a free one. By port: on as many as there are nodes."""
        for i in range(self.nodes.count if self.by == "port" else 1):
            self._servers.append(await self._listen(port + i if port else 0))
            self._listening.append(self._servers[-1].sockets[0].getsockname()[1])
        self._ports = {found: i for i, found in enumerate(self._listening)}
        self.address = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._listening[0]}"

    async def stop(self) -> None:
        """Close every socket."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    def url(self, name: str) -> str:
        """Where the controller of node ``name`` answers."""
        i = self._index(name)
        scheme, _, rest = self.address.partition("://")
        host, _, port = rest.partition(":")
        if self.by == "port":
            return f"{scheme}://{host}:{self._listening[i]}"
        if self.by == "address":
            return f"{scheme}://{IPv4Address(_FIRST_ADDRESS + i)}:{port}"
        return f"{self.address}/bmc/{name}"

    def bmc(self, name: str) -> Bmc:
        """The controller of node ``name``: what it was told, its sessions."""
        return self._pair(self._index(name))[0]

    def prank(self, name: str) -> Prankster:
        """The way in for tests: how the controller of node ``name`` misbehaves."""
        return self._pair(self._index(name))[1]

    def refuse(self, name: str) -> None:
        """By port only: nobody listens any more where the controller of ``name`` did."""
        if self.by != "port":
            raise BadRequest("controllers share a port: let it be silent instead", where=name)
        self._servers[self._index(name)].close()

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

    def _index(self, name: str) -> int:
        if name not in self.nodes.index:
            raise BadRequest("no such simulated node", where=name)
        return self.nodes.index[name]

    def _pair(self, i: int) -> tuple[Bmc, Prankster]:
        pair = self._bmcs.get(i)
        if pair is None:
            pair = Bmc(self.nodes, i, self._account), Prankster(i, self.nodes.seed, self._mischief)
            self._bmcs[i] = pair
        return pair

    def _handle(self, request: Request) -> Reply:
        self.requests += 1
        if request.path.startswith(("/agents/", "/fleet/")):
            return self._agents(request)
        found = self._resolve(request)
        if found is None:
            return error(404, "ResourceMissingAtURI", "No controller answers here.")
        i, path = found
        if self.nodes.bmc_dead[i]:
            return Reply(204, manner=Manner.NEVER)
        bmc, prankster = self._pair(i)
        tricks, delay = prankster.next(request.method)
        reply = _before(tricks, prankster, bmc) if tricks else None
        if reply is None:
            reply = bmc.answer(request, path, self.clock(), actions=Trick.NO_ACTIONS not in tricks)
            reply = _after(tricks, reply) if tricks else reply
        return reply._replace(delay=delay) if delay else reply

    def _resolve(self, request: Request) -> tuple[int, str] | None:
        """Which controller is meant, and the path below it."""
        if self.by == "path":
            _, first, name, rest = [*request.path.split("/", 3), "", "", ""][:4]
            i = self.nodes.index.get(name) if first == "bmc" else None
            return None if i is None else (i, f"/{rest}")
        host, port = request.local
        i = self._ports.get(port) if self.by == "port" else int(IPv4Address(host)) - _FIRST_ADDRESS
        return (i, request.path) if i is not None and 0 <= i < self.nodes.count else None

    def _agents(self, request: Request) -> Reply:
        if request.headers.get("authorization") != self._account.basic:
            return Reply(401, b"who are you?", kind="text/plain")
        if request.path == "/fleet/effects":
            return self._effects(request)
        if request.method != "POST":
            return Reply(405, headers=(("Allow", "POST"),))
        try:
            body = self._gateway.answer(request.path.removeprefix("/agents/"), request.body, self.clock())
        except BadRequest as wrong:
            return Reply(400, str(wrong).encode(), kind="text/plain; charset=utf-8")
        return Reply(404) if body is None else Reply(200, body, kind="application/msgpack")

    def _effects(self, request: Request) -> Reply:
        """The nodes' own book: how often each mutation was taken, and what should never be in it."""
        if request.method != "GET":
            return Reply(405, headers=(("Allow", "GET"),))
        nodes = self.nodes
        book = {
            "counts": nodes.effects.counts(),
            "twice": nodes.effects.twice(),
            "idle": nodes.effects.idle(),
            "repeated": {nodes.names[node]: taken for node, taken in nodes.effects.repeated().items()},
            "fenced": int(nodes.fenced.sum()),
            "jobs_lost": int(nodes.jobs_lost.sum()),
        }
        return Reply(200, msgspec.json.encode(book))


def _before(tricks: set[Trick], prankster: Prankster, bmc: Bmc) -> Reply | None:
    """The reply of a controller that does nothing of what it was asked."""
    if Trick.SILENT in tricks:
        return Reply(204, manner=Manner.NEVER)
    if Trick.DROP_BEFORE in tricks:
        return Reply(204, manner=Manner.CLOSED)
    if Trick.BUSY in tricks:
        wait = (("Retry-After", str(prankster.retry_after)),)
        return error(503, "ServiceTemporarilyUnavailable", "Busy.", wait)
    if Trick.EXPIRED in tricks:
        bmc.sessions.clear()
        return error(401, "NoValidSession", "The session has expired.")
    if Trick.HTML in tricks:
        return Reply(200, b"<html><body>Please log in</body></html>", kind="text/html")
    if Trick.REDIRECT in tricks:
        return Reply(307, headers=(("Location", "http://elsewhere.invalid/redfish/v1/"),))
    return None


def _after(tricks: set[Trick], reply: Reply) -> Reply:
    """The spoilt reply of a controller that did what it was asked."""
    if Trick.DROP_AFTER in tricks:
        return reply._replace(manner=Manner.CLOSED)
    if Trick.CUT in tricks:
        return reply._replace(status=200, body=reply.body or b'{"error": {}}', manner=Manner.CUT)
    if Trick.ENDLESS in tricks:
        return reply._replace(status=200, manner=Manner.ENDLESS)
    if Trick.ACCEPTED in tricks and reply.status < 300:
        return reply._replace(status=202, body=b"")
    if reply.status == 200 and tricks & {Trick.NULL, Trick.STRINGS, Trick.ABSURD}:
        return reply._replace(body=msgspec.json.encode(_spoil(msgspec.json.decode(reply.body), tricks)))
    return reply


def _spoil(value: object, tricks: set[Trick]) -> object:
    if isinstance(value, dict):
        return {k: v if k.startswith("@") or k == "target" else _spoil(v, tricks) for k, v in value.items()}
    if isinstance(value, list):
        return [_spoil(item, tricks) for item in value]
    if Trick.NULL in tricks:
        return None
    if isinstance(value, float | int):
        value = -1e300 if Trick.ABSURD in tricks else value
        return str(value) if Trick.STRINGS in tricks else value
    return value


def main(arguments: list[str] | None = None) -> int:
    """Serve a simulated fleet until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="strata.virtual.bmc_server", description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--prefix", default="n", help="what nodes' names begin with")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--by", choices=("path", "port", "address"), default="path", help="how controllers are told apart"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies how long things take; 0: no time")
    parser.add_argument("--faults", default="{}", help="JSON object, fields as in strata.virtual.faults.Faults")
    parser.add_argument("--mischief", default="{}", help="JSON object, fields as in strata.virtual.mischief.Mischief")
    parser.add_argument("--job-share", type=float, default=0.0, help="share of the time in which a job runs on a node")
    parser.add_argument("--password-file", type=Path, help="holds the password of the user root")
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
    )
    mischief = msgspec.json.decode(given.mischief, type=Mischief)
    uvloop.run(_serve(BmcServer(nodes, account=account, mischief=mischief, by=given.by), given.port))
    return 0


async def _serve(server: BmcServer, port: int) -> None:
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
