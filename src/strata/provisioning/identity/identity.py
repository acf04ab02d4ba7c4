"""Node identity: a boot gets a one-time token, the token becomes a certificate, and only the newest boot's is good.

Every refusal raises ``Denied`` and tells the alarm sink. Knows neither HTTP nor the authority: ``sign`` is handed in.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from strata.core.errors import BadRequest, Denied
from strata.fleet.access.authority import Issued
from strata.fleet.alarm import Alarm, AlarmKind, AlarmSink
from strata.provisioning.identity.records import BootRecord, Records
from strata.provisioning.identity.tokens import Token, new_token, parse_token
from strata.store.protocol import Store

log = logging.getLogger(__name__)

TOKEN_TTL = 900.0
"""Seconds that a token is good for: a slow firmware and a large initrd fit."""
UNHEARD = 16
"""Boots that other controllers may have begun before we hear of them. A token that is further ahead is made up, and is
refused without a look into the store."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What a node gets: its certificate (PEM), and when it ends."""

    certificate: str
    expires: float


class Redemption(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants the certificate of a node's boot, and the token was good."""

    node: str
    generation: int
    peer: str
    csr: bytes


Sign = Callable[[bytes, str], Issued]
"""``sign(csr, node)``: a certificate that says the key in the request is ``node``'s. ``BadRequest`` if it cannot."""
Condition = Callable[[Redemption], Awaitable[None]]
"""What must hold besides the token; raises ``Denied`` where it does not."""


class Identity:
    """Hands out tokens and certificates, and knows which certificates are current."""

    def __init__(
        self,
        store: Store,
        sign: Sign,
        alarm: AlarmSink,
        *,
        owner: Callable[[str], str | None] = lambda address: None,
        conditions: Sequence[Condition] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``owner``: the node that an address belongs to, where one does."""
        self._records = Records(store)
        self.start, self.stop = self._records.start, self._records.stop
        self.record = self._records.get
        """How the node's boots went."""
        self._sign = sign
        self._alarm = alarm
        self._owner = owner
        self._conditions = conditions
        self._clock = clock

    def current(self, node: str, serial: str) -> bool:
        """Whether this certificate may speak for the node now. Touches memory only."""
        record = self._records.get(node)
        return bool(serial) and serial in (record.serial, record.former)

    async def recognises(self, node: str, serial: str) -> bool:
        """The same, but the store is asked before it is denied: another controller may have issued it just now."""
        if not self.current(node, serial):
            await self._records.refresh(node)
        return self.current(node, serial)

    def superseded(self, node: str, serial: str, peer: str) -> Denied:
        """The refusal of a certificate that is not current, after raising the alarm."""
        record = self._records.get(node)
        if not record.generation:
            # Deleted, and perhaps made again: whoever ran there knows nothing of that, and is nobody's intruder.
            log.info("a certificate of a node that was deleted", extra={"node": node, "peer": peer})
            return Denied(_TOLD["certificate-superseded"], where="certificate-superseded", hint=_ANEW)
        if serial in record.revoked:
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.revoked_at))
            told = f"certificate {serial[:40]} was revoked by {record.revoked_by or 'somebody'} at {when}"
            return self._refuse("certificate-revoked", node, peer, told)
        return self._refuse(
            "certificate-superseded", node, peer, f"certificate {serial[:40]} belongs to an earlier boot of the node"
        )

    async def open_boot(self, node: str, generation: int, peer: str = "") -> str:
        """Begin boot ``generation`` of ``node``: the token for it. Of two who ask for the same one, one gets it; a
        generation that has begun never begins again."""
        token = new_token(node, generation)

        def begin(record: BootRecord) -> BootRecord:
            if generation != record.generation + 1:
                raise self._refuse(
                    "boot-data-refused", node, peer, f"boot {generation} was asked for; the next one is another"
                )
            now = self._clock()
            return msgspec.structs.replace(
                record,
                generation=generation,
                token=token.hash,
                expires=now + TOKEN_TTL,
                opened=now,
                redeemed=0.0,
                attempts=record.attempts + 1,
            )

        await self._records.change(node, begin)
        return token.text

    async def forgive(self, node: str) -> None:
        """Hold the node's failed boots so far against it no more."""
        await self._records.change(node, lambda record: msgspec.structs.replace(record, forgiven=record.attempts))

    async def revoke(self, node: str, by: str) -> None:
        """Make the node's certificate good for nothing, in the name of ``by``; its next boot gets a new one."""

        def take(record: BootRecord) -> BootRecord:
            serials = tuple(filter(None, (record.serial, record.former)))
            if not serials:
                return record  # it has none: whoever took the last one stays on record
            return msgspec.structs.replace(
                record, serial="", former="", ends=0.0, revoked=serials, revoked_by=by, revoked_at=self._clock()
            )

        await self._records.change(node, take)

    async def redeem(self, text: str, csr: bytes, peer: str = "") -> Certificate:
        """The certificate for the boot that the token belongs to. Exactly one redemption wins."""
        token = parse_token(text)
        if token is None:
            raise self._refuse("token-foreign", "", peer, "not a token of ours")
        owner = self._owner(peer)
        ahead = token.generation - self._records.get(token.node).generation
        if 0 < ahead <= UNHEARD and owner in (None, token.node):
            await self._records.refresh(token.node)  # another controller may have begun the boot just now
        self._judge(token, self._records.get(token.node), peer)
        name = common_name(csr)
        if name != token.node or owner not in (None, token.node):
            asked = name if name != token.node else owner
            raise self._refuse("token-foreign", token.node, peer, f"another node ({_short(asked)}) showed its token")
        for condition in self._conditions:
            await condition(Redemption(node=token.node, generation=token.generation, peer=peer, csr=csr))
        issued = self._sign(csr, token.node)

        def win(now_record: BootRecord) -> BootRecord:
            self._judge(token, now_record, peer)
            return msgspec.structs.replace(
                now_record,
                redeemed=self._clock(),
                serial=issued.serial,
                former="",
                ends=issued.expires,
                attempts=0,
                forgiven=0,
            )

        await self._records.change(token.node, win)
        log.info("node enrolled", extra={"node": token.node, "generation": token.generation, "serial": issued.serial})
        for kind in _OVER:
            self._alarm(Alarm(kind=kind, message="it has booted anew", node=token.node, severity="ok"))
        return Certificate(certificate=issued.certificate.decode(), expires=issued.expires)

    async def renew(self, node: str, serial: str, csr: bytes, peer: str = "") -> Certificate:
        """A new certificate for a node that shows a current one."""
        if not await self.recognises(node, serial):
            raise self.superseded(node, serial, peer)
        if common_name(csr) != node:
            raise self._refuse("token-foreign", node, peer, "a certificate for another name was asked for")
        issued = self._sign(csr, node)

        def prolong(record: BootRecord) -> BootRecord:
            if serial not in (record.serial, record.former):
                raise self.superseded(node, serial, peer)
            # The one that asks stays good: the reply may be lost.
            return msgspec.structs.replace(record, serial=issued.serial, former=serial, ends=issued.expires)

        await self._records.change(node, prolong)
        return Certificate(certificate=issued.certificate.decode(), expires=issued.expires)

    def _judge(self, token: Token, record: BootRecord, peer: str) -> None:
        """Raise unless the token is the record's, unspent and in time."""
        if token.generation < record.generation:
            raise self._refuse("token-stale", token.node, peer, f"the token of boot {token.generation} came too late")
        if token.generation > record.generation or not token.matches(record.token):
            known = token.node if record.generation else ""  # names that nobody has are not passed on
            raise self._refuse("token-foreign", known, peer, "the token was never given to this node")
        if record.redeemed:
            raise self._refuse("token-replayed", token.node, peer, f"the token of boot {token.generation} came again")
        if record.expires <= self._clock():
            raise self._refuse("token-stale", token.node, peer, f"the token of boot {token.generation} has expired")

    def _refuse(self, kind: AlarmKind, node: str, peer: str, message: str) -> Denied:
        """Tell the alarm sink; the error for whoever asked says no more than it must."""
        self._alarm(Alarm(kind=kind, message=message, node=node, peer=peer))
        return Denied(_TOLD.get(kind, "this is not for you"), where=kind, hint=_ANEW)


_ANEW = "the node must boot anew to get a new token"
_OVER: tuple[AlarmKind, ...] = (
    "boot-failed", "token-stale", "certificate-superseded", "certificate-revoked", "generation-refused",
)  # fmt: skip
"""Troubles of a node's boots that are over when it has arrived with another. Somebody else's doings are not."""
_TOLD = {
    "token-replayed": "the token was redeemed before",
    "token-stale": "the token has expired or belongs to an earlier boot",
    "token-foreign": "the token is not good for this",
    "certificate-superseded": "the certificate belongs to an earlier boot",
    "certificate-revoked": "the certificate was revoked",
    "boot-data-refused": "this boot has begun before, or is not the next one",
}


def common_name(csr: bytes) -> str:
    """The name that a certificate signing request (PEM) is for; ``BadRequest`` if it is none."""
    try:
        names = x509.load_pem_x509_csr(csr).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadRequest("not a certificate signing request in PEM form", where="csr") from None
    return str(names[0].value) if len(names) == 1 else ""


def _short(text: object) -> str:
    return "".join(char if char.isprintable() else "?" for char in str(text)[:63])
