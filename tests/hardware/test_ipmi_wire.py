"""IPMI's bytes: what is sealed opens, what was touched does not, and garbage is only ever garbage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strata.hardware.bmc.ipmi import wire
from strata.hardware.bmc.ipmi.records import fru_fields, log_entry, packed_text, plain, sensor

suites = st.sampled_from(wire.SUITES)


def test_no_suite_without_authentication_integrity_and_encryption_is_known() -> None:
    for suite in wire.SUITES:
        assert suite.authentication and suite.integrity and suite.confidentiality
    assert 0 not in {suite.id for suite in wire.SUITES}


@given(suites, st.binary(max_size=300), st.integers(1, 2**32 - 1), st.integers(1, 2**32 - 1))
def test_what_is_sealed_opens(suite: wire.Suite, payload: bytes, session: int, sequence: int) -> None:
    keys = wire.Keys(suite, b"k" * 20)
    datagram = keys.seal(wire.IPMI, session, sequence, payload)
    packet = wire.parse(datagram)
    assert packet is not None and (packet.session, packet.sequence, packet.sealed) == (session, sequence, True)
    assert keys.open(datagram) == payload


@given(suites, st.binary(max_size=60), st.data())
def test_what_was_touched_does_not_open(suite: wire.Suite, payload: bytes, data: st.DataObject) -> None:
    keys = wire.Keys(suite, b"k" * 20)
    datagram = bytearray(keys.seal(wire.IPMI, 7, 8, payload))
    datagram[data.draw(st.integers(4, len(datagram) - 1))] ^= data.draw(st.integers(1, 255))
    assert keys.open(bytes(datagram)) is None


@given(st.binary(max_size=200))
def test_garbage_is_dropped(data: bytes) -> None:
    wire.parse(data)
    wire.parse(wire.RMCP + data)
    wire.message(data)
    wire.suites_of(data)
    wire.Keys(wire.SUITES[0], b"").open(data)


@given(st.lists(st.integers(1, 80), max_size=60))
def test_no_number_is_taken_twice(numbers: list[int]) -> None:
    window = wire.Window()
    taken = [number for number in numbers if window.takes(number)]
    assert len(taken) == len(set(taken))
    if numbers:
        assert numbers[0] in taken


@given(st.binary(max_size=80))
def test_records_that_make_no_sense_do_no_harm(data: bytes) -> None:
    sensor(b"\x01\x00\x51\x01" + data)
    sensor(b"\x01\x00\x51\x02" + data)
    sensor(b"\x01\x00\x51\x11" + data)
    fru_fields(data)
    entry = log_entry(data[:16].ljust(16, b"\xff"), {}, 0.0)
    assert entry.message.isprintable()


@given(st.integers(0, 255), st.binary(max_size=64))
def test_any_name_is_decoded_to_plain_text(kind: int, data: bytes) -> None:
    assert plain(packed_text(kind, data)).isprintable()


def test_six_bit_text_is_decoded_as_the_specification_shows() -> None:
    assert packed_text(0x83, bytes.fromhex("29dca6")) == "IPMI"
