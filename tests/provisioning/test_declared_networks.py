"""Boot networks from the site repository: a real service on a wire of its own, asked by a real DHCP client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from dhcp_wire import MACHINE_MAC, Wire, ip

from strata.core.errors import BadRequest, Unavailable
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.alarm import Alarm
from strata.provisioning.bootnets.here import here, require_sound
from strata.provisioning.bootnets.records import NetworkEntry
from strata.provisioning.bootnets.service import AGAIN, BootNetworks
from strata.provisioning.networks import Networks, parse
from support.platform_fleet import platform_fleet

PATIENCE = 120.0
NODE = f"""
kind: node
name: n1
interfaces: [{{mac: "{MACHINE_MAC}", address: 10.77.0.11, name: boot}}]
---
"""
NETWORK = """
kind: network
name: boot
network: 10.77.0.0/24
gateway: 10.77.0.1
dns: [10.77.0.1]
lease: 1800
---
kind: network
name: elsewhere
network: 10.99.0.0/24
"""


def declared(**more: NetworkEntry) -> dict[str, NetworkEntry]:
    return {"boot": NetworkEntry(name="boot", network="10.77.0.0/24", gateway="10.77.0.1"), **more}


def test_a_network_is_served_by_the_interface_that_has_an_address_in_it_and_relays_by_that_of_another() -> None:
    far = NetworkEntry(name="far", network="10.80.0.0/22", gateway="10.80.0.1", via="boot")
    own = [("lo", IPv4Address("127.0.0.1")), ("eth1", IPv4Address("10.77.0.9")), ("br0", IPv4Address("10.77.0.2"))]
    found = here(declared(far=far), own, ())
    assert {name: (subnet.interface, str(subnet.server)) for name, subnet in found.names.items()} == {
        "boot": ("br0", "10.77.0.2"),
        "far": ("br0", "10.77.0.2"),
    }
    assert found.names["far"].relayed_by == (IPv4Address("10.80.0.1"),)
    nowhere = here(declared(far=far), own[:1], ())
    assert (nowhere.subnets, set(nowhere.unserved)) == ((), {"boot", "far"})


def test_what_the_controllers_own_file_says_of_a_network_rules_there() -> None:
    file = parse("subnets: [{network: 10.77.0.0/24, interface: eth7, server: 10.77.0.7}]", source="f").subnets
    found = here(declared(), [("br0", IPv4Address("10.77.0.2"))], file)
    assert (found.subnets, found.names["boot"].interface) == (file, "eth7")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"name": "far", "network": "10.77.0.128/25"}, "10.77.0.128/25 overlaps 10.77.0.0/24 of network boot"),
        ({"name": "far", "network": "10.80.0.0/22", "via": "bot", "gateway": "10.80.0.1"}, "bot is no network that we"),
        ({"name": "far", "network": "10.80.0.0/22", "via": "boot"}, "so its machines need a relay, and none is named"),
        ({"name": "far", "network": "10.80.0.1/22"}, "expected an IPv4 network such as 10.77.0.0/24"),
        ({"name": "far", "network": "10.80.0.0/22", "range": "10.80.0.9"}, "expected FIRST-LAST"),
        ({"name": "far", "network": "10.80.0.0/22", "prefix": "fd77::/48"}, "in a /64 only"),
    ],
)
def test_networks_that_cannot_be_served_side_by_side_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(words)):
        require_sound(declared(far=NetworkEntry(**more)))


async def test_networks_that_cannot_be_listened_on_leave_the_others_as_they_are_and_somebody_is_told(
    tmp_path: Path,
) -> None:
    networks, own, served, alarms = Networks(), [("br0", IPv4Address("10.77.0.2"))], list[int](), list[Alarm]()

    async def follow() -> None:
        served.append(len(networks.subnets))
        if len(networks.subnets) > 1:
            raise Unavailable("TFTP cannot be served: the port is taken", where="10.80.0.1:69")

    async with platform_fleet(tmp_path, ()) as fleet:
        fleet.alarms.append(alarms.append)
        found = BootNetworks(fleet, networks, lambda: own)
        found.followers.append(follow)
        await found.records.start()
        await found.records.put("test", "boot", declared()["boot"])
        await found.look()
        assert served == [1]
        await found.records.put("test", "far", NetworkEntry(name="far", network="10.80.0.0/22"))
        own.append(("eth1", IPv4Address("10.80.0.1")))
        await found.look()
        assert (served, [str(one.network) for one in networks.subnets]) == ([1, 2, 1], ["10.77.0.0/24"])
        assert "the port is taken" in alarms[-1].message
        await found.look()
        assert served == [1, 2, 1], "it is not tried over and over"
        found._tried -= AGAIN
        await found.look()
        assert served == [1, 2, 1, 2, 1], "but it is after a while: the port may be free by then"
        own.pop()
        await found.look()
        own.append(("eth1", IPv4Address("10.80.0.2")))
        assert {item.name: item.interface for item in (await found.all(LOCAL_ADMIN)).items}["boot"] == "br0"
        await found.records.stop()


class Service:
    """``strata serve`` in our side of a wire, with a networks file that describes none; and its repository."""

    def __init__(self, wire: Wire, directory: Path) -> None:
        self.state, self.site = directory / "state", directory / "site"
        self.state.mkdir()
        self.site.mkdir()
        networks = directory / "networks.yaml"
        networks.write_text("boot_port: 4280\n")
        self._environment = {**os.environ, "STRATA_STATE": str(self.state)}
        command = ["serve", "--state-dir", str(self.state), "--config", os.devnull, "--set", "platform.workload=none"]
        command += ["--networks", str(networks), "--netns", wire.ours, "--listen", "0.0.0.0:8443"]
        self.log = directory / "serve.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "strata.cli", *command], stdout=log, stderr=log, env=self._environment
            )
        self.git("init", "--quiet", "--initial-branch=main")
        self.eventually("it answers", lambda: self.strata("status", check=False).returncode == 0)

    def git(self, *words: str) -> None:
        identity = ["-c", "user.name=Ann", "-c", "user.email=ann@site.example"]
        subprocess.run(["git", "-C", str(self.site), *identity, *words], check=True, capture_output=True, timeout=60)

    def commit(self, text: str) -> None:
        (self.site / "all.yaml").write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "change")

    def strata(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "strata.cli", *words]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=PATIENCE, env=self._environment
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def eventually(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, f"{what}: {self.log.read_text()[-3000:]}"
            time.sleep(0.2)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


@pytest.fixture
def service(wire: Wire, tmp_path: Path) -> Iterator[Service]:
    service = Service(wire, tmp_path)
    yield service
    service.stop()


@pytest.mark.server
@pytest.mark.slow
def test_a_network_of_the_repository_is_served_where_the_controller_is_on_it_until_a_revert(
    wire: Wire, service: Service, tmp_path: Path
) -> None:
    assert wire.leased("boot", tmp_path) == {}, "nobody has declared a network"
    service.commit(NODE + NETWORK)
    plan = service.strata("config", "plan", str(service.site)).stdout
    assert "10.77.0.0/24" in plan
    service.strata("config", "apply", str(service.site))

    service.eventually("DHCP answers", lambda: bool(wire.leased("boot", tmp_path)))
    got = wire.leased("boot", tmp_path)
    assert (got["ip"], got["router"], got["lease"], got["serverid"]) == ("10.77.0.11", "10.77.0.1", "1800", "10.77.0.1")
    assert wire.leased("other", tmp_path) == {}
    listed = service.strata("network", "list").stdout
    assert "this controller has no address in 10.99.0.0/24" in listed
    ip("-n", wire.theirs, "address", "add", "10.77.0.11/24", "dev", "boot")
    for what, port in (("the boot server", 4280), ("what serves kernels", 4281)):
        asked = ["busybox", "wget", "-O", "-", f"http://10.77.0.1:{port}/nothing"]
        service.eventually(f"{what} answers", lambda asked=asked: "HTTP/1.1 404" in wire.run(*asked).stderr)  # type: ignore[misc]

    # What is there can be written down again, and comes to the same.
    written = tmp_path / "written"
    service.strata("config", "import", str(written))
    again = service.strata("config", "plan", str(written)).stdout
    assert "nothing would change" in again, again

    service.commit(NODE)
    service.strata("config", "apply", str(service.site), "--remove-most")
    service.eventually("DHCP is silent", lambda: not wire.leased("boot", tmp_path))
