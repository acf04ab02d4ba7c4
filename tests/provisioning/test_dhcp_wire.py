"""DHCP and router advertisements between real sockets, asked by other people's clients."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dhcp_machines import IPXE, cable, mac, node, read, request
from dhcp_wire import MACHINE_MAC, SERVER, Server, Wire, ip

from strata.core.node import Interface, Node
from strata.provisioning.dhcp import packet as p
from strata.provisioning.dhcp.responder import Reply

pytestmark = [pytest.mark.server, pytest.mark.slow]

NETWORKS = """
subnets:
  - {network: 10.77.0.0/24, interface: boot, server: 10.77.0.1, dns: [10.77.0.1], gateway: 10.77.0.1,
     relays: [10.77.0.11]}
  - {network: 10.90.0.0/24, interface: boot, server: 10.77.0.1, gateway: 10.90.0.1}
ipv6:
  - {prefix: "fd77::/64", interface: boot, dns: ["fd77::1"], domains: [cluster.example]}
"""
PERFDHCP = 0x000C01020300


def nodes() -> list[Node]:
    known = [node(11), node(12, Interface(address="10.90.0.12", port="sw/Eth1/5"))]
    for at in range(100):
        own = Interface(mac=(PERFDHCP + at).to_bytes(6, "big").hex(":"), address=f"10.77.0.{100 + at}")
        known.append(Node(name=f"p{at}", uid=1000 + at, interfaces=(own,)))
    return known


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


@pytest.fixture
def server(wire: Wire, tmp_path: Path) -> Iterator[Server]:
    server = Server(wire, NETWORKS, nodes(), tmp_path)
    yield server
    server.stop()


def test_a_machine_gets_its_address_on_the_interface_that_was_named_and_on_no_other(
    wire: Wire, server: Server, tmp_path: Path
):
    got = wire.leased("boot", tmp_path)
    assert (got["ip"], got["subnet"], got["router"], got["dns"]) == ("10.77.0.11", "255.255.255.0", SERVER, SERVER)
    assert (got["serverid"], got["lease"], got["hostname"]) == (SERVER, "3600", "n0011")
    heard = server.hear("heard")["heard"]
    assert (heard["node"], heard["mac"], heard["interface"]) == ("n0011", MACHINE_MAC, "boot")
    assert wire.leased("other", tmp_path) == {}


def test_hundreds_of_exchanges_lose_none(wire: Wire, server: Server):
    ip("-n", wire.theirs, "address", "add", "10.77.0.11/24", "dev", "boot")
    try:
        done = wire.run(
            "perfdhcp", "-4", "-l", "boot", "-R", "20", "-r", "200", "-n", "400", "-d", "10", "-W", "1000000", SERVER
        )
        assert "received packets: 400" in done.stdout, done.stdout
        assert "drops: 0" in done.stdout
        assert done.stdout.count("rejected leases: 0") == 2
        asked = wire.run("dhcping", "-c", "10.77.0.11", "-s", SERVER, "-h", MACHINE_MAC, "-t", "5")
        assert "Got answer from: 10.77.0.1" in asked.stdout + asked.stderr
    finally:
        ip("-n", wire.theirs, "address", "delete", "10.77.0.11/24", "dev", "boot")


def test_a_relay_gets_its_answer_with_its_own_words_from_the_address_that_it_asked(wire: Wire, server: Server):
    words = cable(b"sw", b"Eth1/5")

    def relay() -> tuple[bytes, tuple[str, int]]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("10.90.0.1", 67))
            sock.settimeout(60)
            sock.sendto(request(p.DISCOVER, mac(99), IPXE | {p.RELAY: words}, relay="10.90.0.1"), (SERVER, 67))
            return sock.recvfrom(2048)

    ip("-n", wire.theirs, "address", "add", "10.90.0.1/24", "dev", "boot")
    ip("-n", wire.theirs, "route", "add", "10.77.0.0/24", "dev", "boot")
    ip("-n", wire.ours, "route", "add", "10.90.0.0/24", "dev", "boot")
    try:
        payload, source = wire.inside(relay)
    finally:
        ip("-n", wire.ours, "route", "delete", "10.90.0.0/24")
        ip("-n", wire.theirs, "route", "delete", "10.77.0.0/24")
        ip("-n", wire.theirs, "address", "delete", "10.90.0.1/24", "dev", "boot")
    seen = read(Reply(payload, ("", 0), b""))
    assert source == (SERVER, 67)
    assert (seen.address, seen.options[p.RELAY]) == ("10.90.0.12", words)
    assert seen.file == f"http://{SERVER}:4280/boot/script/n0012?mac={mac(99)}"


def test_a_machine_that_says_that_it_is_a_relay_gets_no_answer_and_is_told_of(wire: Wire, server: Server):
    def both() -> tuple[bytes, tuple[str, int]]:
        """The stranger asks first; whatever comes back is the answer to the one after it, by a relay."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("0.0.0.0", 67))
            sock.settimeout(60)
            for relay, xid in (("10.77.0.66", b"gift"), ("10.77.0.11", b"good")):
                sock.sendto(request(p.DISCOVER, MACHINE_MAC, IPXE, relay=relay, xid=xid), (SERVER, 67))
            return sock.recvfrom(2048)

    for address in ("10.77.0.11", "10.77.0.66"):
        ip("-n", wire.theirs, "address", "add", f"{address}/24", "dev", "boot")
    try:
        payload, _ = wire.inside(both)
    finally:
        for address in ("10.77.0.66", "10.77.0.11"):  # the first one takes those after it along
            ip("-n", wire.theirs, "address", "delete", f"{address}/24", "dev", "boot")
    assert payload[4:8] == b"good"
    alarm = server.hear("alarm")["alarm"]
    assert alarm["kind"] == "rogue-relay"
    assert "10.77.0.66" in alarm["message"]


