"""The process of a virtual chassis: the BMCs of its machines, on the loopback of its network namespace.

    python -m strata.virtual.qemu.chassis --dir DIR

is started inside the namespace (see ``create``) and serves until SIGTERM. The machines are processes of their own: they
go on when this ends, and are found again when it begins.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from pathlib import Path

import uvloop

from strata.core.errors import StrataError
from strata.virtual.bmc.http import HttpProtocol, Reply, Request
from strata.virtual.bmc.outbox import Outbox
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.qemu import description
from strata.virtual.qemu.bmc import MachineBmc
from strata.virtual.qemu.command import CONSOLE_LOG
from strata.virtual.qemu.description import Description, MachineDescription
from strata.virtual.qemu.machine import Machine
from strata.virtual.qemu.serial import Serial
from strata.virtual.redfish.bmc import Account
from strata.virtual.redfish.body import error
from strata.virtual.redfish.site import Site

READY = "listening"
"""What the process writes when all its BMCs answer."""


class Chassis:
    """The BMCs of one chassis."""

    def __init__(self, found: Description, directory: Path, account: Account) -> None:
        self.port = found.port
        self._begun = time.monotonic()
        self.site = Site(SimNodes(0, seed=int(found.id, 16)))
        self.bmcs = {
            node.name: MachineBmc(self.site, i, _machine(node, found.id, directory), account, self._clock)
            for i, node in enumerate(found.nodes)
        }
        self._outbox = Outbox()
        self._server: asyncio.Server | None = None
        self._connections: set[HttpProtocol] = set()

    async def start(self) -> None:
        """Find the machines that run, then listen."""
        self.site.send = self._outbox.send
        await asyncio.gather(*(bmc.start() for bmc in self.bmcs.values()))
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpProtocol(self._handle, self._connections), "127.0.0.1", self.port
        )

    async def stop(self) -> None:
        """Close every socket; the machines go on."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        await asyncio.gather(*(bmc.stop() for bmc in self.bmcs.values()))
        if self._server is not None:
            await self._server.wait_closed()
        await self._outbox.close()

    def _clock(self) -> float:
        return time.monotonic() - self._begun

    def _handle(self, request: Request) -> Reply:
        _, first, name, rest = [*request.path.split("/", 3), "", "", ""][:4]
        bmc = self.bmcs.get(name) if first == "bmc" else None
        if bmc is None:
            return error(404, "ResourceMissingAtURI", "No BMC answers here.")
        return bmc.answer(request, f"/{rest}", self._clock())


def _machine(node: MachineDescription, chassis: str, directory: Path) -> Machine:
    home = directory / description.NODES / node.name
    return Machine(node, chassis, home, Serial(home / CONSOLE_LOG))


def main(arguments: list[str] | None = None) -> int:
    """Serve the BMCs of a virtual chassis until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="strata.virtual.qemu.chassis", description=main.__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="folder of the chassis")
    directory = parser.parse_args(arguments).dir.resolve()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        found = description.read(directory)
        password = (directory / description.PASSWORD).read_text(encoding="ascii").strip()
    except (OSError, StrataError) as problem:
        print(f"strata.virtual.qemu.chassis: {problem}", file=sys.stderr)
        return 1
    uvloop.run(_serve(found, directory, Account(found.user, password)))
    return 0


async def _serve(found: Description, directory: Path, account: Account) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    chassis = Chassis(found, directory, account)
    await chassis.start()
    print(READY, flush=True)
    await stop.wait()
    await chassis.stop()


if __name__ == "__main__":
    sys.exit(main())
