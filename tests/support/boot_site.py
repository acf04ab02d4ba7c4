"""A boot service on loopback, with nodes at addresses of 127/8, and the little client that a firmware is."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from strata.core.node import Interface, Node
from strata.fleet.access.authority import Authority, Issued
from strata.fleet.alarm import Alarm
from strata.provisioning.boot.fragment import PATH, Site
from strata.provisioning.boot.http import Limits
from strata.provisioning.boot.media import Media
from strata.provisioning.boot.neighbours import Neighbours
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.questions import Questions
from strata.provisioning.boot.service import BootService
from strata.provisioning.directory import Directory
from strata.provisioning.identity.identity import Identity
from strata.provisioning.networks import Networks, parse
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from strata.store.protocol import Store
from support.alarms import Alarms
from support.signed_builds import a_manifest, digest_of, open_builds, put_build

MINOS = digest_of(a_manifest())
"""The build that there is."""
IPXE = b"iPXE/1.21.1"


def mac_of(number: int) -> str:
    return f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"


def address_of(number: int) -> str:
    return f"127.1.{number >> 8}.{number & 255}"


def make_node(number: int) -> Node:
    return Node(
        name=f"n{number:04d}",
        uid=number,
        interfaces=(Interface(mac=mac_of(number), address=address_of(number), name="boot"),),
    )


def networks(**other: Any) -> Networks:
    text = {
        "subnets": [
            {"network": "127.0.0.0/8", "interface": "lo", "server": "127.0.0.1", "range": "127.1.0.1-127.1.99.250"}
        ],
        **other,
    }
    return parse(msgspec.json.encode(text).decode(), source="networks.yaml")


def make_csr(name: str) -> tuple[bytes, bytes]:
    """A signing request for ``name``, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return csr.public_bytes(serialization.Encoding.PEM), key.private_bytes(*form)


