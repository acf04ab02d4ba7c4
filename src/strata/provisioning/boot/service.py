"""The boot service: answers machines that boot. Decides who gets what; scripts, fragments and HTTP are its neighbours'.

A script holds nothing secret and changes nothing. A fragment holds the token: it is given to the node's own address,
once per generation, and never while the node's agent is attached, since then somebody on the running node is asking.
An address is easily taken while its node is off, so it is not given then either, nor to a MAC that is another's.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import unquote

import msgspec

from strata.core.errors import Denied, NotFound, Refused, StrataError, Unavailable
from strata.core.node import Node
from strata.fleet.alarm import Alarm, AlarmSink
from strata.provisioning.boot import script as scripts
from strata.provisioning.boot.builds import Builds
from strata.provisioning.boot.fragment import Site, discovery_fragment, node_fragment
from strata.provisioning.boot.http import Answer, HttpServer, Limits, Request
from strata.provisioning.boot.media import ARCHITECTURE, Media
from strata.provisioning.boot.neighbours import Neighbours
from strata.provisioning.boot.profiles import DEFAULT, Profiles
from strata.provisioning.boot.questions import Questions
from strata.provisioning.boot.script import Kernel
from strata.provisioning.directory import Directory
from strata.provisioning.identity.identity import TOKEN_TTL, Identity
from strata.provisioning.minos.soundness import require_sound
from strata.provisioning.networks import Networks

log = logging.getLogger(__name__)

SETTLING = 45.0
"""Seconds after its start in which the service does not know which nodes run: their agents come back meanwhile."""

_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}\Z")
_WORD = re.compile(r"[a-z0-9_]{1,16}\Z")
_BUILDARCH = {"i386": "x86_64", "arm64": "aarch64"}
"""What iPXE calls its architecture → what machines are that run it, where that is another word."""
_ARCHIVE, _BINARY = b"application/x-cpio", b"application/efi"
_WAITS = {str(wait): wait for wait in (*(scripts.FIRST_WAIT * 2**step for step in range(5)), scripts.LONGEST_WAIT)}


OwnData = Callable[[Node, Sequence[str]], Answer]
"""Gives a node what another room has for it, by the rest of the path."""

TAIL = 400
"""Characters of a node's console that are shown as the reason why it is held."""
_PANIC = "Kernel panic - not syncing"


class Addresses:
    """The addresses of one controller on its boot networks. ``server`` is always our own, in the machine's subnet."""

    def __init__(self, networks: Networks, profiles: Profiles, builds: Builds) -> None:
        self._networks = networks
        self._profiles = profiles
        self._builds = builds

    def base(self, server: str) -> str:
        """Of everything that the boot service itself answers."""
        return f"http://{server}:{self._networks.boot_port}"

    def script(self, name: str, server: str, query: str) -> str:
        """Of a node's next script."""
        return f"http://{server}:{self._networks.boot_port}/boot/script/{name}?{query}"

    def kernel(self, profile: str, arch: str, server: str) -> Kernel:
        """Of what machines of an architecture boot by a profile now, which nginx serves; ``NotFound`` where there is
        nothing, ``Refused`` where it is for others. Whether it is sound is for who gives the address away to ask."""
        base = f"http://{server}:{self._networks.boot_port + 1}/{self._profiles.minos(profile, arch)}"
        return Kernel(base=base, parameters=self._profiles.parameters(profile))

    def minos(self, node: Node, profile: str) -> dict[str, str]:
        """Where a running node finds the kernel and initrd of its boot, and their digests; empty where it cannot."""
        subnets = (self._networks.subnet_of(interface.address) for interface in node.interfaces)
        server = next((str(subnet.server) for subnet in subnets if subnet is not None), None)
        digests = self._builds.digests(self._profiles.minos(profile, node.architecture))
        return {"url": self.kernel(profile, node.architecture, server).base, **digests} if server and digests else {}


