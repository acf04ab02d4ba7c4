"""DHCP on a network where machines send anything."""

from __future__ import annotations

import logging
import random
import tracemalloc

import pytest
from dhcp_machines import IPXE, NETWORKS, RELAY, cable, mac, node, read, request

from strata.core.node import Interface
from strata.provisioning.dhcp import packet as p
from strata.provisioning.dhcp.quiet import Quiet
from strata.provisioning.dhcp.responder import Responder
from strata.provisioning.directory import Directory
from strata.provisioning.networks import parse

PACKETS = 100_000


def responder(unknown: str, told: list[object]) -> Responder:
    nodes = [node(11), node(12, Interface(mac=mac(12), address="10.78.0.12", port="sw/1"))]
    networks = parse(NETWORKS.format(unknown=unknown), source="networks.yaml")
    return Responder(networks, Directory(nodes), heard=told.append, alarm=told.append)


def seeds() -> list[bytes]:
    """Good requests to spoil."""
    options = IPXE | {p.RELAY: cable(b"sw", b"1"), p.CLIENT_ID: b"\x01" + bytes(6), p.HOST_NAME: b"x" * 200}
    return [
        request(kind, who, options, relay=relay, own=own)
        for kind in (p.DISCOVER, p.REQUEST, p.INFORM, p.RELEASE, p.DECLINE)
        for who in (mac(11), mac(12), mac(99))
        for relay in ("0.0.0.0", RELAY)
        for own in ("0.0.0.0", "10.77.0.11")
    ]


def spoilt(chance: random.Random, packet: bytes) -> bytes:
    """One way of being malformed: cut off, overrunning options, no options at all, or no DHCP in the first place."""
    how = chance.randrange(6)
    if how == 0:
        return packet[: chance.randrange(240)]
    if how == 1:
        return packet[:240] + bytes((chance.randrange(1, 255), 255)) + chance.randbytes(chance.randrange(200))
    if how == 2:
        return packet[:236] + chance.randbytes(4) + packet[240:]
    if how == 3:
        return bytes((chance.randrange(2, 256),)) + packet[1:]
    if how == 4:
        return packet[:1] + bytes((chance.randrange(2, 256), chance.randrange(7, 256))) + packet[3:]
    return chance.randbytes(chance.randrange(240))


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["ignore", "discover"])
def test_a_hundred_thousand_malformed_packets_change_nothing(unknown: str):
    chance = random.Random(4)
    told: list[object] = []
    ours = responder(unknown, told)
    good = seeds()
    for _ in range(PACKETS):
        assert ours.answer(spoilt(chance, chance.choice(good)), "br0", 0.0, RELAY) is None
    assert ours.counts.malformed == PACKETS
    assert told == []
    assert read(ours.answer(request(p.DISCOVER, mac(11)), "br0", 0.0)).address == "10.77.0.11"


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["ignore", "discover"])
def test_flipped_bytes_never_raise_and_never_get_a_node_another_address(unknown: str):
    chance = random.Random(5)
    ours = responder(unknown, [])
    good = seeds()
    for _ in range(PACKETS):
        packet = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 8)):
            packet[chance.randrange(len(packet))] = chance.randrange(256)
        reply = ours.answer(bytes(packet), "br0", 0.0, RELAY)
        if reply is not None and reply.payload[242] in (p.OFFER, p.ACK) and packet[28:34].hex(":") == mac(11):
            assert reply.payload[16:20] in (bytes((10, 77, 0, 11)), bytes((10, 78, 0, 12)), bytes(4))
        if reply is not None:
            assert len(reply.payload) < 1000


@pytest.mark.slow
@pytest.mark.parametrize("unknown", ["ignore", "discover"])
def test_a_flood_of_random_macs_costs_no_memory_and_fills_no_log(unknown: str, caplog: pytest.LogCaptureFixture):
    chance = random.Random(6)
    told: list[object] = []
    ours = responder(unknown, told)
    template = request(p.DISCOVER, mac(0))

    def flood(count: int) -> None:
        for at in range(count):
            who = (chance.getrandbits(48) & ~(1 << 40)).to_bytes(6, "big")
            ours.answer(template[:28] + who + template[34:], "br0", at / 10_000)

    with caplog.at_level(logging.DEBUG):
        flood(50_000)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            flood(50_000)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 300_000
    assert len(caplog.records) < 100
    assert len(told) < 100


@pytest.mark.slow
def test_a_flood_that_takes_addresses_gets_no_more_than_there_are_for_discovery():
    ours = responder("discover", [])
    taken = set()
    for number in range(20_000):
        offer = ours.answer(request(p.DISCOVER, mac(number + 1000)), "br0", 0.0)
        if offer is not None:
            options = {p.REQUESTED: offer.payload[16:20]}
            taken.add(read(ours.answer(request(p.REQUEST, mac(number + 1000), options), "br0", 0.0)).address)
    assert len(taken) == 8
    assert read(ours.answer(request(p.DISCOVER, mac(11)), "br0", 0.0)).address == "10.77.0.11"


@pytest.mark.parametrize("garbage", [b"", b"\x01", b"\x01\x05ab", b"\x02\xff" + b"x" * 40, b"\xff" * 200])
def test_a_garbled_place_is_no_place_and_the_mac_decides(garbage: bytes):
    reply = responder("ignore", []).answer(
        request(p.DISCOVER, mac(12), {p.RELAY: garbage}, relay=RELAY), "br0", 0.0, RELAY
    )
    assert read(reply).address == "10.78.0.12"


def test_a_repeated_transaction_is_answered_the_same_and_remembered_nowhere():
    told: list[object] = []
    ours = responder("ignore", told)
    packet = request(p.DISCOVER, mac(11))
    first = ours.answer(packet, "br0", 0.0)
    assert all(ours.answer(packet, "br0", 0.0) == first for _ in range(100))
    assert told == []


def test_a_multicast_or_empty_mac_is_nobody():
    ours = responder("discover", [])
    assert ours.answer(request(p.DISCOVER, "01:00:5e:00:00:01"), "br0", 0.0) is None
    assert ours.answer(request(p.DISCOVER, "00:00:00:00:00:00"), "br0", 0.0) is None
    assert ours.counts.malformed == 2


def test_what_is_said_once_is_said_again_after_a_while_and_never_too_often():
    quiet = Quiet(every=60.0, burst=2, most=4)
    assert [quiet.allows("a", now) for now in (0.0, 1.0, 59.0, 61.0)] == [True, False, False, True]
    said = sum(quiet.allows(str(number), 62.0) for number in range(1000))
    assert said <= 2
    assert quiet.unsaid >= 990