def boot_json(fragment: bytes) -> dict[str, Any]:
    """What the agent reads in a fragment: found as the kernel finds it, by walking the archive."""
    fragment = gzip.decompress(fragment)
    at = 0
    while True:
        assert fragment[at : at + 6] == b"070701"
        fields = [int(fragment[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        size, named = fields[6], fields[11]
        name = fragment[at + 110 : at + 110 + named - 1].decode()
        start = (at + 110 + named + 3) & ~3
        if name == PATH:
            assert fields[1] & 0o777 == 0o600
            found: dict[str, Any] = msgspec.json.decode(fragment[start : start + size])
            return found
        assert name != "TRAILER!!!"
        at = (start + size + 3) & ~3


class Seen(Neighbours):
    """MACs by address, as the test says: on the loopback there are none to be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.macs: dict[str, str] = {}

    async def mac(self, interface: str, address: str) -> str:
        return self.macs.get(address, "")


class Boots:
    """A running boot service and everything around it."""

    def __init__(
        self, store: Store, authority: Authority, minos: Path, nodes: int, nets: Networks, *, media: bool
    ) -> None:
        self.now = 1_000_000.0
        self.alarms = Alarms()
        self.told = asyncio.Event()
        self.attached: set[str] = set()
        self.dead: set[str] = set()
        """Nodes whose agents are attached and do not answer when they are asked."""
        self.is_attached: Callable[[str], bool | Awaitable[bool | None]] = self.attached.__contains__
        self.asked: Callable[[str, str], None] = lambda name, what: None
        self.begun: Callable[[str], None] = lambda name: None
        self.seen = Seen()
        self.leased: dict[str, str] = {}
        self.off: dict[str, bool | None] = {}
        """Nodes that are known to be switched off; None: that is not known in time."""
        self.held: dict[str, str] = {}
        self.profile: dict[str, str] = {}
        self.tail = "Kernel panic - not syncing"
        self.store = store
        self.authority = authority
        self.directory = Directory(make_node(number) for number in range(1, nodes + 1))
        self.identity = Identity(store, self.sign, self.alarm, owner=self._owner, clock=lambda: self.now)
        self.builds = open_builds(minos, minos.parent / "signing", self.alarm)
        self.profiles = Profiles(store, Ledger(store), self.builds.digest)
        self.service = BootService(
            nets,
            self.directory,
            self.identity,
            self.profiles,
            Site(controllers=lambda: ("https://127.0.0.1:8443",), ca=authority.pem.decode(), release_keys=("KEY",)),
            Questions(
                attached=lambda name: self.is_attached(name),
                speaks=self._speaks,
                asked=lambda name, what: self.asked(name, what),
                begun=lambda name: self.begun(name),
                off=self._off,
                leased=lambda address: self.leased.get(address, ""),
                held=self.held.__contains__,
                hold=self._hold,
                console_tail=self._tail,
                profile_of=lambda name: self.profile.get(name, "default"),
            ),
            self.alarm,
            binaries={"ipxe.efi": b"MZ" + bytes(1000)},
            builds=self.builds,
            media=Media(minos.parent / "media", clock=lambda: self.now) if media else None,
            limits=Limits(per_peer=512, arrive=30.0, idle=30.0),
            neighbours=self.seen,
            clock=lambda: self.now,
        )

    def alarm(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)
        if alarm.severity != "ok":
            self.told.set()

    def sign(self, csr: bytes, node: str) -> Issued:
        return self.authority.sign_csr(csr, node, "node", (), 86400)

    def _owner(self, address: str) -> str | None:
        found = self.directory.by_address(address)
        return found.name if found else None

    async def _off(self, node: str) -> bool | None:
        return self.off.get(node, False)

    async def _speaks(self, node: str) -> bool | None:
        if node in self.dead:
            self.attached.discard(node)
        known = self.is_attached(node)
        return known if isinstance(known, bool) else await known

    async def _hold(self, node: str, reason: str) -> None:
        self.held[node] = reason

    async def _tail(self, node: str) -> str:
        return self.tail

    @property
    def kinds(self) -> list[str]:
        return [alarm.kind for alarm in self.alarms]

    async def get(self, path: str, number: int = 1, *, agent: bytes = IPXE, method: str = "GET") -> tuple[int, bytes]:
        """What the machine of node ``number`` gets."""
        return await fetch(self.service.server.port, path, address_of(number), agent, method)

    async def script(self, number: int = 1, **how: Any) -> tuple[int, str]:
        status, body = await self.get(f"/boot/script?mac={mac_of(number)}", number, **how)
        return status, body.decode()

    async def boot(self, number: int = 1) -> dict[str, Any]:
        """Script, then fragment: what the agent finds."""
        status, script = await self.script(number)
        assert status == 200
        path = next(line for line in script.splitlines() if "fragment http" in line).split()[3]
        status, body = await self.get("/" + path.split("/", 3)[3], number)
        assert status == 200, body
        return boot_json(body)


async def fetch(port: int, path: str, source: str, agent: bytes = IPXE, method: str = "GET") -> tuple[int, bytes]:
    """One request over a connection of its own, from ``source``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(
            b"%s %s HTTP/1.1\r\nHost: x\r\nUser-Agent: %s\r\nConnection: close\r\n\r\n"
            % (method.encode(), path.encode(), agent)
        )
        raw = await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    top, _, body = raw.partition(b"\r\n\r\n")
    return int(top.split()[1]), body


@contextlib.asynccontextmanager
async def booting(
    tmp_path: Path,
    *,
    nodes: int = 3,
    store: Store | None = None,
    media: bool = False,
    **nets: Any,
) -> AsyncIterator[Boots]:
    """A boot service with ``nodes`` nodes, past its settling time."""
    put_build(tmp_path / "minos", tmp_path / "signing")
    own = MemoryStore() if store is None else store
    site = Boots(own, Authority.open(tmp_path / "ca"), tmp_path / "minos", nodes, networks(**nets), media=media)
    await site.identity.start()
    await site.profiles.start()
    await site.service.start(port=0)
    site.now += 60
    try:
        yield site
    finally:
        await site.service.stop()
        await site.profiles.stop()
        await site.identity.stop()
        if store is None:
            await own.close()
