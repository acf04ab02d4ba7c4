"""A real machine (QEMU with its own iPXE) boots from the real DHCP, boot service and nginx, and tries again on failure.

The kernel is a stand-in that needs no build: iPXE in the form of a Linux kernel, which says on the console that it
runs.
"""

from __future__ import annotations

import base64
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strata.virtual.qemu import network
from strata.virtual.qemu.create import create, destroy
from strata.virtual.qemu.description import Options
from support.signed_builds import a_manifest, digest_of, put_build

pytestmark = [pytest.mark.server, pytest.mark.slow]

BUILD = digest_of(a_manifest(b"", b"#!ipxe\n"))
GROUND = Path(__file__).with_name("boot_services.py")
IPXE = Path("/usr/lib/ipxe/ipxe.lkrn")


class Chassis:
    """A chassis with one node, and its boot network."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "chassis"
        state = directory / "state"
        put_build(state / "minos", state / "signing", b"", b"#!ipxe\n")
        self.served = state / "served" / BUILD
        self.served.mkdir(parents=True)
        (self.served / "initrd").write_text("#!ipxe\n")
        self.found = create(Options(directory=self.directory, nodes=1, memory=256, host_link=False))
        inside = network.prefix_of(self.found.namespace)
        self.site = subprocess.Popen(
            [*inside, sys.executable, str(GROUND), str(self.directory), str(state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.said() == "ready"

    def said(self, limit: float = 60.0) -> str:
        """The next line of the boot network's process."""
        assert self.site.stdout is not None
        assert select.select([self.site.stdout], [], [], limit)[0], "the boot network says nothing"
        return self.site.stdout.readline().decode().strip()

    def switch_on(self) -> None:
        node = self.found.nodes[0]
        account = f"{self.found.user}:{(self.directory / 'bmc.password').read_text().strip()}"
        code = (
            "import sys, urllib.request as u\n"
            "r = u.Request(sys.argv[1], b'{\"ResetType\": \"On\"}', {'Content-Type': 'application/json',"
            " 'Authorization': 'Basic ' + sys.stdin.read()})\n"
            "u.build_opener(u.ProxyHandler({})).open(r, timeout=30)\n"
        )
        address = f"{node.bmc}/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
        command = [*network.prefix_of(self.found.namespace), sys.executable, "-c", code, address]
        subprocess.run(command, input=base64.b64encode(account.encode()), check=True, timeout=60)

    def until(self, text: str, *, after: str = "", limit: float = 150.0) -> str:
        """Wait until the console has said ``text`` (behind ``after``); all that it said."""
        log = self.directory / "nodes" / self.found.nodes[0].name / "console.log"
        end = time.monotonic() + limit
        while True:
            console = log.read_text(errors="replace") if log.exists() else ""
            if text in console.partition(after)[2] if after else text in console:
                return console
            assert time.monotonic() < end, f"{text!r} was not said: {console[-3000:]}"
            time.sleep(0.2)

    def stop(self) -> None:
        assert self.site.stdin is not None and self.site.stdout is not None
        self.site.stdin.close()
        try:
            self.site.wait(60)
        finally:
            self.site.kill()
            self.site.wait()
            self.site.stdout.close()
            destroy(self.directory)


@pytest.fixture
def chassis(tmp_path: Path) -> Iterator[Chassis]:
    if not IPXE.exists():
        pytest.fail("iPXE is not installed: make setup")
    found = Chassis(tmp_path)
    yield found
    found.stop()


def test_a_machine_that_cannot_fetch_its_kernel_waits_longer_each_time_and_boots_once_it_can(chassis: Chassis) -> None:
    chassis.switch_on()
    console = chassis.until("trying again in 4 seconds")
    assert "Strata: node n0001, boot 1" in console
    assert "trying again in 2 seconds" in console
    part = chassis.served / "part"
    shutil.copy(IPXE, part)
    part.rename(chassis.served / "vmlinuz")
    console = chassis.until("/boot/fragment/n0001/1... ok")
    assert "boot 2" not in console  # what failed before the fragment used up no boot
    chassis.until("iPXE initialising devices", after="/boot/fragment/n0001/1... ok")
    assert chassis.site.poll() is None