def test_machines_make_their_own_ipv6_addresses_and_learn_the_resolvers(wire: Wire, server: Server):
    def advertised() -> bytes:
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as sock:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            sock.settimeout(60)
            index = socket.if_nametoindex("boot")
            sock.sendto(struct.pack("!BBHI", 133, 0, 0, 0), ("ff02::2", 0, 0, index))
            while (packet := sock.recv(2048))[0] != 134:
                pass
            return packet

    advertisement = wire.inside(advertised)
    assert advertisement[6:8] == b"\x00\x00"  # we are no router
    assert socket.inet_pton(socket.AF_INET6, "fd77::") in advertisement
    assert socket.inet_pton(socket.AF_INET6, "fd77::1") in advertisement
    assert b"\x07cluster\x07example" in advertisement
    deadline = time.monotonic() + 60
    while "fd77::" not in ip("-n", wire.theirs, "-6", "address", "show", "dev", "boot"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_nothing_outlives_a_server_that_was_killed(wire: Wire, tmp_path: Path):
    server = Server(wire, NETWORKS, nodes(), tmp_path)
    children = _below(server.process.pid)
    assert {name for name, _ in children} >= {"in.tftpd", "radvd"}
    os.kill(server.process.pid, signal.SIGKILL)
    server.stop()
    deadline = time.monotonic() + 60
    while any(_runs(pid) for _, pid in children):
        assert time.monotonic() < deadline, children
        time.sleep(0.02)


def test_an_interface_that_goes_and_comes_back_is_served_again(wire: Wire, server: Server, tmp_path: Path):
    ip("-n", wire.ours, "link", "delete", "boot")
    ip("-n", wire.ours, "link", "add", "boot", "type", "veth", "peer", "name", "boot", "netns", wire.theirs)
    ip("-n", wire.ours, "address", "add", "10.77.0.1/24", "dev", "boot")
    ip("-n", wire.theirs, "link", "set", "boot", "address", MACHINE_MAC)
    for name in (wire.ours, wire.theirs):
        ip("-n", name, "link", "set", "boot", "up")
    deadline = time.monotonic() + 60
    while not (got := wire.leased("boot", tmp_path)):
        assert time.monotonic() < deadline
    assert got["ip"] == "10.77.0.11"


def test_a_host_without_ipv6_serves_all_the_same(wire: Wire, tmp_path: Path):
    ip("netns", "exec", wire.ours, "sysctl", "-qw", "net.ipv6.conf.boot.disable_ipv6=1")
    server = Server(wire, "subnets: [{network: 10.77.0.0/24, interface: boot, server: 10.77.0.1}]", nodes(), tmp_path)
    try:
        assert server.hear("ready", "error") == {"ready": True}
        assert wire.leased("boot", tmp_path)["ip"] == "10.77.0.11"
    finally:
        server.stop()
        ip("netns", "exec", wire.ours, "sysctl", "-qw", "net.ipv6.conf.boot.disable_ipv6=0")


@pytest.mark.parametrize(
    ("networks", "complaint"),
    [
        ("subnets: [{network: 10.77.0.0/24, interface: boot, server: 10.77.0.9}]", "the server's address is not ours"),
        (
            "subnets: [{network: 10.77.0.0/24, interface: nope, server: 10.77.0.1}]",
            "subnets[0].interface: this machine has no interface nope; it has boot, lo",
        ),
        ("ipv6: [{prefix: 'fd77::/64', interface: nope}]", "ipv6[0].interface: this machine has no interface nope"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(wire: Wire, tmp_path: Path, networks: str, complaint: str):
    server = Server(wire, networks, [], tmp_path)
    said = server.hear("error", "ready")
    server.stop()
    assert complaint in said.get("error", "")


def _below(pid: int) -> list[tuple[str, int]]:
    """Name and pid of every process under one."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found.append((Path(f"/proc/{child}/comm").read_text().strip(), int(child)))
        found += _below(int(child))
    return found


def _runs(pid: int) -> bool:
    """Whether there is more of a process than what its parent has not taken note of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
