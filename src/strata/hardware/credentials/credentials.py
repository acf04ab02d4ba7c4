"""Who we are to the BMCs: users and passwords, sealed in the store, each for one BMC or a pattern.

A pattern is an address (``https://10.1.0.7``, ``10.1.0.7``), a glob of addresses (``10.1.*``) or ``default``; the most
specific one that fits is used. A password that is being changed stands in the record beside the one before, so that
nothing is lost whenever we are killed; until it is known which of the two is in force, neither is tried.
"""

from __future__ import annotations

import fnmatch
import re
import secrets
import string
from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec

from strata.core.errors import BadRequest, DeviceError
from strata.fleet.access.sealing import Seal
from strata.hardware.bmc.redfish.client import ROOT, Credentials
from strata.store.audit import Ledger
from strata.store.protocol import Store
from strata.store.records import Records

PREFIX = "bmc-credential/"
DEFAULT = "default"

Changed = Callable[[str, Callable[[str], bool]], None]
"""Hears of a pattern whose credential is another now, and whether the address of a BMC is meant by it."""

_GLOB = re.compile(r"[*?\[]")
_MOST_ROUTES = 500_000  # addresses whose pattern is remembered
_LONGEST = 256
_PASSWORD_LENGTH = 16  # what IPMI 1.5 can hold, and 90 bits of it random


class CredentialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A credential as it is stored; the passwords are sealed for the record's key."""

    pattern: str
    user: str
    sealed: bytes
    author: str
    changed: float
    pending: bytes = b""
    """The next password: written here before the BMC is told."""
    borrowed: bool = False
    """It is there only for the sake of ``pending``: what it was before is another pattern's credential."""

    def __repr__(self) -> str:
        return f"CredentialRecord({self.pattern})"


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(CredentialRecord).decode


class BmcCredentials:
    """All credentials, level with the store."""

    def __init__(self, store: Store, ledger: Ledger, seal: Seal) -> None:
        self.seal = seal
        self.changed: Changed | None = None
        self.kept = Records(
            store,
            ledger,
            CredentialRecord,
            kind="bmc-credential",
            prefix=PREFIX,
            listed_by="strata hardware credentials list",
            changed=self._take,
            cleared=self._clear,
        )
        self.stop = self.kept.stop
        self.records = self.kept.all
        self._globs: list[tuple[str, re.Pattern[str]]] = []
        self._routes: dict[str, str] = {}
        self.changing: set[str] = set()
        """Patterns whose password this process is changing: it knows which one is in force."""
        self._started = False

    def __repr__(self) -> str:
        return f"BmcCredentials({len(self.records)} records)"

    async def start(self) -> None:
        """Load the records and follow their changes until ``stop``."""
        await self.kept.start()
        self._started = True

    def lookup(self, address: str) -> Credentials:
        """User and password for the BMC at ``address``; ``DeviceError`` says what to do where there is none."""
        pattern = self.route(address)
        record = self.records.get(pattern)
        if record is None:
            raise DeviceError(
                "no user and password are known for it",
                node=base_of(address),
                hint=f"strata hardware credentials set {base_of(address)} --user NAME",
            )
        if record.pending and pattern not in self.changing:
            raise DeviceError(
                "not tried: a change of its password was interrupted, and it is not known which of the two it took",
                node=base_of(address),
                hint="strata hardware credentials rotate finds out; or set it: strata hardware credentials set",
            )
        return self.opened(record)

    def route(self, address: str) -> str:
        """The most specific pattern that fits ``address``; empty: none does."""
        pattern = self._routes.get(address)
        if pattern is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            pattern = self._routes[address] = self._route(address)
        return pattern

    def opened(self, record: CredentialRecord, *, pending: bool = False) -> Credentials:
        """The user and password in a record; ``Corrupt`` if the key is not at hand."""
        sealed = record.pending if pending else record.sealed
        return Credentials(record.user, self.seal.open(sealed, PREFIX + record.pattern).decode())

    def sealed(self, pattern: str, password: str) -> bytes:
        """A password in the form in which it is kept for ``pattern``."""
        return self.seal.seal(password.encode(), PREFIX + pattern)

    def copied(self, record: CredentialRecord, pattern: str) -> bytes:
        """The password of ``record``, in the form in which it is kept for another pattern."""
        return self.seal.seal(self.seal.open(record.sealed, PREFIX + record.pattern), PREFIX + pattern)

    def resealed(self, record: CredentialRecord) -> CredentialRecord | None:
        """The record under the key that seals now; None if it is already."""
        context = PREFIX + record.pattern
        sealed = self.seal.reseal(record.sealed, context)
        pending = self.seal.reseal(record.pending, context) if record.pending else None
        if sealed is None and pending is None:
            return None
        return msgspec.structs.replace(record, sealed=sealed or record.sealed, pending=pending or record.pending)

    def _route(self, address: str) -> str:
        forms = forms_of(address)
        for form in forms:
            if form in self.records:
                return form
        for pattern, glob in self._globs:
            if any(glob.match(form) for form in forms):
                return pattern
        return DEFAULT if DEFAULT in self.records else ""

    def _clear(self) -> None:
        self._globs = []
        self._routes.clear()

    def _take(self, pattern: str, record: CredentialRecord | None) -> None:
        self._routes.clear()
        if _GLOB.search(pattern):
            self._index_globs()
        if self._started and self.changed is not None:
            # One that is gone: whatever it fitted may be another's now. One that came: only what it is best for.
            gone = record is None
            self.changed(pattern, lambda address: fits(pattern, address) if gone else self.route(address) == pattern)

    def _index_globs(self) -> None:
        globs = [pattern for pattern in self.records if _GLOB.search(pattern)]
        # The more is written out, the more specific; the text itself decides between equals.
        globs.sort(key=lambda pattern: (-len(_GLOB.sub("", pattern)), pattern))
        self._globs = [(pattern, _compiled(pattern)) for pattern in globs]