class FailedBoots:
    """Gives up on nodes. ``stop`` it."""

    def __init__(self, networks: Networks, identity: Identity, questions: Questions, alarm: AlarmSink) -> None:
        self._networks = networks
        self._identity = identity
        self._questions = questions
        self._alarm = alarm
        self._holding: dict[str, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """Finish what was begun."""
        if self._holding:
            await asyncio.wait(self._holding.values())

    def too_many(self, name: str) -> bool:
        """Whether so many boots of the node failed that it gets no other before a person looked."""
        return self._identity.record(name).failures >= self._networks.attempts

    def hold(self, name: str) -> None:
        """Hold the node, in the background."""
        if name not in self._holding:
            self._holding[name] = asyncio.get_running_loop().create_task(self._hold(name), name=f"hold {name}")

    async def _hold(self, name: str) -> None:
        """Hold the node, for once: when a person releases it, it gets all its tries again."""
        attempts = self._identity.record(name).attempts
        try:
            tail = _telling(_plain(await self._questions.console_tail(name)))
            reason = f"{attempts} boots in a row failed: the node never reported" + (
                f"; its console said: {tail}" if tail else ""
            )
            await self._questions.hold(name, reason)
            await self._identity.forgive(name)
            self._alarm(
                Alarm(
                    kind="boot-failed", message=f"{attempts} boots in a row failed: the node never reported", node=name
                )
            )
        except StrataError as error:
            log.warning("a node that does not boot could not be held", extra={"node": name, "reason": str(error)})
        finally:
            del self._holding[name]


def _telling(text: str) -> str:
    """The end of it; of a panic its beginning, which says why: a long trace comes after it."""
    at = text.rfind(_PANIC)
    return text[at : at + TAIL] if at >= 0 else text[-TAIL:]


def _plain(text: str) -> str:
    """What a console printed, on one line and without what could move somebody's cursor."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """When a node last asked for what (Unix seconds; 0: not since this service runs)."""

    script: float = 0.0
    fragment: float = 0.0


class BootService:
    """Listens on the boot networks. ``start``, then ``stop``."""

    def __init__(
        self,
        networks: Networks,
        directory: Directory,
        identity: Identity,
        profiles: Profiles,
        site: Site,
        questions: Questions,
        alarm: AlarmSink,
        *,
        builds: Builds,
        binaries: Mapping[str, bytes] | None = None,
        media: Media | None = None,
        limits: Limits | None = None,
        neighbours: Neighbours | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``builds``: what there is to boot. ``binaries``: what firmware fetches by HTTP (``ipxe.efi``), by name.
        ``media``: for nodes that boot from a medium; without it none can. ``neighbours``: who sees the MACs of those
        that ask, if it is not the kernel."""
        self._networks = networks
        self._directory = directory
        self._identity = identity
        self._profiles = profiles
        self._site = site
        self.questions = questions
        self._alarm = alarm
        self.builds = builds
        self._binaries = binaries or {}
        self._clock = clock
        self._began = clock()
        self._scripts: dict[str, float] = {}
        self._addresses = Addresses(networks, profiles, builds)
        self._opened: dict[str, float] = {}
        """When the last boot of each node was opened here (Unix seconds)."""
        self._failed = FailedBoots(networks, identity, questions, alarm)
        self._media = media
        self._neighbours = neighbours or Neighbours()
        self.own: dict[str, OwnData] = {}
        """What other rooms tell a node of itself, by the first word of the path. Also while it runs, when any user of
        the node can ask: nothing secret."""
        self.server = HttpServer(self.answer, limits=limits)

    async def start(self, *, port: int | None = None) -> None:
        """Listen on our address in every subnet. ``port``: another than the networks say."""
        hosts = list(dict.fromkeys(str(subnet.server) for subnet in self._networks.subnets))
        self._began = self._clock()
        self._neighbours.start()
        if self._media is not None:
            await self._media.start()
        await self.server.start(hosts, self._networks.boot_port if port is None else port)

    async def listen_anew(self) -> None:
        """Listen where the networks are now."""
        hosts = list(dict.fromkeys(str(subnet.server) for subnet in self._networks.subnets))
        await self.server.stop()
        await self.server.start(hosts, self._networks.boot_port)

    async def stop(self) -> None:
        """Close the doors and finish what was begun."""
        await self.server.stop()
        await self._neighbours.stop()
        await self._failed.stop()
        if self._media is not None:
            await self._media.stop()

    def asked(self, node: str) -> Asked:
        """When the node last asked for something."""
        return Asked(script=self._scripts.get(node, 0.0), fragment=self._opened.get(node, 0.0))

    def answer(self, request: Request) -> Answer | Awaitable[Answer]:
        """What a machine gets. A GET of a fragment is the only thing that changes anything."""
        parts = request.path.split("/")
        if len(parts) < 3 or parts[:2] != ["", "boot"]:
            return _NOTHING
        match parts[2:]:
            case ["script"]:
                return self._script(request, None)
            case ["script", name]:
                return self._script(request, name)
            case ["fragment", name, generation]:
                return self._fragment(request, name, generation)
            case ["discovery"] if self._networks.unknown == "discover":
                return Answer(discovery_fragment(self._site, self._clock()), kind=_ARCHIVE)
            case ["efi", name] if name in self._binaries:
                return Answer(self._binaries[name], kind=_BINARY)
            case [word, *rest] if word in self.own:
                return self._own(request, self.own[word], rest)
        return _NOTHING

    async def preview(self, name: str) -> str:
        """The script that the node would get now if it asked; ``NotFound`` or ``Refused`` if it cannot boot."""
        node = self._directory.by_name(name)
        found = next((i for i in node.interfaces if self._networks.subnet_of(i.address)), None) if node else None
        subnet = self._networks.subnet_of(found.address) if found else None
        if node is None or found is None or subnet is None:
            raise NotFound(
                "the node has no address on a boot network",
                where=name,
                hint="give it one: strata node edit NODE --interface mac=...,address=...",
            )
        if self.questions.held(name):
            return _held(name, self._addresses.script(name, str(subnet.server), f"mac={found.mac}")).decode()
        await self.builds.soundness.require(self._build(node))
        return self._boot_script(node, str(subnet.server), f"mac={found.mac}", scripts.FIRST_WAIT).decode()

    # scripts

    def _script(self, request: Request, name: str | None) -> Answer | Awaitable[Answer]:
        query = dict(part.partition("=")[::2] for part in request.query.split("&")[:8])
        mac = unquote(query.get("mac", "")).lower().replace("-", ":")
        if not _MAC.match(mac):
            return Answer(b"say which machine you are: ?mac=52:54:00:12:34:56\n", 400)
        node = self._directory.by_mac(mac) if name is None else self._directory.by_name(name)
        wait = _WAITS.get(query.get("wait", ""), scripts.FIRST_WAIT)
        if node is None:
            arch = query.get("arch", "")
            return self._unknown(request, mac, wait, arch if _WORD.match(arch) else "")
        if not self._is_own(node, request.peer):
            return self._refused(node.name, request.peer, "the boot script of a node was asked for from elsewhere")
        name = node.name
        again = self._addresses.script(name, request.server, f"mac={mac}")
        if self.questions.held(name):
            return Answer(_held(name, again))
        return self._knowing(name, lambda attached: self._script_of(request, node, mac, wait, again, attached))

    def _script_of(
        self, request: Request, node: Node, mac: str, wait: int, again: str, attached: bool | None
    ) -> Answer | Awaitable[Answer]:
        name = node.name
        if attached and not request.agent.startswith(b"iPXE/"):
            return self._refused(name, request.peer, "the boot script of a running node was asked for")
        if attached and not request.head:
            # It may have crashed a moment ago, and its agent is not missed yet.
            self._note(name)
            return _once_known(
                self.questions.speaks(name), lambda speaks: self._script_for(request, node, mac, wait, again, speaks)
            )
        return self._script_for(request, node, mac, wait, again, attached)

    def _note(self, name: str) -> None:
        """The node asks for a script."""
        self._scripts[name] = self._clock()
        self.questions.asked(name, "script")

    def _script_for(
        self, request: Request, node: Node, mac: str, wait: int, again: str, attached: bool | None
    ) -> Answer | Awaitable[Answer]:
        name = node.name
        if attached is not False or self._is_settling(name):
            told = f"node {name} is believed to run, asking again in {scripts.BELIEVED_WAIT} seconds"
            return Answer(scripts.waiting_script(told, scripts.BELIEVED_WAIT, again))
        if self._failed.too_many(name):
            self._failed.hold(name)
            return Answer(_held(name, again))
        if not request.head:
            self._note(name)
        if self._profiles.is_by_medium(self.questions.profile_of(name)):
            told = f"node {name} boots from a medium only, which its BMC gets when Strata boots it"
            return Answer(scripts.waiting_script(told, scripts.HELD_WAIT, again))

        def cannot(error: StrataError) -> Answer:
            log.error("a node cannot boot", extra={"node": name, "reason": str(error)})
            told = f"node {name} cannot boot yet, see strata boot script {name}"
            return Answer(scripts.waiting_script(told, scripts.HELD_WAIT, again))

        return self._checked(
            lambda: self._build(node),
            lambda: Answer(self._boot_script(node, request.server, f"mac={mac}", wait)),
            cannot,
        )

    def _build(self, node: Node) -> str:
        return self._profiles.minos(self.questions.profile_of(node.name), node.architecture)

    def _checked(
        self, build: Callable[[], str], then: Callable[[], Answer], cannot: Callable[[StrataError], Answer]
    ) -> Answer | Awaitable[Answer]:
        """Go on when it is known whether the build is sound, which is at once unless it has just changed."""

        def tried(problems: Sequence[str]) -> Answer:
            try:
                require_sound(digest, problems)
                return then()
            except StrataError as error:
                return cannot(error)

        try:
            digest = build()
        except StrataError as error:
            return cannot(error)
        problems = self.builds.soundness.known(digest)
        return tried(problems) if problems is not None else _with(self.builds.soundness.problems(digest), tried)

    def _boot_script(self, node: Node, server: str, query: str, wait: int) -> bytes:
        generation = self._identity.record(node.name).generation + 1
        kernel = self._addresses.kernel(self.questions.profile_of(node.name), node.architecture, server)
        again = self._addresses.script(node.name, server, query)
        return scripts.boot_script(node.name, generation, self._addresses.base(server), kernel, again, wait)

    def _unknown(self, request: Request, mac: str, wait: int, arch: str) -> Answer | Awaitable[Answer]:
        if self._networks.unknown != "discover":
            self._alarm(
                Alarm(
                    kind="rogue-machine",
                    severity="warning",
                    message=f"an unknown machine ({mac}) asks to boot",
                    peer=request.peer,
                )
            )
            return Answer(b"no such node\n", 403)
        base = self._addresses.base(request.server)
        again = f"{base}/boot/script?mac={mac}"
        if not arch:
            return Answer(scripts.architecture_script(again))
        again = f"{again}&arch={arch}"
        machine = _BUILDARCH.get(arch, arch)

        def found() -> Answer:
            kernel = self._addresses.kernel(DEFAULT, machine, request.server)
            return Answer(scripts.discovery_script(base, kernel, again, wait))

        def nothing(error: StrataError) -> Answer:
            told = f"there is nothing to boot yet for {machine}"
            return Answer(scripts.waiting_script(told, scripts.HELD_WAIT, again))

        return self._checked(lambda: self._profiles.minos(DEFAULT, machine), found, nothing)

    # where a boot begins, whichever way its fragment reaches the node

    async def _begin(self, node: Node, generation: int, profile: str, peer: str = "") -> bytes:
        """Begin boot ``generation`` of ``node``: its fragment. Secret: it holds the token. Raises ``Denied`` where that
        generation has begun before, ``NotFound`` where there is nothing to boot, ``Refused`` where there is what
        the node must not boot: another architecture's, or not as it was signed (also if that is so since the node has
        fetched it)."""
        await self.builds.soundness.require(self._profiles.minos(profile, node.architecture))
        label, minos = self._profiles.label(profile, node.architecture), self._addresses.minos(node, profile)
        token = await self._identity.open_boot(node.name, generation, peer)
        now = self._opened[node.name] = self._clock()
        return node_fragment(self._site, self._networks, node, generation, token, label, minos, now)

    async def begin_from_medium(self, name: str) -> str:
        """Begin a boot of ``name`` from a medium: the address that its BMC shall fetch it from, over TLS."""
        node = self._directory.by_name(name)
        if node is None:
            raise NotFound("no such node", where=name)
        if self._media is None:
            raise Unavailable("this service makes no boot media", where=name)
        if self.questions.held(name):
            raise Refused("the node is held", by="hold", where=name, hint="strata node release NODE")
        if self._failed.too_many(name):
            self._failed.hold(name)
            raise Refused("the node failed to boot too often, and is held", by="hold", where=name)
        if node.architecture != ARCHITECTURE:
            raise Refused(
                f"boot media are made for {ARCHITECTURE}, and the node is {node.architecture}",
                by="architecture",
                where=name,
                hint="have it boot by another profile: strata node set NODE minos=PROFILE",
            )
        profile = self.questions.profile_of(name)
        build = self.builds.root / self._profiles.minos(profile, node.architecture)
        generation = self._identity.record(name).generation + 1
        fragment = await self._begin(node, generation, profile)
        parameters, ends = self._profiles.parameters(profile), self._opened[name] + TOKEN_TTL
        file = await self._media.add(name, generation, build, parameters, fragment, ends)
        return f"{self._site.controllers()[0]}/v1/boot/media/{file}"

    def medium(self, name: str) -> str | None:
        """The file of a medium; None: there is none of that name, or its token is spent."""
        medium = self._media.find(name) if self._media is not None else None
        if medium is None or self._media is None:
            return None
        record = self._identity.record(medium.node)
        if record.generation != medium.generation or record.redeemed:
            self._media.remove(medium.node)
            return None
        return medium.file

    # fragments

    def _fragment(self, request: Request, name: str, generation: str) -> Answer | Awaitable[Answer]:
        node, peer = self._directory.by_name(name), request.peer
        if node is None or not generation.isdecimal() or len(generation) > 18:
            return _NOTHING
        if not self._is_own(node, peer):
            return self._refused(name, peer, "the boot data of a node was asked for from elsewhere")
        return self._knowing(name, lambda attached: self._fragment_of(request, node, int(generation), attached))

    def _fragment_of(
        self, request: Request, node: Node, generation: int, attached: bool | None
    ) -> Answer | Awaitable[Answer]:
        name, peer = node.name, request.peer
        if attached:
            return self._refused(name, peer, "the boot data of a running node was asked for")
        if self.questions.held(name) or self._failed.too_many(name):
            return self._refused(name, peer, "the boot data of a node that is held was asked for")
        if self._profiles.is_by_medium(self.questions.profile_of(name)):
            return self._refused(name, peer, "the boot data of a node that boots from a medium was asked for")
        if attached is None or self._is_settling(name):
            return Answer(b"not known yet whether the node runs: ask again\n", 503)
        if request.head:
            return Answer(b"", kind=_ARCHIVE)
        return self._open(node, generation, peer)

    async def _open(self, node: Node, generation: int, peer: str) -> Answer:
        if stranger := await self._stranger(node, peer):
            return self._refused(
                node.name, peer, f"the boot data of a node was asked for by another machine, {stranger}"
            )
        off = await self.questions.off(node.name)
        if off:
            return self._refused(node.name, peer, "the boot data of a node that is switched off was asked for")
        if off is None:
            return Answer(b"not known yet whether the node has power: ask again\n", 503)
        try:
            body = await self._begin(node, generation, self.questions.profile_of(node.name), peer)
        except Denied:
            return Answer(b"this boot has begun before\n", 403)
        except Refused as error:
            log.error("a node cannot boot", extra={"node": node.name, "reason": str(error)})
            return Answer(b"what you have fetched must not be booted\n", 403)
        except StrataError as error:
            log.warning("no boot data", extra={"node": node.name, "reason": str(error)})
            return Answer(b"not now: ask again\n", 503)
        self.questions.asked(node.name, "fragment")
        self.questions.begun(node.name)
        return Answer(body, kind=_ARCHIVE)

    # what other rooms tell

    async def _own(self, request: Request, tell: OwnData, rest: Sequence[str]) -> Answer:
        """``FILE`` is of whoever has the address, ``NODE/FILE`` must be of the same."""
        node, peer = self._directory.by_address(request.peer), request.peer
        if len(rest) > 1:
            named = self._directory.by_name(rest[0])
            if named is None:
                return _NOTHING
            if named is not node:
                return self._refused(named.name, peer, "what a node is told of itself was asked for from elsewhere")
            rest = rest[1:]
        if node is None:
            return _NOTHING
        if stranger := await self._stranger(node, peer):
            return self._refused(
                node.name, peer, f"what a node is told of itself was asked for by another machine, {stranger}"
            )
        return tell(node, rest)

    # who may

    def _is_own(self, node: Node, peer: str) -> bool:
        return self._directory.by_address(peer) is node

    async def _stranger(self, node: Node, peer: str) -> str:
        """The MAC of who asks, where that is seen and not the node's. Any of its own will do: a bond has several."""
        subnet = self._networks.subnet_of(peer)
        if subnet is None or not subnet.is_local or not subnet.check_macs:
            return ""
        mac = await self._neighbours.mac(subnet.interface, peer)
        if not mac or any(interface.mac == mac for interface in node.interfaces):
            return ""
        asked = next((interface for interface in node.interfaces if interface.address == peer), None)
        if asked is None or not (asked.mac or asked.port):
            return ""
        # Whoever is plugged in where the node is cabled is the node: DHCP knows who that was.
        return "" if asked.port and self.questions.leased(peer) in ("", mac) else mac

    def _knowing(
        self, name: str, then: Callable[[bool | None], Answer | Awaitable[Answer]]
    ) -> Answer | Awaitable[Answer]:
        """Go on with whether the node's agent is attached, at once where that is known here."""
        attached = self.questions.attached(name)
        return then(attached) if isinstance(attached, bool) else _once_known(attached, then)

    def _is_settling(self, name: str) -> bool:
        """Whether the node may be running for all that is known yet: it arrived with its last boot."""
        return self._clock() - self._began < SETTLING and self._identity.record(name).redeemed > 0

    def _refused(self, name: str, peer: str, message: str) -> Answer:
        self._alarm(Alarm(kind="boot-data-refused", message=message, node=name, peer=peer))
        return Answer(b"this is not for you\n", 403)


_NOTHING = Answer(b"there is nothing here\n", 404)


async def _once_known(
    asked: Awaitable[bool | None], then: Callable[[bool | None], Answer | Awaitable[Answer]]
) -> Answer:
    answer = then(await asked)
    return answer if isinstance(answer, Answer) else await answer


async def _with(problems: Awaitable[Sequence[str]], then: Callable[[Sequence[str]], Answer]) -> Answer:
    return then(await problems)


def _held(name: str, again: str) -> bytes:
    return scripts.waiting_script(f"node {name} is held, see strata node show {name}", scripts.HELD_WAIT, again)
