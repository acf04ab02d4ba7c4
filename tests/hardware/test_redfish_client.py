"""The Redfish client against BMCs that misbehave, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from strata.core.errors import Conflict, DeviceError, OutcomeUnknown, StrataError, Unavailable
from strata.core.state import Fence
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.power import read_power, switch_power
from strata.virtual.bmc.http import HttpProtocol, Reply, Request
from strata.virtual.bmc.mischief import Trick
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.nodes import SimNodes
from strata.virtual.redfish.bmc import Account

CANARY = "canary-7f3a91"


def other(client: RedfishClient, password: str, **more: object) -> RedfishClient:
    return RedfishClient(
        Credentials("root", password),
        settings=RedfishSettings(timeout=60.0, quick=60.0, **more),  # type: ignore[arg-type]
        clock=client.clock,
    )


# -- sessions and passwords


async def test_one_session_serves_many_requests_and_is_given_back(server, client):
    for _ in range(5):
        assert await read_power(client, server.url("n1")) == "off"
    assert len(server.bmc("n1").sessions) == 1
    await client.close()
    assert server.bmc("n1").sessions == {}


async def test_an_expired_session_is_renewed_without_a_word(server, client, clock):
    await read_power(client, server.url("n1"))
    clock.now += 301
    assert await read_power(client, server.url("n1")) == "off"
    server.prank("n1").plan(Trick.EXPIRED)
    await switch_power(client, server.url("n1"), "on")
    assert server.bmc("n1").resets == ["On"]


async def test_where_all_sessions_are_taken_the_password_goes_with_each_request(server, client, clock):
    others = [other(client, "simulated") for _ in range(8)]
    for one in others:
        await one.get(server.url("n1"), "/redfish/v1/Systems/1")
    for _ in range(3):
        assert await read_power(client, server.url("n1")) == "off"
    await switch_power(client, server.url("n1"), "on")
    assert server.bmc("n1").resets == ["On"]
    for one in others:
        await one.close()
    assert server.bmc("n1").sessions == {}
    clock.now += client.settings.full_for
    await read_power(client, server.url("n1"))
    assert len(server.bmc("n1").sessions) == 1


@pytest.mark.parametrize("auth", ["session", "basic"])
async def test_a_wrong_password_is_tried_twice_and_never_again(server, client, auth):
    wrong = other(client, CANARY, auth=auth)
    for _ in range(5):
        with pytest.raises(DeviceError, match="password"):
            await read_power(wrong, server.url("n1"))
    assert server.bmc("n1").wrong_passwords == 2
    assert wrong.bmc(server.url("n1")).locked
    wrong.unlock(server.url("n1"))
    with pytest.raises(DeviceError, match="refused"):
        await read_power(wrong, server.url("n1"))
    assert server.bmc("n1").wrong_passwords == 3
    await wrong.close()
    assert await read_power(client, server.url("n1")) == "off"


async def test_basic_authentication_leaves_no_session(server, client):
    async with other(client, "simulated", auth="basic") as basic:
        assert await read_power(basic, server.url("n1")) == "off"
    assert server.bmc("n1").sessions == {}


async def test_each_bmc_may_have_its_own_password(server, clock):
    asked = []

    def find(address: str) -> Credentials:
        asked.append(address)
        return Credentials("root", "simulated")

    async with RedfishClient(find, clock=clock) as client:
        await read_power(client, server.url("n2"))
    assert asked == [server.url("n2")]


async def test_the_password_is_in_no_error_and_no_repr(server, client):
    credentials = Credentials("root", CANARY)
    assert CANARY not in repr(credentials) + str(credentials) + repr(Account("root", CANARY))
    with pytest.raises(TypeError):
        pickle.dumps(credentials)
    wrong = other(client, CANARY)
    for trick in (None, Trick.HTML, Trick.BUSY, Trick.CUT, Trick.REDIRECT, Trick.DROP_BEFORE):
        address = server.url(f"n{1 + list(Trick).index(trick) % 6}") if trick else server.url("n1")
        if trick:
            server.prank(address.rpartition("/")[2]).plan(trick)
        with pytest.raises(StrataError) as caught:
            await read_power(wrong, address)
        assert CANARY not in str(caught.value) + repr(caught.value) + getattr(caught.value, "reply", "")
    await wrong.close()


# -- power


@pytest.mark.parametrize(("node", "on", "off"), [("n1", "On", "ForceOff"), ("n3", "ForceOn", "ForceOff")])
async def test_the_reset_type_is_one_that_the_bmc_allows(server, client, node, on, off):
    await switch_power(client, server.url(node), "on")
    assert await read_power(client, server.url(node)) == "on"
    await switch_power(client, server.url(node), "off")
    assert server.bmc(node).resets == [on, off]


async def test_a_lower_fence_is_a_conflict_and_nothing_happens(server, client):
    await switch_power(client, server.url("n1"), "on", fence=Fence(5, 2))
    for fence in (Fence(5, 2), Fence(5, 1), Fence(4, 9)):
        with pytest.raises(Conflict):
            await switch_power(client, server.url("n1"), "off", fence=fence)
    assert server.bmc("n1").resets == ["On"]


async def test_nothing_is_begun_when_the_time_is_over(server, client, clock):
    clock.now = 10
    with pytest.raises(Unavailable):
        await switch_power(client, server.url("n1"), "on", begin_before=9)
    assert server.bmc("n1").resets == []


async def test_an_address_may_name_the_system(server, client):
    address = server.url("n1") + "/redfish/v1/Systems/1"
    assert await read_power(client, address) == "off"
    await switch_power(client, address, "on")
    assert server.bmc("n1").requests == 3  # a login, a look and a reset: no search for the system


@pytest.mark.parametrize("address", ["ftp://h", "10.0.0.7", "http://u:p@h", ""])
async def test_an_address_that_is_none_is_refused(client, address):
    with pytest.raises(DeviceError, match="address"):
        await read_power(client, address)


async def test_a_bmc_without_actions_cannot_be_switched(server, client):
    server.prank("n1").always = {Trick.NO_ACTIONS}
    assert await read_power(client, server.url("n1")) == "off"
    with pytest.raises(DeviceError, match="no reset"):
        await switch_power(client, server.url("n1"), "on")


async def test_a_change_to_a_resource_that_changed_meanwhile_is_a_conflict(server, client):
    path = "/redfish/v1/Systems/1"
    boot = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
    await client.patch(server.url("n1"), path, {"Boot": boot})
    answer = await client.get(server.url("n1"), path)
    assert answer.body["Boot"]["BootSourceOverrideTarget"] == "Pxe"
    await switch_power(client, server.url("n1"), "on")
    with pytest.raises(Conflict):
        await client.request(server.url("n1"), "PATCH", path, {"Boot": {}}, headers={"If-Match": answer.etag})


# -- misbehaviour


@pytest.mark.parametrize(
    ("trick", "words"),
    [
        (Trick.HTML, "not JSON"),
        (Trick.CUT, "broke"),
        (Trick.ENDLESS, "longer than"),
        (Trick.REDIRECT, "not followed"),
        (Trick.BUSY, "busy"),
        (Trick.SILENT, "no answer"),
        (Trick.NULL, ""),
    ],
)
async def test_a_read_that_goes_wrong_says_how(server, client, impatient, trick, words):
    await read_power(client, server.url("n1"))
    server.prank("n1").plan(trick, times=2)
    if trick is Trick.SILENT:
        impatient(0.2, 0.1)
    if trick is Trick.NULL:
        assert await read_power(client, server.url("n1")) is None
        return
    with pytest.raises(DeviceError, match=words):
        await read_power(client, server.url("n1"))


@pytest.mark.parametrize(
    ("trick", "resets"),
    [
        (Trick.DROP_BEFORE, []),
        (Trick.SILENT, []),
        (Trick.HTML, []),
        (Trick.DROP_AFTER, ["On"]),
        (Trick.CUT, ["On"]),
        (Trick.ENDLESS, ["On"]),
    ],
)
async def test_a_reset_without_a_clear_answer_is_unknown_and_sent_once(server, client, impatient, trick, resets):
    await read_power(client, server.url("n1"))
    before = server.bmc("n1").requests, server.requests
    server.prank("n1").plan(trick)
    if trick is Trick.SILENT:
        impatient(0.2, 0.1)
    with pytest.raises((OutcomeUnknown, DeviceError)) as caught:
        await switch_power(client, server.url("n1"), "on")
    assert isinstance(caught.value, OutcomeUnknown)
    assert server.bmc("n1").resets == resets
    assert server.requests == before[1] + 1


async def test_a_reset_answered_with_202_and_no_location_is_accepted(server, client):
    await read_power(client, server.url("n1"))
    server.prank("n1").plan(Trick.ACCEPTED, method="POST")
    await switch_power(client, server.url("n1"), "on")
    assert server.bmc("n1").resets == ["On"]


async def test_retry_after_is_honoured(server, client, clock):
    await read_power(client, server.url("n1"))
    server.prank("n1").plan(Trick.BUSY)
    with pytest.raises(DeviceError, match="busy"):
        await read_power(client, server.url("n1"))
    asked = server.requests
    with pytest.raises(DeviceError, match="not tried"):
        await read_power(client, server.url("n1"))
    assert server.requests == asked
    clock.now += 2
    assert await read_power(client, server.url("n1")) == "off"


async def test_a_refused_connection_is_known_to_have_done_nothing(clock, client):
    server = BmcServer(SimNodes(2), clock=clock, by="port")
    await server.start()
    assert await read_power(client, server.url("n00002")) == "off"
    server.refuse("n00001")
    with pytest.raises(DeviceError, match="nobody answers"):
        await switch_power(client, server.url("n00001"), "on")
    await server.stop()


@pytest.mark.slow
async def test_a_slow_bmc_gets_more_time_the_next_time(server, client, impatient):
    await read_power(client, server.url("n1"))
    server.prank("n1").latency = 0.15
    impatient(60.0, 0.1)
    with pytest.raises(DeviceError, match=r"no answer in 0\.1 s"):
        await read_power(client, server.url("n1"))
    assert await read_power(client, server.url("n1")) == "off"


async def test_links_to_elsewhere_are_not_followed(client, clock):
    """Credentials stay home: a BMC that names another host's resources gets an error, not a visit."""

    def handler(request: Request) -> Reply:
        if request.method == "POST":
            return Reply(201, b"{}", (("X-Auth-Token", "t"), ("Location", "http://elsewhere.invalid/x")))
        return Reply(200, b'{"Members": [{"@odata.id": "http://elsewhere.invalid/redfish/v1/Systems/1"}]}')

    listener = await asyncio.get_running_loop().create_server(lambda: HttpProtocol(handler, set()), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    with pytest.raises(DeviceError, match="systems behind one BMC"):
        await read_power(client, f"http://127.0.0.1:{port}")
    await client.close()
    listener.close()
    await listener.wait_closed()


async def test_a_certificate_that_is_not_trusted_is_not_spoken_to(clock, client, tls):
    server_context, trusting = tls
    server = BmcServer(SimNodes(1), clock=clock, tls=server_context)
    await server.start()
    with pytest.raises(DeviceError, match="certificate"):
        await read_power(client, server.url("n00001"))
    assert server.requests == 0
    async with RedfishClient(Credentials("root", "simulated"), tls=trusting, clock=clock) as other_client:
        assert await read_power(other_client, server.url("n00001")) == "off"
    await server.stop()


@pytest.fixture
def tls(tmp_path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server with a certificate of its own making, and a client that trusts just that."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bmc")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "bmc.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + certificate.public_bytes(pem))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    return serving, ssl.create_default_context(cadata=certificate.public_bytes(pem).decode())


# -- what is read all the same, and told


async def test_bytes_that_are_not_utf_8_spoil_themselves_and_are_told(server, client):
    server.prank("n1").always = {Trick.BAD_BYTES}
    body = (await client.get(server.url("n1"), "/redfish/v1/Systems/1")).body
    assert "\ufffd" in body["Model"] and body["PowerState"] == "Off"
    assert await read_power(client, server.url("n1")) == "off"
    await switch_power(client, server.url("n1"), "on")
    assert server.bmc("n1").resets == ["On"]
    assert "not UTF-8" in client.bmc(server.url("n1")).flaw


@pytest.mark.parametrize(
    ("trick", "told"),
    [
        (Trick.WRONG_TYPES, "it does not say whether its node is on: PowerState is 7"),
        (Trick.POWER_NULL, "it does not say whether its node is on: PowerState is None"),
        (Trick.HTML, "not JSON"),
        (Trick.ENDLESS, "longer than"),
        (Trick.MEMBERS, "longer than"),
    ],
)
async def test_what_is_wrong_with_an_answer_is_remembered(server, client, trick, told):
    address = f"{server.url('n1')}/redfish/v1/Systems/1"
    await read_power(client, address)
    assert client.bmc(address).flaw == ""
    server.prank("n1").always = {trick}
    with contextlib.suppress(DeviceError):
        await client.get(address, "/redfish/v1/Systems")
    with contextlib.suppress(DeviceError):
        await read_power(client, address)
    assert told in client.bmc(address).flaw


async def test_headers_that_are_not_utf_8_break_nobody_who_sends_stores_or_shows_them() -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        bad = (
            ("ETag", '"\xae\x9b"'),
            ("Location", "/redfish/v1/\xae"),
            ("X-Auth-Token", "\xae"),
            ("Retry-After", "\xb2"),
        )
        if request.method == "POST":
            return Reply(404)
        return Reply(307 if request.path.endswith("Moved") else 200, b'{"Name": "x"}', bad)

    connections: set[HttpProtocol] = set()
    listener = await asyncio.get_running_loop().create_server(lambda: HttpProtocol(answer, connections), "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with RedfishClient(Credentials("root", "x")) as client:
        found = await client.patch(address, "/redfish/v1/Systems/1", {})
        (found.etag + found.location).encode()
        assert asked[-1].method == "PATCH"
        with pytest.raises(DeviceError, match="redirects elsewhere") as moved:
            await client.request(address, "PATCH", "/redfish/v1/Moved", {})
        str(moved.value).encode()
    for connection in list(connections):
        connection.close()
    listener.close()
    await listener.wait_closed()


async def test_a_header_without_end_is_the_bmcs_fault_and_nobody_elses(server, client):
    server.prank("n1").always = {Trick.HEADERS}
    with pytest.raises(DeviceError, match="the connection broke"):
        await client.get(server.url("n1"), "/redfish/v1/")
    assert await read_power(client, server.url("n2")) == "off"