def check_pattern(pattern: str) -> str:
    """The pattern in its one form; ``BadRequest`` if it can fit no address."""
    text = pattern.strip()
    if not text or len(text) > _LONGEST or not text.isprintable() or " " in text or "@" in text:
        raise BadRequest(
            f"a pattern is {DEFAULT!r}, an address or a glob of addresses, of 1 to {_LONGEST} characters",
            where=repr(pattern)[:80],
            hint="https://10.1.0.7, 10.1.0.7 or '10.1.*'",
        )
    return text if text == DEFAULT or _GLOB.search(text) else base_of(text)


def base_of(address: str) -> str:
    """The address of the BMC itself, without the system or outlet in it that ``address`` may name."""
    return forms_of(address)[1]


def forms_of(address: str) -> tuple[str, ...]:
    """The ways to name the BMC at ``address``, the most specific first: as given, without what is in it, its
    host and port, its host."""
    text = address.rstrip("/")
    if "://" not in text:
        return (text, text, text, _host(text)) if text else ("", "", "", "")
    base, _, _ = text.partition(ROOT)
    base = base.rstrip("/")
    netloc = urlsplit(base).netloc
    return (text, base, netloc, _host(netloc))


def is_exact(pattern: str) -> bool:
    """Whether a pattern is the address of one BMC, with its scheme."""
    return "://" in pattern and not _GLOB.search(pattern)


def fits(pattern: str, address: str) -> bool:
    """Whether a pattern fits an address, be there a better one or not."""
    forms = forms_of(address)
    if pattern == DEFAULT or pattern in forms:
        return True
    return bool(_GLOB.search(pattern)) and any(map(_compiled(pattern).match, forms))


def new_password() -> str:
    """A random password of letters and digits with one of ``-_.``: what every BMC's rules allow."""
    while True:
        letters = [secrets.choice(string.ascii_letters + string.digits) for _ in range(_PASSWORD_LENGTH)]
        letters[1 + secrets.randbelow(_PASSWORD_LENGTH - 2)] = secrets.choice("-_.")
        word = "".join(letters)
        if re.search("[a-z]", word) and re.search("[A-Z]", word) and re.search("[0-9]", word):
            return word


def _host(netloc: str) -> str:
    host, colon, port = netloc.rpartition(":")
    return host if colon and port.isdigit() and not host.endswith(":") else netloc


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern))
