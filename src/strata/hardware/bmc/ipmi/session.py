"""One authenticated IPMI session (RMCP+) over the shared socket: log in, ask, log out.

Its own loop rather than pyghmi's, which sends a command again after a lost reply (even after a new login: a node would
be power-cycled twice), falls back to IPMI 1.5, and waits with ``select``, which fails above 1,024 open files. What is
in records (sensors, log, FRUs) pyghmi decodes: ``ipmi_records``.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import struct
from collections.abc import Callable
from typing import Protocol

import msgspec

from strata.core.errors import DeviceError, NotOffered, OutcomeUnknown
from strata.hardware.bmc.ipmi import wire

APP = 0x06
_ADMINISTRATOR, _OPERATOR = 4, 3
_BY_NAME = 0x10
_SENDS_ANEW = 0.7
"""Seconds after which a request that may be repeated is sent again; grows by half each time."""
_SHAKES_ANEW = 2.0
"""The same for a step of the login: slow BMCs take a second over the arithmetic, and each repeat starts it anew."""

_UNKNOWN_COMMAND = (0xC1, 0xC2)
_REFUSALS = {
    0x80: "it answered with a code of this command's own (80h)",
    0xC0: "it is busy",
    0xC3: "it took too long itself",
    0xC9: "a number is out of its range",
    0xCB: "it has no such record",
    0xCC: "it refuses a value in the request",
    0xD4: "the account lacks the privilege",
    0xD5: "not possible in its present state",
    0xD6: "the function is switched off",
}
_LOGIN_REFUSALS = {
    0x01: "it has no room for another session",
    0x09: "the account lacks the role",
    0x0A: "the account lacks the role",
    0x0B: "it has no room for another session of that role",
    0x0D: "it does not know the user",
}
_NO_ROLE = (0x09, 0x0A)
_NO_SUITE = (0x04, 0x05, 0x06, 0x07, 0x10, 0x11, 0x12)
_NO_GOOD_SUITE = "it offers no cipher suite that authenticates, protects and encrypts"
_CIPHER_HINT = "enable cipher suite 17 or 3 on the BMC, and disable suite 0"


class Refusal(DeviceError):
    """The BMC answered a command with a completion code other than success."""

    def __init__(self, text: str, *, code: int, node: str, request: str) -> None:
        hint = "give it a user of the administrator role" if code == 0xD4 else ""
        super().__init__(text, node=node, request=request, reply=f"{code:02X}h", hint=hint)
        self.code = code


class Silent(DeviceError):
    """No answer, to something that has no effect."""


class WrongPassword(DeviceError):
    """User and password do not fit. Found out without telling the BMC, where that can be."""


class IpmiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How sessions behave. Times in seconds."""

    timeout: float = 5.0
    """For the answer to one command."""
    login: float = 8.0
    """For a login, all in all."""
    idle: float = 20.0
    """A session that nobody uses is closed after this long (BMCs do it after 60)."""
    at_once: int = 512
    """Operations begun at a time with BMCs that answered last time."""
    silent_at_once: int = 64
    """The same for those that did not: however many they are, the others do not wait for them."""
    patience: float = 0.2
    """An operation that takes longer gives its place up (and goes on)."""
    wrong_passwords: int = 2
    """Logins refused in a row, after which a BMC is not tried again: it would lock the account."""


class Wire(Protocol):
    """Where datagrams go; what comes back is given to ``Session.received``."""

    def send(self, datagram: bytes) -> None:
        """To the BMC of this session."""


