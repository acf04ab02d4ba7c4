"""Where BMCs may be: lists, CSV files, ranges, SSDP, DHCP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.hardware.discovery.sources import Candidate, address_of, bmc_of, merged, read_csv, read_list
from strata.hardware.discovery.sources_dhcp import Sightings, read_leases
from strata.hardware.discovery.sources_scan import (
    TARGET,
    Range,
    ScanSettings,
    answer,
    ping,
    range_of,
    scan,
    search,
    settle,
)
from strata.virtual.bmc.certificate import self_signed
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.nodes import SimNodes

QUICK = ScanSettings(patience=3.0, answer=5.0, ipmi=False)


async def test_a_bmc_that_answers_in_small_pieces_is_found() -> None:
    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'{"Name": "Root", "RedfishVersion": "1.6.0"}'
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
            for at in range(0, len(body), 8):
                writer.write(body[at : at + 8])
                await writer.drain()
                await asyncio.sleep(0.01)

    async with await asyncio.start_server(slowly, "127.0.0.1", 0) as server:
        one = range_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await scan(["127.0.0.1"], one, settings=QUICK) == [one.url("127.0.0.1")]


# -- addresses


@pytest.mark.parametrize(
    ("given_", "form"),
    [
        ("https://10.0.0.7/", "https://10.0.0.7"),
        ("HTTPS://BMC7:8443/redfish/v1/", "https://bmc7:8443"),
        ("10.0.0.7", "10.0.0.7"),
        ("ipmi://10.0.0.8", "ipmi://10.0.0.8"),
        ("https://[fd00::7]", "https://[fd00::7]"),
        ("http://127.0.0.1:8000/bmc/n7", "http://127.0.0.1:8000/bmc/n7"),
    ],
)
def test_an_address_has_one_form(given_: str, form: str) -> None:
    assert address_of(given_) == form


@pytest.mark.parametrize("bad", ["", "ftp://x", "https://", "a b", "https://x:99999", "x/y", "https://x?y", "x\x1b"])
def test_what_is_no_address_is_refused(bad: str) -> None:
    with pytest.raises(BadRequest):
        address_of(bad)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadRequest) as caught:
        address_of("https://root:calvin@10.0.0.7")
    assert "calvin" not in str(caught.value)
    assert "strata hardware credentials" in caught.value.hint


def test_an_address_may_name_a_system_of_its_bmc() -> None:
    assert bmc_of("https://x/redfish/v1/Systems/2") == ("https://x", "/redfish/v1/Systems/2")
    assert bmc_of("https://x") == ("https://x", "")


def test_an_address_that_is_given_twice_is_one() -> None:
    assert read_list(["https://x", "https://x/"]) == [Candidate(address="https://x")]


def test_of_two_candidates_at_one_address_the_one_that_says_more_stays() -> None:
    more = Candidate(address="https://x", name="n1")
    assert merged(read_list(["https://x"]), [more]) == [more]


# -- CSV


def test_a_csv_says_what_is_known_of_each_machine() -> None:
    text = "address, name,location,nid,role,mac,serial,labels\n"
    text += "10.0.0.7,n7,X1000C0S3B0N1,7,login,AA-BB-CC-00-00-01,S7,rack=3;row=b\n"
    assert read_csv(text) == [
        Candidate(
            address="10.0.0.7",
            name="n7",
            location="x1000c0s3b0n1",
            nid=7,
            role="login",
            mac="aa:bb:cc:00:00:01",
            serial="S7",
            labels={"rack": "3", "row": "b"},
        )
    ]


def test_blank_lines_and_comments_are_skipped_and_a_byte_order_mark_too() -> None:
    assert len(read_csv("\ufeffaddress\n\n# the first rack\n10.0.0.1\n , \n10.0.0.2\n".replace(" , ", ""))) == 2


def test_errors_name_every_line_and_column() -> None:
    text = "address,location,nid,mac\n10.0.0.1,x9z,1,\n,x1000,2,\n10.0.0.3,,many,zz\n10.0.0.1,,,\n"
    with pytest.raises(BadRequest) as caught:
        read_csv(text)
    said = caught.value.detail
    for place in ("line 2, column location", "line 3, column address", "line 4, column nid", "line 4, column mac"):
        assert place in said
    assert caught.value.hint == "nothing was taken from it"


def test_a_value_that_two_rows_have_names_both_lines() -> None:
    with pytest.raises(BadRequest, match="line 3, column nid: 1 is also in line 2"):
        read_csv("address,nid\n10.0.0.1,1\n10.0.0.2,1\n")


@pytest.mark.parametrize("column", ["password", "User", "secret"])
def test_a_csv_with_credentials_is_refused_with_a_hint(column: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_csv(f"address,{column}\n10.0.0.1,calvin\n")
    assert "strata hardware credentials" in caught.value.hint
    assert "calvin" not in str(caught.value)


def test_an_unknown_column_is_named_with_those_that_are_known() -> None:
    with pytest.raises(BadRequest, match="no such column: 'adress'") as caught:
        read_csv("adress\n10.0.0.1\n")
    assert "address" in caught.value.hint


def test_many_errors_are_counted() -> None:
    with pytest.raises(BadRequest, match="and 480 more"):
        read_csv("address\n" + "a b\n" * 500)


@given(st.text(max_size=200))
def test_no_text_breaks_the_csv_reader(text: str) -> None:
    with contextlib.suppress(BadRequest):
        read_csv(text)


# -- ranges


def test_ranges_are_written_in_three_ways() -> None:
    assert len(range_of("10.1.0.0/20")) == 4094
    assert range_of("10.1.0.1-10.1.0.3").part(1, 9) == ["10.1.0.2", "10.1.0.3"]
    assert range_of("http://10.1.0.7:8000").url("10.1.0.7") == "http://10.1.0.7:8000"
    assert range_of("fd00::/120").url("fd00::7") == "https://[fd00::7]"
    assert range_of("10.1.0.0/31").part(0, 9) == ["10.1.0.0", "10.1.0.1"]


@pytest.mark.parametrize(
    "bad", ["10.0.0.0/8", "10.0.0.9-10.0.0.1", "ten", "10.0.0.1:99999", "ipmi://10.0.0.1", "::1-10.0.0.1"]
)
def test_a_range_that_is_none_or_too_large_is_refused(bad: str) -> None:
    with pytest.raises(BadRequest):
        range_of(bad)


@pytest.fixture
async def addressed() -> AsyncIterator[BmcServer]:
    """Three BMCs, each at its own address of the loopback network."""
    server = BmcServer(SimNodes(3, names=["n1", "n2", "n3"]), by="address")
    await server.start()
    yield server
    await server.stop()


@pytest.mark.slow
async def test_a_scan_finds_who_speaks_redfish_and_nobody_else(addressed: BmcServer) -> None:
    port = int(addressed.address.rpartition(":")[2])
    one = range_of(f"http://127.1.0.0-127.1.0.9:{port}")
    found = await scan(one.part(0, 10), one, settings=QUICK)
    assert found == [addressed.url(name) for name in ("n1", "n2", "n3")]
    assert addressed.bmc("n1").sessions == {}, "a scan logs in nowhere"


@pytest.mark.slow
async def test_a_web_server_is_no_bmc() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):  # also where the test ends before it was asked anything
            if await reader.readline():
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n<html/>")

    server = await asyncio.start_server(page, "127.0.0.1", 0)
    async with server:
        one = range_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await scan(["127.0.0.1"], one, settings=QUICK) == []


@pytest.mark.slow
async def test_a_large_range_of_silence_is_waited_for_together_and_not_one_by_one() -> None:
    # Where nothing listens the loopback refuses at once, so silence is made: a full backlog answers no SYN.
    with socket.socket() as deaf, socket.socket() as filler:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        filler.setblocking(False)
        filler.connect_ex(deaf.getsockname())
        extra = [socket.socket() for _ in range(4)]
        for one in extra:
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        port = deaf.getsockname()[1]
        hosts = ["127.0.0.1"] * 4096
        async with asyncio.timeout(240):
            assert await scan(hosts, Range(0, 0, 4, "http", port), settings=ScanSettings(ipmi=False)) == []
        for one in extra:
            one.close()


class Rmcp(asyncio.DatagramProtocol):
    """Answers presence pings."""

    def __init__(self, entities: int) -> None:
        self.entities = entities

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert data[:9] == bytes.fromhex("0600ff06000011be80")
        pong = bytes.fromhex("0600ff06000011be40") + data[9:10] + bytes.fromhex("0010000011be00000000")
        self.transport.sendto(pong + bytes([self.entities]) + bytes(7), addr)


@pytest.mark.slow
async def test_an_rmcp_ping_finds_ipmi() -> None:
    loop = asyncio.get_running_loop()
    with_ipmi, _ = await loop.create_datagram_endpoint(lambda: Rmcp(0x81), local_addr=("127.0.0.5", 0))
    port = with_ipmi.get_extra_info("sockname")[1]
    without, _ = await loop.create_datagram_endpoint(lambda: Rmcp(0x00), local_addr=("127.0.0.6", port))
    try:
        settings = ScanSettings(patience=1.0)
        assert await ping(["127.0.0.4", "127.0.0.5", "127.0.0.6"], settings, port) == {"127.0.0.5"}
        one = range_of("http://127.0.0.4-127.0.0.6:1")
        assert await scan(one.part(0, 3), one, settings=settings, rmcp_port=port) == ["ipmi://127.0.0.5"]
    finally:
        with_ipmi.close()
        without.close()


# -- SSDP


def reply(location: str, *, st_: str = TARGET + ":0", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nST: {st_}\r\nUSN: uuid:1\r\nAL: {location}\r\n\r\n".encode()


class Announcer(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert data.startswith(b"M-SEARCH * HTTP/1.1\r\n")
        assert TARGET.encode() in data
        for location in ("https://127.0.0.1:8443/redfish/v1/", "https://10.9.9.9/redfish/v1/"):
            self.transport.sendto(reply(location), addr)


@pytest.mark.slow
async def test_a_search_hears_those_that_answer_for_themselves() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Announcer, local_addr=("127.0.0.1", 0))
    try:
        port = transport.get_extra_info("sockname")[1]
        found = await search(interfaces=["127.0.0.1"], group="127.0.0.1", port=port, wait=0.4)
    finally:
        transport.close()
    assert found == ["https://127.0.0.1:8443"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 100,
        reply("https://10.0.0.1/redfish/v1/", status="404 No"),
        reply("https://10.0.0.1/redfish/v1/", st_="upnp:rootdevice"),
        reply("https://10.0.0.2/redfish/v1/"),
        reply("http://10.0.0.1/redfish/v1/"),
        reply("https://user:pw@10.0.0.1/"),
    ],
)
def test_an_answer_that_is_none_or_points_elsewhere_is_ignored(data: bytes) -> None:
    assert answer(data, "10.0.0.1") == ""


# -- DHCP


def test_a_bmc_that_dhcp_sees_is_kept_once_and_the_oldest_go_first() -> None:
    seen = Sightings(most=2)
    for _ in range(3):
        seen.seen("00:11:22:33:44:55", "10.0.0.9", "iDRAC")
    seen.seen("00:11:22:33:44:66", "10.0.0.10", "PXEClient")
    assert seen.addresses() == ["10.0.0.9"]
    seen.seen("00:11:22:33:44:77", "10.0.0.11", "OpenBMC")
    seen.seen("00:11:22:33:44:88", "10.0.0.12", "OpenBMC")
    assert seen.addresses() == ["10.0.0.11", "10.0.0.12"]


ISC = """
lease 10.0.0.9 {
  binding state active;
  hardware ethernet 00:11:22:33:44:55;
  set vendor-class-identifier = "iDRAC";
  client-hostname "idrac-7";
}
lease 10.0.0.10 {
  binding state free;
  hardware ethernet 00:11:22:33:44:66;
}
"""
DNSMASQ = "1700000000 00:11:22:33:44:55 10.0.0.9 bmc-7 *\n1700000000 00:11:22:33:44:66 10.0.0.10 * *\nduid 00:01\n"
KEA = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state\n"
KEA += "10.0.0.9,00:11:22:33:44:55,,1,2,1,0,0,ilo-7,0\n"


@pytest.mark.parametrize("text", [ISC, DNSMASQ, KEA], ids=["isc", "dnsmasq", "kea"])
def test_lease_files_of_other_servers_are_read(text: str) -> None:
    assert [lease.ip for lease in read_leases(text) if lease.is_bmc] == ["10.0.0.9"]


def test_a_file_that_holds_no_leases_is_refused_by_line() -> None:
    with pytest.raises(BadRequest, match="not a lease"):
        read_leases("1700000000 00:11:22:33:44:55 10.0.0.9 a *\nrubbish\n")


# -- bare hosts


@pytest.mark.slow
async def test_a_bare_host_is_asked_what_it_speaks() -> None:
    server = BmcServer(SimNodes(1, names=["n1"]), by="port", tls=self_signed())
    await server.start()
    try:
        address = server.address.removeprefix("https://")
        assert await settle(address, settings=QUICK) == server.address
    finally:
        await server.stop()
    assert await settle(address, settings=QUICK) == "", "nobody is there any more"


@pytest.mark.slow
async def test_a_bare_host_that_only_pongs_speaks_ipmi() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Rmcp(0x81), local_addr=("127.0.0.7", 0))
    try:
        port = transport.get_extra_info("sockname")[1]
        settings = ScanSettings(patience=1.0)
        assert await settle("127.0.0.7", settings=settings, rmcp_port=port) == "ipmi://127.0.0.7"
    finally:
        transport.close()
