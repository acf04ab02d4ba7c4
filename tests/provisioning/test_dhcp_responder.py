"""What DHCP answers, decided from the nodes alone."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import pytest
from dhcp_machines import IPXE, NETWORKS, RELAY, cable, mac, node, read, request

from strata.core.node import Interface
from strata.fleet.alarm import Alarm
from strata.provisioning.dhcp import packet as p
from strata.provisioning.dhcp.responder import BROADCAST, Heard, Responder
from strata.provisioning.directory import Directory
from strata.provisioning.networks import parse

PXE = {p.VENDOR_CLASS: b"PXEClient:Arch:00007:UNDI:003001", p.ARCHITECTURE: b"\x00\x07"}


class Site:
    """A responder with what it told."""

    def __init__(self, *nodes: object, unknown: str = "ignore", lacking: Iterable[str] = ()) -> None:
        self.directory = Directory(nodes)  # type: ignore[arg-type]
        self.heard: list[Heard] = []
        self.alarms: list[Alarm] = []
        networks = parse(NETWORKS.format(unknown=unknown), source="networks.yaml")
        self.responder = Responder(
            networks, self.directory, heard=self.heard.append, alarm=self.alarms.append, lacking=lacking
        )

    def ask(  # type: ignore[no-untyped-def]
        self, packet: bytes, interface: str = "br0", now: float = 0.0, *, source: str = ""
    ):
        """``source``: where it comes from; a relay sends from the address that it writes into the packet."""
        return self.responder.answer(packet, interface, now, source or socket.inet_ntoa(packet[24:28]))


def wants(address: str) -> dict[int, bytes]:
    return {p.REQUESTED: socket.inet_aton(address), p.SERVER_ID: socket.inet_aton("10.77.0.1")}


def test_a_node_is_offered_its_own_address_and_what_belongs_to_its_network():
    seen = read(Site(node(11)).ask(request(p.DISCOVER, mac(11))))
    assert (seen.kind, seen.address, seen.to) == (p.OFFER, "10.77.0.11", BROADCAST)
    assert seen.options[p.MASK] == bytes((255, 255, 255, 0))
    assert seen.options[p.ROUTER] == socket.inet_aton("10.77.0.254")
    assert seen.options[p.DNS] == socket.inet_aton("10.77.0.1") + socket.inet_aton("10.77.0.2")
    assert seen.options[p.DOMAIN] == b"cluster.example"
    assert seen.options[p.HOST_NAME] == b"n0011"
    assert seen.options[p.LEASE] == (3600).to_bytes(4, "big")
    assert seen.options[p.SERVER_ID] == socket.inet_aton("10.77.0.1")
    assert seen.file == ""


def test_a_request_for_its_own_address_is_granted_and_told():
    site = Site(node(11))
    seen = read(site.ask(request(p.REQUEST, mac(11), wants("10.77.0.11") | {p.VENDOR_CLASS: b"udhcp\x1b[1m"})))
    assert (seen.kind, seen.address) == (p.ACK, "10.77.0.11")
    (heard,) = site.heard
    assert (heard.kind, heard.node, heard.mac, heard.address) == ("leased", "n0011", mac(11), "10.77.0.11")
    assert heard.vendor_class == "udhcp?[1m"


def test_a_request_for_another_address_is_refused_and_the_refusal_is_broadcast():
    site = Site(node(11))
    seen = read(site.ask(request(p.REQUEST, mac(11), {p.REQUESTED: socket.inet_aton("10.77.0.99")})))
    assert (seen.kind, seen.address, seen.to) == (p.NAK, "0.0.0.0", BROADCAST)
    assert not site.heard


def test_a_request_that_is_another_servers_gets_no_answer():
    options = {p.REQUESTED: socket.inet_aton("10.77.0.11"), p.SERVER_ID: socket.inet_aton("10.77.0.9")}
    assert Site(node(11)).ask(request(p.REQUEST, mac(11), options)) is None


def test_a_renewal_is_answered_to_the_address_itself():
    seen = read(Site(node(11)).ask(request(p.REQUEST, mac(11), own="10.77.0.11")))
    assert (seen.kind, seen.to) == (p.ACK, ("10.77.0.11", 68))


def test_a_renewal_of_an_address_that_the_node_has_no_more_is_refused():
    site = Site(node(11))
    site.directory.update([node(11, Interface(mac=mac(11), address="10.77.0.12"))])
    assert read(site.ask(request(p.REQUEST, mac(11), own="10.77.0.11"))).kind == p.NAK


def test_an_inform_gets_the_options_without_an_address_or_a_lease():
    seen = read(Site(node(11)).ask(request(p.INFORM, mac(11), own="10.77.0.11")))
    assert (seen.kind, seen.address, seen.to) == (p.ACK, "0.0.0.0", ("10.77.0.11", 68))
    assert p.LEASE not in seen.options
    assert p.DNS in seen.options


def test_a_changed_node_is_answered_with_the_change_at_once():
    site = Site(node(11))
    assert read(site.ask(request(p.DISCOVER, mac(11)))).address == "10.77.0.11"
    site.directory.update([node(11, Interface(mac=mac(11), address="10.77.0.90"))])
    assert read(site.ask(request(p.DISCOVER, mac(11)))).address == "10.77.0.90"
    site.directory.update([])
    assert site.ask(request(p.DISCOVER, mac(11))) is None


@pytest.mark.parametrize(
    ("options", "file"),
    [
        ({p.VENDOR_CLASS: b"PXEClient:Arch:00000", p.ARCHITECTURE: b"\x00\x00"}, "undionly.kpxe"),
        (PXE, "ipxe.efi"),
        ({p.VENDOR_CLASS: b"PXEClient", p.ARCHITECTURE: b"\x00\x09"}, "ipxe.efi"),
        ({p.VENDOR_CLASS: b"PXEClient", p.ARCHITECTURE: b"\x00\x0b"}, "ipxe-arm64.efi"),
        ({p.VENDOR_CLASS: b"HTTPClient", p.ARCHITECTURE: b"\x00\x10"}, "http://10.77.0.1:4280/boot/efi/ipxe.efi"),
        ({p.VENDOR_CLASS: b"HTTPClient", p.ARCHITECTURE: b"\x00\x13"}, "http://10.77.0.1:4280/boot/efi/ipxe-arm64.efi"),
        (IPXE, f"http://10.77.0.1:4280/boot/script?mac={mac(11)}"),
        (PXE | {p.USER_CLASS: b"\x04iPXE"}, f"http://10.77.0.1:4280/boot/script?mac={mac(11)}"),
        ({p.VENDOR_CLASS: b"PXEClient", p.ARCHITECTURE: b"\x00\x1b"}, ""),
        ({p.VENDOR_CLASS: b"PXEClient", p.ARCHITECTURE: b"\x00"}, "undionly.kpxe"),
        ({p.VENDOR_CLASS: b"udhcp 1.35"}, ""),
    ],
)
def test_a_machine_is_told_to_load_what_fits_it(options: dict[int, bytes], file: str):
    seen = read(Site(node(11)).ask(request(p.DISCOVER, mac(11), options)))
    assert (seen.file, seen.next_server) == (file, "10.77.0.1")


@pytest.mark.parametrize(
    ("vendor", "number"), [(b"PXEClient", b"\x00\x0b"), (b"HTTPClient", b"\x00\x13")], ids=["tftp", "http"]
)
def test_a_machine_that_there_is_no_ipxe_for_gets_an_address_and_no_file_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture, vendor: bytes, number: bytes
):
    site = Site(node(11), node(12), lacking=["ipxe-arm64.efi"])
    for who in (11, 12, 11):
        options = {p.VENDOR_CLASS: vendor, p.ARCHITECTURE: number}
        seen = read(site.ask(request(p.DISCOVER, mac(who), options)))
        assert (seen.address, seen.file) == (f"10.77.0.{who}", "")
        assert p.BOOT_FILE not in seen.options and p.VENDOR_CLASS not in seen.options
    told = [record for record in caplog.records if "no iPXE" in record.getMessage()]
    assert [record.__dict__["file"] for record in told] == ["ipxe-arm64.efi"]
    assert read(site.ask(request(p.DISCOVER, mac(11), PXE))).file == "ipxe.efi"


def test_firmware_is_told_not_to_look_for_other_boot_servers():
    site = Site(node(11))
    assert read(site.ask(request(p.DISCOVER, mac(11), PXE))).options[p.VENDOR] == b"\x06\x01\x08\xff"
    assert read(site.ask(request(p.DISCOVER, mac(11), IPXE))).options[p.IPXE] == b"\xb0\x01\x01"


def test_http_boot_finds_its_class_and_its_file_among_the_options():
    options = {p.VENDOR_CLASS: b"HTTPClient:Arch:00016", p.ARCHITECTURE: b"\x00\x10"}
    seen = read(Site(node(11)).ask(request(p.DISCOVER, mac(11), options)))
    assert seen.options[p.VENDOR_CLASS] == b"HTTPClient"
    assert seen.options[p.BOOT_FILE] == b"http://10.77.0.1:4280/boot/efi/ipxe.efi"


def test_the_reply_carries_what_the_machine_sent_to_recognise_it():
    options = {p.CLIENT_ID: b"\x01\x02\x03"}
    packet = request(p.DISCOVER, mac(11), options, xid=b"\xde\xad\xbe\xef")
    reply = Site(node(11)).ask(packet)
    assert reply.payload[4:8] == b"\xde\xad\xbe\xef"
    assert reply.payload[28:44] == packet[28:44]
    assert len(reply.payload) >= 300
    assert read(reply).options[p.CLIENT_ID] == b"\x01\x02\x03"


# relays and places


def test_a_relay_gets_the_answer_for_its_own_subnet_with_its_own_words():
    there = node(11, Interface(mac=mac(11), address="10.77.0.11"), Interface(mac=mac(12), address="10.78.3.4"))
    words = cable(b"switch-7", b"Eth1/5")
    packet = request(p.DISCOVER, mac(12), {p.RELAY: words}, relay="10.78.0.1")
    seen = read(Site(there).ask(packet))
    assert (seen.address, seen.to) == ("10.78.3.4", ("10.78.0.1", 67))
    assert seen.options[p.RELAY] == words
    assert list(seen.options)[-1] == p.RELAY


def test_a_relay_of_a_network_that_nobody_described_gets_no_answer():
    assert Site(node(11)).ask(request(p.DISCOVER, mac(11), relay="172.16.0.1")) is None


def test_who_says_that_it_is_a_relay_and_is_none_gets_no_answer_and_is_told_of_once():
    site = Site(node(11), node(12, Interface(mac=mac(12), address="10.78.0.12")))
    for _ in range(100):
        for number, claimed in ((11, "10.77.0.66"), (12, "10.78.0.66")):
            assert site.ask(request(p.DISCOVER, mac(number), relay=claimed)) is None
    assert site.responder.counts.undeclared == site.responder.counts.ignored == 200
    assert [(alarm.kind, alarm.peer) for alarm in site.alarms] == [
        ("rogue-relay", "10.77.0.66"),
        ("rogue-relay", "10.78.0.66"),
    ]
    assert read(site.ask(request(p.DISCOVER, mac(12), relay=RELAY))).address == "10.78.0.12"


@pytest.mark.parametrize("source", ["0.0.0.0", "10.77.0.11", "10.78.0.12"])
def test_a_machine_that_writes_a_relays_address_into_its_own_request_gets_no_answer(source: str):
    site = Site(node(12, Interface(mac=mac(12), address="10.78.0.12")))
    assert site.ask(request(p.DISCOVER, mac(12), relay=RELAY), source=source) is None
    (alarm,) = site.alarms
    assert f"relay {RELAY} sends from {source}" in alarm.message


def test_a_relay_may_send_from_another_address_that_is_declared_or_from_the_gateway():
    site = Site(node(12, Interface(mac=mac(12), address="10.78.0.12")))
    for source in ("10.77.0.250", "10.77.0.254"):
        seen = read(site.ask(request(p.DISCOVER, mac(12), relay=RELAY), source=source))
        assert seen.to == (RELAY, 67), "it is answered where it is declared, wherever it sends from"


def test_a_relay_names_no_subnet_that_does_not_declare_it():
    words = cable(b"sw", b"1") + p.option(5, socket.inet_aton("10.77.0.0"))
    site = Site(node(11))
    assert site.ask(request(p.DISCOVER, mac(11), {p.RELAY: words}, relay=RELAY)) is None
    assert site.responder.counts.undeclared == 1


def test_a_network_that_declares_no_relay_answers_its_own_machines_only():
    networks = parse("subnets: [{network: 10.77.0.0/24, interface: br0, server: 10.77.0.1}]", source="f")
    ours = Responder(networks, Directory([node(11)]))
    assert ours.answer(request(p.DISCOVER, mac(11), relay="10.77.0.254"), "br0", 0.0, "10.77.0.254") is None
    assert read(ours.answer(request(p.DISCOVER, mac(11)), "br0", 0.0)).address == "10.77.0.11"


def test_a_machine_in_an_old_place_is_the_old_node_whatever_its_mac():
    site = Site(node(11, Interface(mac=mac(11), address="10.78.0.11", port="switch-7/Eth1/5")))
    options = {p.RELAY: cable(b"switch-7", b"Eth1/5")} | IPXE
    seen = read(site.ask(request(p.DISCOVER, mac(99), options, relay="10.78.0.1")))
    assert seen.address == "10.78.0.11"
    assert seen.file == f"http://10.77.0.1:4280/boot/script/n0011?mac={mac(99)}"
    again = wants("10.78.0.11") | options
    assert read(site.ask(request(p.REQUEST, mac(99), again, relay="10.78.0.1"))).kind == p.ACK
    (heard,) = site.heard
    assert (heard.node, heard.mac, heard.port) == ("n0011", mac(99), "switch-7/Eth1/5")


def test_a_machine_that_moved_is_the_node_of_its_new_place():
    old = node(11, Interface(mac=mac(11), address="10.78.0.11", port="sw/1"))
    new = node(12, Interface(mac=mac(12), address="10.78.0.12", port="sw/2"))
    options = {p.RELAY: cable(b"sw", b"2")}
    seen = read(Site(old, new).ask(request(p.DISCOVER, mac(11), options, relay="10.78.0.1")))
    assert seen.address == "10.78.0.12"


def test_a_place_in_bytes_is_written_in_hexadecimal_digits():
    site = Site(node(11, Interface(address="10.78.0.11", port="0x0006aabbccddeeff/0x000400010005")))
    options = {p.RELAY: cable(bytes.fromhex("0006aabbccddeeff"), bytes.fromhex("000400010005"))}
    assert read(site.ask(request(p.DISCOVER, mac(50), options, relay="10.78.0.1"))).address == "10.78.0.11"


def test_a_place_is_believed_from_a_relay_or_a_trusted_switch_and_from_nobody_else():
    places = node(11, Interface(address="10.77.0.11", port="sw/1"), Interface(address="10.79.0.11", port="sw/2"))
    site = Site(places)
    assert site.ask(request(p.DISCOVER, mac(50), {p.RELAY: cable(b"sw", b"1")})) is None
    snooped = site.ask(request(p.DISCOVER, mac(50), {p.RELAY: cable(b"sw", b"2")}), "br1")
    assert read(snooped).address == "10.79.0.11"


def test_the_subnet_that_a_relay_names_counts_more_than_its_own_address():
    words = cable(b"sw", b"1") + p.option(5, socket.inet_aton("10.78.0.0"))
    site = Site(node(11, Interface(mac=mac(11), address="10.78.0.11")))
    seen = read(site.ask(request(p.DISCOVER, mac(11), {p.RELAY: words}, relay="10.77.0.250")))
    assert (seen.address, seen.to) == ("10.78.0.11", ("10.77.0.250", 67))


def test_each_interface_of_a_node_gets_its_own_address_where_it_is():
    both = node(11, Interface(mac=mac(11), address="10.77.0.11"), Interface(mac=mac(12), address="10.79.0.11"))
    site = Site(both)
    assert read(site.ask(request(p.DISCOVER, mac(11)))).address == "10.77.0.11"
    assert read(site.ask(request(p.DISCOVER, mac(12)), "br1")).address == "10.79.0.11"
    assert site.ask(request(p.DISCOVER, mac(12)), "br0") is None


def test_a_mac_that_two_nodes_claim_is_answered_for_neither():
    site = Site(node(11), node(12, Interface(mac=mac(11), address="10.77.0.12")))
    assert site.ask(request(p.DISCOVER, mac(11))) is None


# machines that are no nodes


def test_an_unknown_machine_is_ignored_and_raises_one_alarm():
    site = Site(node(11))
    for _ in range(100):
        assert site.ask(request(p.DISCOVER, mac(99))) is None
    (alarm,) = site.alarms
    assert (alarm.kind, alarm.peer) == ("rogue-machine", mac(99))
    assert site.responder.counts.ignored == 100


def test_an_unknown_machine_is_sent_to_discovery_where_that_is_the_policy():
    site = Site(node(11), unknown="discover")
    seen = read(site.ask(request(p.DISCOVER, mac(99), IPXE)))
    assert seen.file == f"http://10.77.0.1:4280/boot/script?mac={mac(99)}"
    assert seen.address in {f"10.77.0.{last}" for last in range(200, 208)}
    assert seen.options[p.LEASE] == (300).to_bytes(4, "big")
    assert p.HOST_NAME not in seen.options
    assert read(site.ask(request(p.REQUEST, mac(99), wants(seen.address)))).kind == p.ACK
    assert not site.alarms


def test_two_unknown_machines_never_hold_one_address_and_a_full_part_refuses():
    site = Site(unknown="discover")
    held = set()
    for number in range(8):
        address = read(site.ask(request(p.DISCOVER, mac(number + 1)))).address
        assert read(site.ask(request(p.REQUEST, mac(number + 1), wants(address)))).kind == p.ACK
        held.add(address)
    assert len(held) == 8
    assert site.ask(request(p.DISCOVER, mac(99))) is None
    assert read(site.ask(request(p.DISCOVER, mac(99)), now=301.0)).address in held


def test_an_address_that_another_took_after_the_offer_is_refused():
    site = Site(unknown="discover")
    numbers = range(1, 200)
    offers = {number: read(site.ask(request(p.DISCOVER, mac(number)))).address for number in numbers}
    first, second = next((a, b) for a in numbers for b in numbers if a < b and offers[a] == offers[b])
    assert read(site.ask(request(p.REQUEST, mac(first), wants(offers[first])))).kind == p.ACK
    assert read(site.ask(request(p.REQUEST, mac(second), wants(offers[second])))).kind == p.NAK


def test_an_unknown_machine_that_leaves_gives_its_address_back():
    site = Site(unknown="discover")
    address = read(site.ask(request(p.DISCOVER, mac(1)))).address
    site.ask(request(p.REQUEST, mac(1), wants(address)))
    assert site.ask(request(p.RELEASE, mac(1), own=address)) is None
    assert [heard.kind for heard in site.heard] == ["leased", "released"]


def test_an_adopted_machine_gets_its_own_address_from_then_on():
    site = Site(unknown="discover")
    address = read(site.ask(request(p.DISCOVER, mac(20)))).address
    site.ask(request(p.REQUEST, mac(20), wants(address)))
    site.directory.update([node(20)])
    assert read(site.ask(request(p.REQUEST, mac(20), own=address))).kind == p.NAK
    assert read(site.ask(request(p.DISCOVER, mac(20)))).address == "10.77.0.20"


def test_an_address_of_a_node_is_never_given_to_an_unknown_machine():
    taken = [node(last, Interface(mac=mac(last), address=f"10.77.0.{last}")) for last in range(200, 207)]
    site = Site(*taken, unknown="discover")
    assert {read(site.ask(request(p.DISCOVER, mac(1000 + n)))).address for n in range(20)} == {"10.77.0.207"}


def test_a_machine_that_finds_its_address_in_use_is_told_of():
    site = Site(node(11))
    assert site.ask(request(p.DECLINE, mac(11), wants("10.77.0.11"))) is None
    (heard,) = site.heard
    assert (heard.kind, heard.node) == ("declined", "n0011")
