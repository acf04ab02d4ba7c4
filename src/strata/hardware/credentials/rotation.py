"""A new random password for one BMC, without ever losing the one that is in force.

The new password is in the store, sealed, before the BMC is told; it counts when a login with it has worked. If
we are killed anywhere in between, both are there, and the next rotation finds out which one the BMC takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec

from strata.core.errors import DeviceError, NotFound, OutcomeUnknown, StrataError
from strata.core.redact import HIDDEN
from strata.hardware.bmc.dialects import Accepts, Dialect
from strata.hardware.bmc.protocol import Bmc
from strata.hardware.bmc.redfish.client import ROOT, Credentials, RedfishClient, RedfishSettings
from strata.hardware.bmc.redfish.wire import Tls
from strata.hardware.credentials.credentials import (
    PREFIX,
    BmcCredentials,
    CredentialRecord,
    base_of,
    new_password,
)


def login_checks(tls: Tls, dialects: Mapping[str, Dialect]) -> Mapping[str, Accepts]:
    """How to try a login, by the scheme of the address."""

    async def redfish(address: str, credentials: Credentials) -> bool:
        settings = RedfishSettings(wrong_passwords=1, quick=5.0)
        async with RedfishClient(credentials, settings=settings, tls=tls) as client:
            bmc = client.bmc(address)
            try:
                await client.get(address, f"{ROOT}/Managers")
            except DeviceError:
                if bmc.refused:
                    return False
                if not bmc.token:
                    raise
            return True

    others = {scheme: dialect.accepts for scheme, dialect in dialects.items()}
    return {"http": redfish, "https": redfish, **others}


SETTLE = 5.0
"""Seconds that a BMC is given to put a new password into force."""


class Rotation:
    """Changes passwords. ``accepts``: how to try a login, by the scheme of the address."""

    def __init__(
        self,
        credentials: BmcCredentials,
        bmc: Callable[[str], Bmc],
        accepts: Mapping[str, Accepts],
        *,
        settle: float = SETTLE,
    ) -> None:
        self._credentials = credentials
        self._bmc = bmc
        self._accepts = accepts
        self._settle = settle

    async def rotate(self, address: str, author: str) -> None:
        """Give the BMC at ``address`` a new password, or finish a change that was interrupted. Raises when it
        has not (or not for sure) a new one."""
        pattern = base_of(address)
        self._credentials.changing.add(pattern)
        try:
            await self._rotate(address, pattern, author)
        finally:
            self._credentials.changing.discard(pattern)

    async def _rotate(self, address: str, pattern: str, author: str) -> None:
        record, revision = self._record(address, pattern)
        if record.pending:
            if await self._lets_in(address, record, pending=True):
                await self._promote(record, revision, author)
                return
        else:
            sealed = self._credentials.sealed(pattern, new_password())
            record = msgspec.structs.replace(record, pending=sealed)
            revision = await self._write(record, revision, author, "change")
        password = self._credentials.seal.open(record.pending, PREFIX + pattern).decode()
        try:
            await self._bmc(address).set_password(record.user, password)
        except OutcomeUnknown:
            pass  # the login tells
        except StrataError as refusal:
            await self._withdraw(address, record, revision, author)
            said = refusal.detail.replace(password, HIDDEN)  # some name what they do not like
            raise DeviceError(f"it did not take a new password: {said}", node=pattern, hint=refusal.hint) from None
        for wait in (0.0, self._settle):
            await asyncio.sleep(wait)
            if await self._lets_in(address, record, pending=True):
                await self._promote(record, revision, author)
                return
        await self._withdraw(address, record, revision, author)
        raise DeviceError("the new password is not in force; it still takes the one before", node=pattern)

    def _record(self, address: str, pattern: str) -> tuple[CredentialRecord, int]:
        """The BMC's own record, or one made from the credential that fits it; and its revision."""
        own = self._credentials.records.get(pattern)
        if own is not None:
            return own, self._credentials.kept.revision(pattern)
        fitting = self._credentials.records.get(self._credentials.route(address))
        if fitting is None:
            self._credentials.lookup(address)  # says what is missing
            raise NotFound("no credential fits it", where=pattern)
        record = CredentialRecord(
            pattern=pattern,
            user=fitting.user,
            sealed=self._credentials.copied(fitting, pattern),
            author=fitting.author,
            changed=time.time(),
            borrowed=True,
        )
        return record, 0

    async def _lets_in(self, address: str, record: CredentialRecord, *, pending: bool) -> bool:
        scheme = address.partition("://")[0]
        accepts = self._accepts.get(scheme)
        if accepts is None:
            raise DeviceError(f"a login cannot be tried over {scheme[:20]}", node=record.pattern)
        return await accepts(address, self._credentials.opened(record, pending=pending))

    async def _promote(self, record: CredentialRecord, revision: int, author: str) -> None:
        current = msgspec.structs.replace(
            record, sealed=record.pending, pending=b"", author=author, changed=time.time(), borrowed=False
        )
        await self._write(current, revision, author, "changed")

    async def _withdraw(self, address: str, record: CredentialRecord, revision: int, author: str) -> None:
        """Forget the new password, if the one before is surely still in force."""
        try:
            before = await self._lets_in(address, record, pending=False)
        except StrataError as silent:
            raise DeviceError(
                "it is not known which of two passwords it takes; both are kept",
                node=record.pattern,
                hint="when it answers: strata hardware credentials rotate",
            ) from silent
        if not before:
            raise DeviceError(
                "it takes neither the new password nor the one before; both are kept",
                node=record.pattern,
                hint="try strata hardware credentials rotate again later, or set it: strata hardware credentials set",
            )
        back = None if record.borrowed else msgspec.structs.replace(record, pending=b"")
        await self._write(back, revision, author, "unchanged", record.pattern)

    async def _write(
        self, record: CredentialRecord | None, revision: int, author: str, action: str, pattern: str = ""
    ) -> int:
        """Write it where nobody else did meanwhile; the revision that it has then."""
        pattern = record.pattern if record else pattern
        await self._credentials.kept.change(author, pattern, lambda _: record, expected=revision, action=action)
        return self._credentials.kept.revision(pattern)
