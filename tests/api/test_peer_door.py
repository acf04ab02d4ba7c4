"""Where controllers speak to each other, through the real front door: who gets in, what they get, what ends it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from api_support import Service
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from real_service import real_service

from strata.api.rights import CONTROLLER
from strata.api.services import SERVICES
from strata.core.errors import BadRequest, NotFound, OutcomeUnknown, Unauthenticated, Unavailable
from strata.core.host.private_file import write_private
from strata.fleet.access.authority import CONTROLLER_UNIT, Authority
from strata.fleet.access.principal import LOCAL_ADMIN, ROLES
from strata.fleet.peers.client import ADDRESSEE, CERTIFICATE_TTL, PeerClient
from strata.fleet.peers.peers import Peer
from strata.fleet.peers.routes import PeerDoor, peers_app
from strata.fleet.services import Services
from support.front_door import OpenDoor, front_door

pytestmark = [pytest.mark.server, pytest.mark.slow]


class Site:
    """A controller with a front door, and another one that speaks to it."""

    def __init__(self, directory: Path, service: Service, opened: OpenDoor, door: PeerDoor) -> None:
        self.directory = directory
        self.service = service
        self.opened = opened
        self.door = door
        self.peer = Peer(controller="alpha", url=opened.url, fingerprint=opened.authority.fingerprint)
        self.now = 1e9
        self.client = self.client_of(opened.authority)

    def client_of(self, authority: Authority) -> PeerClient:
        return PeerClient(authority, "beta", self.directory, clock=lambda: self.now)

    async def status(self, path: str, certificate: bytes, key: bytes, method: str = "POST") -> int:
        """What somebody with this certificate is answered."""
        file = self.directory / "somebody.pem"
        write_private(file, key + certificate)
        context = ssl.create_default_context(cafile=str(self.opened.ca))
        context.load_cert_chain(file)
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                method, f"{self.opened.url}{path}", ssl=context, json={}, headers={ADDRESSEE: "alpha"}
            ) as reply,
        ):
            return reply.status


@pytest.fixture
async def site(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with real_service(tmp_path_factory.mktemp("state")) as service:
        door = service.services.put(PeerDoor("alpha"))

        async def echo(who: str, body: bytes) -> bytes:
            return b"%s: %s" % (who.encode(), body)

        door.routes["echo"] = echo
        async with front_door(service.services, tmp_path) as opened:
            site = Site(tmp_path, service, opened, door)
            try:
                yield site
            finally:
                await site.client.close()


async def test_a_controller_of_the_same_authority_is_answered_by_name(site: Site) -> None:
    assert await site.client.call(site.peer, "echo", b"hello") == b"beta: hello"
    with pytest.raises(NotFound, match="alpha: this controller has no such path"):
        await site.client.call(site.peer, "nothing")


async def test_the_certificate_of_a_controller_opens_no_other_door(site: Site) -> None:
    issued = site.opened.authority.issue_controller("beta", 3600)
    assert await site.status("/peer/v1/echo", issued.certificate, issued.key) == 200
    for method, path in [
        ("GET", "/v1/nodes"),
        ("GET", "/v1/nodes/n00001"),
        ("GET", "/v1/status"),
        ("POST", "/v1/exec"),
        ("POST", "/v1/auth/tokens"),
        ("POST", "/agent/v1/exchange"),
        ("POST", "/agent/v1/renew"),
        ("GET", "/redfish/v1/Systems"),
        ("POST", "/capmc/get_nid_map"),
    ]:
        assert await site.status(path, issued.certificate, issued.key, method) in (401, 403), path


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_with_a_role_passes_as_a_controller(site: Site, role: str) -> None:
    issued = site.opened.authority.issue("beta", role, (), 3600)  # type: ignore[arg-type]
    assert await site.status("/peer/v1/echo", issued.certificate, issued.key) == 401


async def test_a_node_that_asks_for_a_controllers_certificate_gets_that_of_a_node(site: Site) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Strata"),
            x509.NameAttribute(NameOID.COMMON_NAME, "n00001"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, CONTROLLER_UNIT),
        ]
    )
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    issued = site.opened.authority.sign_csr(csr.public_bytes(serialization.Encoding.PEM), "n00001", "node", (), 3600)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    units = x509.load_pem_x509_certificate(issued.certificate).subject.get_attributes_for_oid(
        NameOID.ORGANIZATIONAL_UNIT_NAME
    )
    assert [unit.value for unit in units] == ["role:node"]
    assert await site.status("/peer/v1/echo", issued.certificate, key.private_bytes(*form)) == 401
    for name in (f"n1,OU={CONTROLLER_UNIT}", f"n1+OU={CONTROLLER_UNIT}", f"x\nOU={CONTROLLER_UNIT}"):
        with pytest.raises(BadRequest, match="a name is"):
            site.opened.authority.issue(name, "node", (), 3600)


@pytest.mark.parametrize(
    "subject",
    [
        "OU=strata-controller,OU=role:node,CN=beta,O=Strata",
        "OU=role:node,OU=strata-controller,CN=beta,O=Strata",
        "OU=strata-controller,CN=beta,O=Other",
        "OU=strata-controllers,CN=beta,O=Strata",
        "OU=strata-controller,CN=a\\,b,O=Strata",
        "CN=beta\\,OU=strata-controller,O=Strata",
        "OU=strata-controller,CN=beta,O=Strata\n",
        "",
    ],
)
async def test_only_the_exact_subject_of_a_controller_is_one(service: Service, subject: str) -> None:
    with pytest.raises(Unauthenticated):
        service.auth.controller("SUCCESS", "A1", subject)


async def test_a_token_the_local_administrator_and_nobody_at_all_are_refused(site: Site) -> None:
    for door, headers in [("admin", {}), ("front", {})]:
        async with site.service.client(door) as http:  # type: ignore[arg-type]
            assert (await http.post("/peer/v1/echo", headers=headers)).status_code == 401
    shown = {
        "X-Strata-Client-Verify": "SUCCESS",
        "X-Strata-Client-Serial": "A1",
        "X-Strata-Client-DN": "OU=strata-controller,CN=beta,O=Strata",
        ADDRESSEE: "alpha",
    }
    async with site.service.client("front") as http:
        assert (await http.post("/peer/v1/echo", headers=shown)).status_code == 200, "as nginx would say it"
        assert (await http.post("/peer/v1/echo", headers={**shown, "Authorization": "Bearer x"})).status_code == 401
        failed = {**shown, "X-Strata-Client-Verify": "FAILED:expired"}
        assert (await http.post("/peer/v1/echo", headers=failed)).status_code == 401
    async with site.service.client("admin") as http:
        assert (await http.post("/peer/v1/echo", headers=shown)).status_code == 401, "nginx does not speak here"


async def test_a_revoked_certificate_and_one_of_another_authority_are_refused(site: Site, tmp_path: Path) -> None:
    issued = site.opened.authority.issue_controller("beta", 3600)
    await site.service.auth.revoke_certificate(LOCAL_ADMIN, issued.serial)
    assert await site.status("/peer/v1/echo", issued.certificate, issued.key) == 401
    foreign = Authority.open(tmp_path / "other-ca").issue_controller("beta", 3600)
    assert await site.status("/peer/v1/echo", foreign.certificate, foreign.key) in (400, 401)


async def test_a_controller_does_not_speak_to_one_that_another_authority_vouches_for(
    site: Site, tmp_path: Path
) -> None:
    stranger = site.client_of(Authority.open(tmp_path / "other-ca"))
    try:
        with pytest.raises(Unavailable, match="alpha is away: its certificate is not good"):
            await stranger.call(site.peer, "echo")
    finally:
        await stranger.close()


async def test_the_certificate_is_made_anew_at_half_of_its_life_and_nobody_else_reads_its_key(site: Site) -> None:
    file = site.directory / "controller.pem"
    await site.client.call(site.peer, "echo")
    first = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    site.now += CERTIFICATE_TTL / 2 - 1
    await site.client.call(site.peer, "echo")
    assert file.read_bytes() == first
    site.now += 2
    assert await site.client.call(site.peer, "echo", b"again") == b"beta: again"
    assert file.read_bytes() != first


async def test_many_that_ask_at_once_share_one_certificate(site: Site) -> None:
    assert await asyncio.gather(*(site.client.call(site.peer, "echo") for _ in range(20))) == [b"beta: "] * 20
    site.now += CERTIFICATE_TTL
    assert await asyncio.gather(*(site.client.call(site.peer, "echo") for _ in range(20))) == [b"beta: "] * 20


async def test_a_certificate_that_cannot_be_written_is_an_error_of_ours(site: Site) -> None:
    client = PeerClient(site.opened.authority, "beta", site.directory / "not-there")
    with pytest.raises(Unavailable, match="cannot write its certificate: No such file"):
        await client.call(site.peer, "echo")


async def test_what_comes_in_lines_is_there_as_it_comes_and_ends_when_nobody_reads(site: Site) -> None:
    more, ended = asyncio.Event(), asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        try:
            yield b"one\n\ntw"
            yield b"o\n"
            await more.wait()
            yield b"three\n"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def endless(who: str, body: bytes) -> AsyncIterator[bytes]:
        return lines()

    site.door.routes["endless"] = endless
    reading = site.client.lines(site.peer, "endless", b"")
    assert [await anext(reading), await anext(reading)] == [b"one", b"two"]
    more.set()
    assert await anext(reading) == b"three"
    assert not ended.is_set()
    await reading.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(120):
        await ended.wait()


async def test_a_question_that_makes_no_sense_and_an_answer_that_breaks_off_are_told_apart(site: Site) -> None:
    async def refuses() -> AsyncIterator[bytes]:
        raise BadRequest("not like this", where="body")
        yield b""

    async def breaks() -> AsyncIterator[bytes]:
        yield b"one\n"
        raise RuntimeError("broken")

    async def refused(who: str, body: bytes) -> AsyncIterator[bytes]:
        return refuses()

    async def broken(who: str, body: bytes) -> AsyncIterator[bytes]:
        return breaks()

    site.door.routes |= {"refused": refused, "broken": broken}
    with pytest.raises(BadRequest, match="not like this"):
        _ = [line async for line in site.client.lines(site.peer, "refused", b"")]
    with pytest.raises(OutcomeUnknown, match="controller alpha broke off"):
        _ = [line async for line in site.client.lines(site.peer, "broken", b"")]


async def test_the_front_door_is_asked_to_put_no_answer_aside_on_its_disk() -> None:
    door, sent = PeerDoor("alpha"), list[MutableMapping[str, Any]]()

    async def piece(who: str, body: bytes) -> bytes:
        return b"part of a file"

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    door.routes["piece"] = piece
    scope: dict[str, Any] = {
        "method": "POST",
        "path": "/peer/v1/piece",
        "headers": [(ADDRESSEE.lower().encode(), b"alpha")],
    }
    services = Services()
    services.put(door)
    scope |= {SERVICES: services, CONTROLLER: lambda: "beta"}
    assert await peers_app(scope, receive, send) == 200
    assert (b"x-accel-buffering", b"no") in sent[0]["headers"]


async def test_a_controller_answers_nothing_that_another_was_asked(site: Site) -> None:
    wrong = Peer(controller="gamma", url=site.peer.url, fingerprint="")
    with pytest.raises(Unavailable, match="'gamma' was asked for, and this is alpha"):
        await site.client.call(wrong, "echo")


async def test_a_controller_that_is_gone_is_named(site: Site) -> None:
    gone = Peer(controller="gamma", url="https://127.0.0.1:9", fingerprint="")
    with pytest.raises(Unavailable, match="controller gamma is away: no connection"):
        await site.client.call(gone, "echo")
