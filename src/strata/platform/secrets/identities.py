"""The service's age identities: the newest is encrypted for, all of them open. Sealed in the store."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strata.core.errors import NotFound, Refused
from strata.fleet.access.sealing import Seal
from strata.fleet.fleet import Fleet
from strata.platform.secrets import age
from strata.platform.secrets.records import IdentityView, SecretIdentity

PREFIX = "secret-identity/"


class Identities:
    """All of them, level with the store. ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet) -> None:
        self._seal = fleet.of(Seal)
        self._clock = fleet.controller.clock.wall
        self._records = fleet.records(SecretIdentity, kind="secret-identity", prefix=PREFIX, changed=self._changed)
        self._opened: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Identities({len(self._records.all)})"

    async def start(self) -> None:
        """Load them, and bring each under the key that seals now, if an older one still opens it."""
        await self._records.start()

        def fresh(there: dict[str, SecretIdentity]) -> dict[str, SecretIdentity]:
            sealed = {name: self._seal.reseal(record.sealed, PREFIX + name) for name, record in there.items()}
            return {name: msgspec.structs.replace(there[name], sealed=new) for name, new in sealed.items() if new}

        await self._records.change_all("strata", "all", fresh, action="reseal")  # type: ignore[arg-type]

    async def stop(self) -> None:
        """Follow them no more."""
        await self._records.stop()
        self._opened.clear()

    async def make(self, author: str, *, another: bool) -> None:
        """Make one where there is none, or another one."""
        count = len(self._records.all)
        if count and not another:
            raise Refused(
                "there is an identity already",
                by="identity",
                where="secret",
                hint="another one: strata secret init --new",
            )
        recipient, private = age.generate()
        name = f"{count + 1:04d}"
        sealed = self._seal.seal(private.encode(), PREFIX + name)
        record = SecretIdentity(recipient=recipient, sealed=sealed, made=self._clock(), author=author)
        await self._records.put(author, name, record, expected=0, action="init", detail={"recipient": recipient})

    def view(self) -> IdentityView:
        """For whom secrets are encrypted; ``NotFound`` where there is no identity yet."""
        kept = self._kept()
        older = tuple(record.recipient for _, record in kept[:-1])
        return IdentityView.of(kept[-1][1], older=older)

    def private(self) -> list[str]:
        """What opens secrets; ``Corrupt`` where the key that seals is not the one of then."""
        for name, record in self._kept():
            if name not in self._opened:
                self._opened[name] = self._seal.open(record.sealed, PREFIX + name).decode()
        return list(self._opened.values())

    def _kept(self) -> Sequence[tuple[str, SecretIdentity]]:
        if not self._records.all:
            raise NotFound("the service has no age identity yet", where="secret", hint="make one: strata secret init")
        return self._records.sorted

    def _changed(self, name: str, record: SecretIdentity | None) -> None:
        self._opened.pop(name, None)
