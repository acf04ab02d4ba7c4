"""What BMCs do wrong on the wire, beyond the client's own tests: certificates, redirects, tags, promises."""

from __future__ import annotations

import asyncio
import ssl
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from strata.core.errors import Conflict, DeviceError, NotOffered, OutcomeUnknown, StrataError
from strata.hardware.bmc.redfish.bmc import RedfishBmc
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.power import read_power, switch_power
from strata.virtual.bmc.certificate import self_signed
from strata.virtual.bmc.mischief import Trick
from strata.virtual.bmc.server import BmcServer
from strata.virtual.fleet.nodes import SimNodes
from support.odd_bmc import ROOT, OddBmc, only_system

SYSTEM = f"{ROOT}/Systems/1"
CANARY = "canary-50c1b7"


class RememberedPins(dict[str, str]):
    """Pins in memory."""

    def put(self, host: str, sha256: str) -> None:
        self[host] = sha256


@pytest.fixture
async def secure(clock):
    """A BMC with a certificate that nobody signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    self_signed(context)
    server = BmcServer(SimNodes(2), clock=clock, tls=context, by="port")
    await server.start()
    yield server
    await server.stop()


# -- certificates


async def test_the_first_certificate_is_remembered_and_another_one_is_not_spoken_to(secure, clock):
    pins = RememberedPins()
    address = secure.url("n00001")
    async with RedfishClient(Credentials("root", CANARY), tls=pins, clock=clock) as client:
        with pytest.raises(DeviceError, match="password was refused"):
            await read_power(client, address)
    async with RedfishClient(Credentials("root", "simulated"), tls=pins, clock=clock) as client:
        assert await read_power(client, address) == "off"
        known = dict(pins)
        assert list(known) == [address.removeprefix("https://")]
        secure.change_certificate()
        asked = secure.requests
        with pytest.raises(DeviceError, match="certificate has changed") as caught:
            await read_power(client, address)
        told = str(caught.value)
        assert known[address.removeprefix("https://")] in told
        assert "strata hardware credentials accept-certificate" in told
        assert secure.requests == asked
        assert pins == known
        new = told.partition(" is shown")[0].rpartition(" ")[2]
        pins.put(address.removeprefix("https://"), new)
        assert await read_power(client, address) == "off"


async def test_a_reset_to_a_bmc_with_another_certificate_is_known_to_have_done_nothing(secure, clock):
    pins = RememberedPins()
    async with RedfishClient(Credentials("root", "simulated"), tls=pins, clock=clock) as client:
        await read_power(client, secure.url("n00001"))
        secure.change_certificate()
        with pytest.raises(DeviceError, match="certificate"):
            await read_power(client, secure.url("n00001"))
        with pytest.raises(DeviceError, match="certificate"):
            await switch_power(client, secure.url("n00001"), "on")
    assert secure.bmc("n00001").resets == []


# -- redirects


async def test_credentials_stay_home_when_a_bmc_redirects_to_another_host():
    async with OddBmc(only_system()) as thief, OddBmc(only_system()) as bmc:
        moved = lambda _: web.Response(status=307, headers={"Location": f"{thief.address}{SYSTEM}"})  # noqa: E731
        async with RedfishClient(Credentials("root", CANARY)) as client:
            await read_power(client, bmc.address)
            for method, path in (
                ("GET", SYSTEM),
                ("POST", f"{ROOT}/SessionService/Sessions"),
                ("POST", "/redfish/v1/x"),
            ):
                bmc.answers[(method, path)] = moved
            with pytest.raises(DeviceError, match="not followed"):
                await read_power(client, bmc.address)
            with pytest.raises(DeviceError, match="not followed"):
                await client.request(bmc.address, "POST", "/redfish/v1/x", {})
        assert thief.asked == []


async def test_a_read_follows_a_redirect_at_home_and_a_circle_ends():
    async with OddBmc(only_system()) as bmc, RedfishClient(Credentials("root", "x")) as client:
        bmc.answers[("GET", "/redfish/v1/old")] = lambda _: web.Response(status=308, headers={"Location": SYSTEM})
        assert (await client.get(bmc.address, "/redfish/v1/old")).body["PowerState"] == "On"
        bmc.answers[("GET", "/redfish/v1/round")] = lambda _: web.Response(
            status=301, headers={"Location": "/redfish/v1/round"}
        )
        with pytest.raises(DeviceError, match="redirects"):
            await client.get(bmc.address, "/redfish/v1/round")
        bmc.answers[("POST", "/redfish/v1/old")] = lambda _: web.Response(status=308, headers={"Location": SYSTEM})
        with pytest.raises(DeviceError, match="redirects"):
            await client.request(bmc.address, "POST", "/redfish/v1/old", {})
        assert bmc.sent("POST", SYSTEM) == []


# -- time


@pytest.mark.slow
async def test_an_answer_that_takes_two_minutes_is_not_waited_for(server, client, impatient):
    await read_power(client, server.url("n1"))
    server.prank("n1").latency = 120
    impatient(0.2, 0.1)
    with pytest.raises(DeviceError, match="no answer"):
        await read_power(client, server.url("n1"))
    with pytest.raises(OutcomeUnknown, match="no answer"):
        await switch_power(client, server.url("n1"), "on")
    assert client.bmc(server.url("n1")).dead


async def test_a_date_in_retry_after_is_understood(clock):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    async with OddBmc(only_system()) as bmc, RedfishClient(Credentials("root", "x"), clock=clock) as client:
        bmc.answers[("GET", SYSTEM)] = lambda _: web.Response(status=429, headers={"Retry-After": later})
        with pytest.raises(DeviceError, match="busy"):
            await read_power(client, f"{bmc.address}{SYSTEM}")
        assert 80 < client.bmc(bmc.address).quiet_until - clock.now <= 90


# -- tags


async def test_a_tag_that_the_bmc_cannot_compare_is_sent_back_in_a_form_that_it_can():
    """A weak tag never matches (a strong comparison by the book), or quotes are counted twice: seen on several."""
    tag = 'W/"7"'
    for accepts, tries in (('"7"', 2), (None, 3)):

        def patch(asked, accepts=accepts):
            return web.Response(status=204 if asked.headers.get("If-Match") == accepts else 412)

        async with OddBmc(only_system()) as bmc, RedfishClient(Credentials("root", "x")) as client:
            bmc.answers[("GET", SYSTEM)] = lambda _: web.json_response({}, headers={"ETag": tag})
            bmc.answers[("PATCH", SYSTEM)] = patch
            await client.patch(bmc.address, SYSTEM, {"AssetTag": "x"})
            assert len(bmc.sent("PATCH")) == tries
            await client.patch(bmc.address, SYSTEM, {"AssetTag": "y"})
            assert len(bmc.sent("PATCH")) == tries + 1


async def test_a_resource_that_did_change_is_a_conflict_and_is_not_written():
    tags = iter(range(100))
    async with OddBmc(only_system()) as bmc, RedfishClient(Credentials("root", "x")) as client:
        bmc.answers[("GET", SYSTEM)] = lambda _: web.json_response({}, headers={"ETag": f'W/"{next(tags)}"'})
        bmc.answers[("PATCH", SYSTEM)] = lambda _: web.Response(status=412)
        with pytest.raises(Conflict):
            await client.patch(bmc.address, SYSTEM, {"AssetTag": "x"})
        assert len(bmc.sent("PATCH")) == 1
        assert client.bmc(bmc.address).etags == "as-told"


# -- promises


async def test_a_collection_is_whole_where_the_bmc_promised_too_much():
    """It says that it can expand, and answers 501; one member is broken, one leads elsewhere, a page follows."""
    things = f"{ROOT}/Things"
    root = {"ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": True, "Levels": True, "MaxLevels": 2}}}
    resources = {
        ROOT: root,
        things: {
            "Members": [{"@odata.id": f"{things}/1"}, {"@odata.id": f"{things}/broken"}, "nonsense"],
            "Members@odata.nextLink": f"{things}/more",
        },
        f"{things}/more": {
            "Members": [{"@odata.id": "http://elsewhere.invalid/redfish/v1/x"}],
            "Members@odata.nextLink": f"{things}/last",
        },
        f"{things}/last": {"Members": [], "Members@odata.nextLink": f"{things}/last"},
        f"{things}/1": {"Name": "one"},
    }
    async with OddBmc(resources) as bmc, RedfishClient(Credentials("root", "x")) as client:
        refused = lambda asked: web.Response(status=501) if asked.query else web.json_response(resources[things])  # noqa: E731
        bmc.answers[("GET", things)] = refused
        members = (await client.tree(bmc.address, things))["Members"]
        assert [m.get("Name") for m in members] == ["one", None, None, None]
        assert "404" in members[1]["@Message.ExtendedInfo"][0]["Message"]
        await client.tree(bmc.address, things)
        assert len([one for one in bmc.sent("GET", things) if one.query]) == 1


async def test_a_collection_that_is_not_there_says_nothing_about_what_the_bmc_can_expand(server, client):
    with pytest.raises(NotOffered):
        await client.tree(server.url("n1"), "/redfish/v1/Nothing")
    server.prank("n1").plan(Trick.DROP_BEFORE, times=3)
    with pytest.raises(DeviceError):
        await client.tree(server.url("n1"), "/redfish/v1/Chassis/1/Sensors")
    assert (await client.features(server.url("n1"))).expand == "."


async def test_an_expanding_bmc_is_asked_once_for_a_collection(server, client):
    await client.features(server.url("n1"))
    before = server.requests
    sensors = await client.tree(server.url("n1"), "/redfish/v1/Chassis/1/Sensors")
    assert server.requests == before + 1
    assert all("Reading" in sensor for sensor in sensors["Members"])


async def test_no_collection_is_longer_than_what_is_read():
    endless = {"Members": [{"@odata.id": f"{ROOT}/T/{n}", "Name": n} for n in range(50)]}
    resources = {f"{ROOT}/T": {**endless, "Members@odata.nextLink": f"{ROOT}/T"}}
    settings = RedfishSettings(max_members=120)
    async with OddBmc(resources) as bmc, RedfishClient(Credentials("root", "x"), settings=settings) as client:
        assert len((await client.tree(bmc.address, f"{ROOT}/T"))["Members"]) == 120


# -- secrets and hostility


async def test_a_new_password_is_not_repeated_even_where_the_bmc_echoes_it(server, client):
    accounts = f"{ROOT}/AccountService/Accounts"
    resources = {
        ROOT: {"AccountService": {"@odata.id": f"{ROOT}/AccountService"}},
        f"{ROOT}/AccountService": {"Accounts": {"@odata.id": accounts}},
        accounts: {"Members": [{"@odata.id": f"{accounts}/1", "UserName": ""}, {"@odata.id": f"{accounts}/2"}]},
        f"{accounts}/2": {"UserName": "root"},
        **only_system(),
    }
    async with OddBmc(resources) as bmc, RedfishClient(Credentials("root", "x")) as client:
        echo = {"error": {"message": f"the value {CANARY} is too simple"}}
        bmc.answers[("PATCH", f"{accounts}/2")] = lambda _: web.json_response(echo, status=400)
        with pytest.raises(DeviceError) as caught:
            await RedfishBmc(client, bmc.address).set_password("root", CANARY)
        assert CANARY not in str(caught.value) + caught.value.reply + repr(caught.value)
        assert bmc.sent("PATCH")[0].json == {"Password": CANARY}
        with pytest.raises(StrataError, match="no such account"):
            await RedfishBmc(client, bmc.address).set_password("", CANARY)


@pytest.mark.parametrize("trick", [Trick.NULL, Trick.STRINGS, Trick.ABSURD, Trick.HOSTILE, Trick.NO_ACTIONS])
async def test_whatever_a_bmc_says_every_read_ends_in_an_answer_or_an_error_of_ours(server, client, trick):
    controller = RedfishBmc(client, server.url("n1"))
    await controller.power()
    server.prank("n1").always = {trick}
    for name in (
        "identity",
        "power",
        "boot",
        "media",
        "readings",
        "log",
        "power_limits",
        "bios",
        "firmware",
        "settings",
    ):
        try:
            found = await getattr(controller, name)()
        except StrataError as wrong:
            assert len(str(wrong)) < 2000
        else:
            assert len(repr(found)) < 1_000_000


async def test_deeply_nested_json_is_refused_and_does_not_end_the_process():
    async with OddBmc({}) as bmc, RedfishClient(Credentials("root", "x")) as client:
        deep = b'{"a":' * 100_000
        bmc.answers[("GET", SYSTEM)] = lambda _: web.Response(body=deep, content_type="application/json")
        with pytest.raises(DeviceError, match="not JSON"):
            await client.get(bmc.address, SYSTEM)


async def test_what_is_not_there_says_so(server, client):
    with pytest.raises(NotOffered, match="404"):
        await client.get(server.url("n1"), "/redfish/v1/Nothing")


async def test_many_at_once_to_one_bmc_wait_for_each_other(server, client):
    """Through whichever of its addresses."""
    server.prank("n1").latency = 0.01
    addresses = [server.url("n1"), f"{server.url('n1')}{SYSTEM}"] * 4
    begun = time.monotonic()
    assert await asyncio.gather(*(read_power(client, address) for address in addresses)) == ["off"] * 8
    assert time.monotonic() - begun >= 0.01 * server.bmc("n1").requests
    assert len(server.bmc("n1").sessions) == 1


async def test_a_bmc_that_becomes_busy_half_way_is_an_error_and_not_half_an_answer(server, client):
    controller = RedfishBmc(client, server.url("n1"))
    await controller.readings()
    server.prank("n1").plan(Trick.BUSY)
    for read in (controller.readings, controller.power_limits):
        with pytest.raises(DeviceError, match="busy"):
            await read()


async def test_nonsense_in_one_part_does_not_hide_the_others():
    chassis = f"{ROOT}/Chassis/1"
    resources = {
        **only_system(Links={"Chassis": [{"@odata.id": chassis}]}),
        chassis: {name: {"@odata.id": f"{chassis}/{name}"} for name in ("Thermal", "Power")},
        f"{chassis}/Power": {"PowerControl": [{"Name": "Total", "PowerConsumedWatts": 320}]},
    }
    async with OddBmc(resources) as bmc, RedfishClient(Credentials("root", "x")) as client:
        bmc.answers[("GET", f"{chassis}/Thermal")] = lambda _: web.Response(text="<html>Please log in</html>")
        assert [reading.value for reading in await RedfishBmc(client, bmc.address).readings()] == [320]
