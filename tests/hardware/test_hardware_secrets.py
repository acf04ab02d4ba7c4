"""A secret goes in and is nowhere again in clear: the whole way, from the command to a simulated controller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from strata.api.server import ApiServer
from strata.core.errors import DeviceError
from strata.core.logs import JsonFormatter
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.sealing import Seal
from strata.hardware.bmc.dialects import dialects
from strata.hardware.bmc.redfish.endpoint import Credentials
from strata.hardware.credentials.credentials import PREFIX, BmcCredentials, decode
from strata.hardware.credentials.pins import Pins
from strata.hardware.credentials.rotation import Rotation, login_checks
from strata.hardware.credentials.service import BmcCredentialService
from strata.hardware.discovery.crawl import crawl
from strata.hardware.emergency.service import EmergencyService
from strata.hardware.fabric.service import FabricService
from strata.hardware.inventory.nodes import NodesByBmc
from strata.hardware.inventory.records import Found
from strata.store.audit import Ledger, verify
from strata.store.sqlite.store import SqliteStore
from support.rooms import api_services
from support.simulated_machine import SimulatedMachine, simulated_machine

pytestmark = pytest.mark.slow

CANARY = "simulated"
"""The password of every simulated controller. It is also a word, so it is looked for as the secret of a record."""

CHECKS = login_checks(True, dialects(lambda _: Credentials("", "")))


class Site:
    """A machine with its API on a socket, and a way to run commands against it."""

    def __init__(self, directory: Path, machine: SimulatedMachine, credentials: BmcCredentials) -> None:
        self.directory = directory
        self.machine = machine
        self.credentials = credentials
        self.said: list[str] = []
        """All that commands ever printed."""

    async def run(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Run ``strata ARGUMENTS``; what it printed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "strata.cli",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "STRATA_STATE": str(self.directory)},
        )
        out, err = await process.communicate(stdin.encode())
        self.said += [out.decode(), err.decode()]
        assert process.returncode == code, (arguments, process.returncode, out, err)
        return out.decode()

    async def json(self, *arguments: str) -> Any:
        return json.loads(await self.run(*arguments, "--json"))


@contextlib.asynccontextmanager
async def site(count: int = 4) -> AsyncIterator[Site]:
    """Everything that the room of this test is made of, wired as the daemon does it."""
    async with contextlib.AsyncExitStack() as parts:
        directory = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="st-")))
        store = SqliteStore(directory / "strata.db")
        parts.push_async_callback(store.close)
        credentials = BmcCredentials(store, Ledger(store), Seal.load(directory / "secrets.key", make=True))
        await credentials.start()
        parts.push_async_callback(credentials.stop)
        machine = await parts.enter_async_context(
            simulated_machine(directory, count, on=True, store=store, login=credentials.lookup)
        )
        service = machine.service
        pins = Pins(store, service.ledger)
        await pins.start()
        parts.push_async_callback(pins.stop)
        rotation = Rotation(credentials, machine.bmcs.open, CHECKS, settle=0.1)
        keeper = BmcCredentialService(service, credentials, rotation, pins, machine.bmcs.unlock)
        await keeper.start()
        parts.push_async_callback(keeper.stop)

        async def founds() -> AsyncIterator[Found]:
            for name in (*machine.plant.network.names, *machine.nodes.names):
                yield await crawl(machine.bmcs.redfish, f"{machine.server.address}/bmc/{name}")

        services = api_services(
            fleet=service,
            authenticator=Authenticator(store, service.ledger),
            rooms={
                BmcCredentialService: keeper,
                EmergencyService: EmergencyService(service, machine.bmcs),
                FabricService: FabricService(service, founds, NodesByBmc(service.registry).at),
            },
        )
        api = ApiServer(services, directory / "admin.sock")
        await api.start()
        parts.push_async_callback(api.stop)
        yield Site(directory, machine, credentials)


async def test_a_password_goes_in_is_used_changed_and_never_seen_again() -> None:
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(JsonFormatter().format(record))

    ear = Ear(level=logging.DEBUG)
    root = logging.getLogger()
    level = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    try:
        async with site() as here:
            node = f"{here.machine.server.address}/bmc/n00001"
            with pytest.raises(DeviceError, match="strata hardware credentials set"):
                here.credentials.lookup(node)
            await here.run(
                "hardware", "credentials", "set", "default", "--user", "root", "--password-file", "-", stdin=CANARY
            )
            assert await here.machine.bmcs.open(node).power() is not None, "it opens the door"
            (shown,) = await here.json("hardware", "credentials", "list")
            assert (shown["pattern"], shown["user"], shown["used_by"]) == ("default", "root", 6)
            assert set(shown) == {"pattern", "user", "author", "changed", "used_by", "doubt"}

            job = (await here.json("hardware", "credentials", "rotate", "n0000[1-2]"))["id"]
            await here.run("operation", "wait", job)
            patterns = {item["pattern"]: item["used_by"] for item in await here.json("hardware", "credentials", "list")}
            assert patterns[node] == 1 and len(patterns) == 3
            assert await here.machine.bmcs.open(node).power() is not None, "and the new one does"
            fresh = [
                here.credentials.opened(decode(entry.value)).secret()
                for entry in (await here.machine.service.controller.store.range(PREFIX)).entries
            ]
            assert len(set(fresh)) == 3 and CANARY in fresh
            assert not await CHECKS["http"](node, here.credentials.lookup("http://other")), "the old is dead"

            await here.run("hardware", "credentials", "set", "10.*", "--user", "root", stdin="x\n", code=2)
            await here.run("hardware", "credentials", "delete", "nothing", code=1)
            await here.run("hardware", "credentials", "accept-certificate", "https://10.1.0.7", code=1)
            await here.run("hardware", "credentials", "delete", node)
            await here.run("audit", "list")

            new = [word for word in fresh if word != CANARY]
            written = b"".join(path.read_bytes() for path in here.directory.glob("strata.db*"))
            everything = "\n".join([*here.said, *heard, repr(here.credentials), repr(here.credentials.records)])
            for word in new:
                assert word not in everything and word.encode() not in written
            assert f'"{CANARY}"' not in everything and f"'{CANARY}'" not in everything
            assert (await verify(here.machine.service.controller.store)).ok
            actions = [e.action for e in await Ledger(here.machine.service.controller.store).entries(0, 1000)]
            assert {"bmc-credential.set", "bmc-credential.changed", "bmc-credential.delete"} <= set(actions)
    finally:
        root.removeHandler(ear)
        root.setLevel(level)


async def test_secrets_follow_the_key_that_seals_now() -> None:
    async with site() as here:
        await here.run(
            "hardware", "credentials", "set", "default", "--user", "root", "--password-file", "-", stdin=CANARY
        )
        path = here.directory / "secrets.key"
        old = path.read_text().splitlines()[-1]
        path.write_text("q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=\n" + old + "\n")
        store = here.machine.service.controller.store
        again = BmcCredentials(store, Ledger(store), Seal.load(path))
        await again.start()
        here.machine.service.operations._kinds.clear()
        keeper = BmcCredentialService(here.machine.service, again, None, None, lambda address: None)  # type: ignore[arg-type]
        await keeper.start()
        await keeper.stop()
        await again.stop()
        path.write_text("q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=\n")
        (entry,) = (await store.range(PREFIX)).entries
        only = BmcCredentials(store, Ledger(store), Seal.load(path))
        assert only.opened(decode(entry.value)).secret() == CANARY


async def test_the_button_and_the_cables_by_command() -> None:
    async with site(40) as here:
        await here.run(
            "hardware", "credentials", "set", "default", "--user", "root", "--password-file", "-", stdin=CANARY
        )
        await here.run("emergency-off", "n00001", "--reason", "fire", "--confirm", "power off 2 nodes", code=3)
        await here.run("emergency-off", "n00001", "--reason", "fire", code=2)
        said = await here.run("emergency-off", "n0000[1-2]", "--reason", "fire", "--confirm", "power off 2 nodes")
        assert said.startswith("off: 2 nodes in") and "n[00001-00002]" in said
        assert "strata thaw --node 'n[00001-00002]'" in here.said[-1]
        assert set(here.machine.service.registry.brakes.freezes) == {"node:n00001", "node:n00002"}
        await here.run("thaw", "--node", "n[00001-00002]")
        assert not here.machine.service.registry.brakes.freezes

        tree = await here.run("fabric", "show")
        assert tree.splitlines() == [
            "fabric HSN",
            "  sw-spine[1-2]",
            "    sw-leaf1  n[00001-00032]",
            "    sw-leaf2  n[00033-00040]",
        ]
        assert '"sw-leaf1" -- "sw-spine1";' in await here.run("fabric", "show", "--dot")
        (near,) = await here.json("fabric", "near", "n0000[1-3]")
        assert near == {"switch": "sw-leaf1", "nodes": "n[00001-00003]", "count": 3}