class Session:
    """A session. ``log_in`` first; afterwards one command at a time, each in turn."""

    def __init__(self, name: str, link: Wire, settings: IpmiSettings) -> None:
        self.name = name
        self.id = int.from_bytes(os.urandom(4), "little") | 1
        self.open = False
        self.heard = 0.0
        """When the last authentic datagram came, on the loop's clock."""
        self.serial: Callable[[bytes], None] | None = None
        """Takes serial-over-LAN payloads."""
        self._link = link
        self._settings = settings
        self._keys: wire.Keys | None = None
        self._peer = 0
        self._privilege = _ADMINISTRATOR
        self._sent = 0
        self._sequence = 0
        self._window = wire.Window()
        self._turn = asyncio.Lock()
        self._awaits: Callable[[wire.Packet], bool] | None = None
        self._answer: asyncio.Future[wire.Packet] | None = None

    # -- what comes in

    def received(self, datagram: bytes, packet: wire.Packet) -> None:
        """A datagram from the BMC's address. Whatever is not authentic, expected and new is dropped."""
        if packet.sealed:
            payload = self._keys.open(datagram) if self._keys else None
            if payload is None or packet.session != self.id or not self._window.takes(packet.sequence):
                return
            self.heard = asyncio.get_running_loop().time()
            if packet.kind == wire.SOL:
                if self.serial is not None:
                    self.serial(payload)
                return
            packet = packet._replace(payload=payload)
        elif self.open:
            return
        if self._answer is not None and not self._answer.done() and self._awaits is not None and self._awaits(packet):
            self._answer.set_result(packet)

    # -- commands

    async def ask(
        self,
        netfn: int,
        command: int,
        data: bytes = b"",
        *,
        lun: int = 0,
        once: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> bytes:
        """The data of the answer, without its completion code; ``Refusal`` where that is not success.

        A request without an answer is sent again under the same sequence number, unless ``once``: then it leaves this
        machine exactly one time, and no answer is ``OutcomeUnknown``. ``check`` may raise when its turn has come.
        """
        async with self._turn:
            check()
            if not self.open:
                raise DeviceError("the session is closed", node=self.name)
            self._sequence = (self._sequence + 1) % 64
            request = wire.Message(netfn, lun, self._sequence, command, data)
            text = f"netfn {netfn:02X}h command {command:02X}h"
            encoded = request.encode()
            try:
                packet = await self._exchange(
                    lambda: self._sealed(wire.IPMI, encoded),
                    lambda packet: packet.sealed and _answers(request, packet),
                    self._settings.timeout,
                    once=once,
                )
            except TimeoutError:
                self.open = False  # a BMC that restarted knows nothing of it
                late = f"no answer in {self._settings.timeout:.3g} s"
                if once:
                    raise OutcomeUnknown(late, where=self.name, hint="look at the node before trying again") from None
                raise Silent(late, node=self.name, request=text) from None
        answer = wire.message(packet.payload)
        assert answer is not None
        code = answer.data[0] if answer.data else 0xFF
        if code in _UNKNOWN_COMMAND:
            raise NotOffered("it does not know the command", node=self.name, request=text, reply=f"{code:02X}h")
        if code:
            words = _REFUSALS.get(code, f"it answered with the code {code:02X}h")
            raise Refusal(words, code=code, node=self.name, request=text)
        return answer.data[1:]

    def send_serial(self, payload: bytes) -> None:
        """A serial-over-LAN payload, once; nobody waits for an answer."""
        self._link.send(self._sealed(wire.SOL, payload))

    async def log_out(self) -> None:
        """Give the session back; a BMC that does not answer forgets it by itself."""
        if self.open:
            try:
                await self.ask(APP, 0x3C, struct.pack("<I", self._peer), once=True)
            except (DeviceError, OutcomeUnknown):
                return
            finally:
                self.open = False

    # -- logging in

    async def log_in(self, user: str, password: bytes) -> None:
        """Prove to each other that both know the password, and agree on keys."""
        name = user.encode()
        if len(name) > 16 or len(password) > 20:
            raise DeviceError("IPMI takes users of up to 16 and passwords of up to 20 bytes", node=self.name)
        try:
            async with asyncio.timeout(self._settings.login):
                suites = await self._offers()
                peer, suite = await self._open_session(suites)
                await self._prove(peer, suite, name, password)
        except TimeoutError:
            limit = self._settings.login
            raise Silent(f"no answer to a login in {limit:.3g} s", node=self.name) from None
        self.open = True
        try:
            await self.ask(APP, 0x3B, bytes((self._privilege,)))
        except Refusal as wrong:
            raise DeviceError("it refuses the privilege that it granted at login", node=self.name) from wrong

    async def _offers(self) -> tuple[wire.Suite, ...]:
        """The suites that both know, best first. One that does not list any is tried with each."""
        answer = await self._bare(0x38, bytes((0x8E, _ADMINISTRATOR)))
        if len(answer) < 4 or not answer[1] & 0x80 or not answer[3] & 0x02:
            raise DeviceError(
                "it speaks only IPMI 1.5, which does not encrypt", node=self.name, hint="update its firmware"
            )
        records = b""
        try:
            for index in range(16):
                part = (await self._bare(0x54, bytes((0x0E, 0x00, 0x80 | index))))[1:]
                records += part
                if len(part) < 16:
                    break
        except (Refusal, NotOffered):
            return wire.SUITES
        listed = wire.suites_of(records)
        common = tuple(suite for suite in wire.SUITES if suite.id in listed)
        if listed and not common:
            offers = ", ".join(map(str, sorted(listed)))
            raise DeviceError(f"{_NO_GOOD_SUITE}, only {offers}", node=self.name, hint=_CIPHER_HINT)
        return common or wire.SUITES

    async def _open_session(self, suites: tuple[wire.Suite, ...]) -> tuple[int, wire.Suite]:
        for suite in suites:
            request = struct.pack("<xxxI", self.id) + suite.algorithms
            reply = await self._shake(wire.OPEN_REQUEST, wire.OPEN_RESPONSE, request)
            if reply[1] in _NO_SUITE:
                continue
            self._check(reply[1])
            numbers = [number & 0x3F for number in reply[16:36:8]]
            if len(reply) < 36 or reply[12:36:8] != b"\x00\x01\x02" or numbers != suite.numbers:
                raise DeviceError(
                    f"it answers with another cipher suite than {suite.id}, which was asked for",
                    node=self.name,
                    hint=_CIPHER_HINT,
                )
            return int.from_bytes(reply[8:12], "little"), suite
        raise DeviceError(_NO_GOOD_SUITE, node=self.name, hint=_CIPHER_HINT)

    async def _prove(self, peer: int, suite: wire.Suite, name: bytes, password: bytes) -> None:
        ours, role = os.urandom(16), _BY_NAME | _ADMINISTRATOR
        for level in (_ADMINISTRATOR, _OPERATOR):
            role = _BY_NAME | level
            request = struct.pack("<xxxI", peer) + ours + bytes((role, 0, 0, len(name))) + name
            reply = await self._shake(wire.RAKP1, wire.RAKP2, request)
            if reply[1] not in _NO_ROLE:
                break
        self._privilege = role & 0x0F
        if reply[1] == 0x0D:
            raise WrongPassword(
                _LOGIN_REFUSALS[reply[1]], node=self.name, hint="correct them: strata hardware credentials set"
            )
        self._check(reply[1])
        size = suite.hash().digest_size
        if len(reply) < 40 + size:
            raise DeviceError("its login message is too short", node=self.name)
        theirs, guid, proof = reply[8:24], reply[24:40], reply[40 : 40 + size]
        who = bytes((role, len(name))) + name
        expected = suite.mac(password, struct.pack("<II", self.id, peer) + ours + theirs + guid + who)
        if not hmac.compare_digest(expected, proof):
            # Not told to the BMC: it would count towards locking the account.
            raise WrongPassword(
                "the password is wrong", node=self.name, hint="correct them: strata hardware credentials set"
            )
        key = suite.mac(password, ours + theirs + who)
        mine = suite.mac(password, theirs + struct.pack("<I", self.id) + who)
        reply = await self._shake(wire.RAKP3, wire.RAKP4, struct.pack("<xxxI", peer) + mine)
        if reply[1] == 0x0F:
            raise WrongPassword("it refuses Strata's proof of the password", node=self.name)
        self._check(reply[1])
        expected = suite.mac(key, ours + struct.pack("<I", peer) + guid)[: suite.code]
        if not hmac.compare_digest(expected, reply[8 : 8 + suite.code]):
            raise DeviceError("it does not prove that it knows the session's key", node=self.name)
        self._peer, self._keys = peer, wire.Keys(suite, key)

    def _check(self, status: int) -> None:
        if status:
            words = _LOGIN_REFUSALS.get(status, f"it refuses the login with the status {status:02X}h")
            raise DeviceError(words, node=self.name, request="login")

    async def _bare(self, command: int, data: bytes) -> bytes:
        """A command outside any session."""
        self._sequence = (self._sequence + 1) % 64
        request = wire.Message(APP, 0, self._sequence, command, data)
        packet = await self._exchange(lambda: wire.bare(request.encode()), lambda packet: _answers(request, packet))
        answer = wire.message(packet.payload)
        assert answer is not None
        code = answer.data[0] if answer.data else 0xFF
        if code:
            raise Refusal(f"it refuses to say how to log in ({code:02X}h)", code=code, node=self.name, request="login")
        return answer.data[1:]

    async def _shake(self, kind: int, awaited: int, request: bytes) -> bytes:
        """One step of the handshake. A repeat is a new step (a new tag), since a BMC takes none twice."""
        tag = os.urandom(1)

        def again() -> bytes:
            nonlocal tag
            tag = bytes(((tag[0] + 1) & 0xFF,))
            return wire.bare(tag + request, kind)

        def fits(packet: wire.Packet) -> bool:
            reply = packet.payload
            return packet.kind == awaited and len(reply) >= 2 and reply[:1] == tag and self._meant(reply)

        return (await self._exchange(again, fits, pause=_SHAKES_ANEW)).payload

    def _meant(self, reply: bytes) -> bool:
        """Whether a reply of the handshake is for this session; a refusal may be too short to say."""
        return len(reply) < 8 or int.from_bytes(reply[4:8], "little") in (self.id, 0)

    async def _exchange(
        self,
        request: Callable[[], bytes],
        fits: Callable[[wire.Packet], bool],
        timeout: float = float("inf"),
        *,
        once: bool = False,
        pause: float = _SENDS_ANEW,
    ) -> wire.Packet:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        self._answer, self._awaits = loop.create_future(), fits
        try:
            while True:
                self._link.send(request())
                left = until - loop.time()
                await asyncio.wait([self._answer], timeout=left if once else min(left, pause))
                if self._answer.done():
                    return self._answer.result()
                if once or loop.time() >= until:
                    raise TimeoutError
                pause *= 1.5
        finally:
            self._answer.cancel()
            self._answer = self._awaits = None

    def _sealed(self, kind: int, payload: bytes) -> bytes:
        assert self._keys is not None
        self._sent += 1
        return self._keys.seal(kind, self._peer, self._sent, payload)


def _answers(request: wire.Message, packet: wire.Packet) -> bool:
    if packet.kind != wire.IPMI:
        return False
    found = wire.message(packet.payload)
    asked = (request.netfn + 1, request.sequence, request.command)
    return found is not None and (found.netfn, found.sequence, found.command) == asked
