"""Somebody takes the address of a node: the real boot service, between real network namespaces."""

from __future__ import annotations

import asyncio
import http.client
import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dhcp_wire import MACHINE_MAC, SERVER, Wire, ip

from strata.provisioning.boot.neighbours import Neighbours
from support.signed_builds import a_manifest, digest_of, put_build

pytestmark = [pytest.mark.server, pytest.mark.slow]

GROUND = Path(__file__).with_name("boot_services.py")
NAME, ADDRESS, STRANGER = "n0011", "10.77.0.11", "52:54:00:00:00:66"


class Machine:
    """The machine at the other end of the wire, with the address of a node."""

    def __init__(self, wire: Wire, directory: Path, **interface: str) -> None:
        self.wire = wire
        state, chassis = directory / "state", directory / "chassis"
        put_build(state / "minos", state / "signing", b"", b"")
        (state / "served" / digest_of(a_manifest(b"", b""))).mkdir(parents=True)
        chassis.mkdir()
        node = {"name": NAME, "mac": MACHINE_MAC, "address": ADDRESS, **interface}
        found = {"network": "10.77.0.0/24", "bridge": "boot", "server": SERVER, "nodes": [node]}
        (chassis / "chassis.json").write_text(json.dumps(found))
        self.site = subprocess.Popen(
            ["ip", "netns", "exec", wire.ours, sys.executable, str(GROUND), str(chassis), str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.said() == "ready"

    def said(self) -> str:
        """The next line of the boot network's process."""
        assert self.site.stdout is not None
        assert select.select([self.site.stdout], [], [], 60)[0], "the boot network says nothing"
        return self.site.stdout.readline().decode().strip()

    def becomes(self, mac: str) -> None:
        """Another machine has the address now: it asks who the server is, as any does."""
        ip("-n", self.wire.theirs, "link", "set", "boot", "address", mac)
        ip("-n", self.wire.theirs, "neigh", "flush", "dev", "boot")

    def get(self, path: str) -> int:
        """The status that it is answered with."""

        def asked() -> int:
            connection = http.client.HTTPConnection(SERVER, 4280, timeout=60)
            try:
                connection.request("GET", path, headers={"User-Agent": "iPXE/1.21.1"})
                return connection.getresponse().status
            finally:
                connection.close()

        return self.wire.inside(asked)

    def stop(self) -> None:
        assert self.site.stdin is not None and self.site.stdout is not None
        self.site.stdin.close()
        try:
            self.site.wait(60)
        finally:
            self.site.kill()
            self.site.wait()
            self.site.stdout.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    ip("-n", wire.theirs, "address", "add", f"{ADDRESS}/24", "dev", "boot")
    yield wire
    wire.close()


@pytest.fixture
def machine(wire: Wire, tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(wire, tmp_path)
    yield machine
    machine.stop()


def test_another_machine_with_the_address_of_a_node_gets_no_boot_data_and_is_told_of(machine: Machine) -> None:
    machine.becomes(STRANGER)
    assert machine.get(f"/boot/fragment/{NAME}/1") == 403
    alarm = json.loads(machine.said())
    assert (alarm["kind"], alarm["node"], alarm["peer"]) == ("boot-data-refused", NAME, ADDRESS)
    assert STRANGER in alarm["message"]
    machine.becomes(MACHINE_MAC)
    assert machine.get(f"/boot/fragment/{NAME}/1") == 200, "the node itself has lost nothing by it"


def test_the_kernel_tells_the_macs_of_all_that_are_asked_about_together(wire: Wire) -> None:
    known = {f"10.77.0.{number}": f"52:54:00:00:01:{number:02x}" for number in range(20, 220)}
    batch = "".join(f"neigh add {at} lladdr {mac} dev boot nud permanent\n" for at, mac in known.items())
    subprocess.run(["ip", "-n", wire.theirs, "-batch", "-"], input=batch.encode(), check=True, timeout=120)

    async def look() -> list[str]:
        neighbours = Neighbours()
        neighbours.start()
        asked = [("boot", address) for address in known] + [
            ("boot", "10.77.0.250"),
            ("lo", "127.0.0.1"),
            ("none", "10.77.0.20"),
        ]
        try:
            return await asyncio.gather(*(neighbours.mac(*one) for one in asked))
        finally:
            await neighbours.stop()

    assert wire.inside(lambda: asyncio.run(look())) == [*known.values(), "", "", ""]
