"""Requests about secrets: which there are, whom they are for, new values, and who has them. None shows a value."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from strata.core.errors import BadRequest, Corrupt, Refused
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.platform.config.keeper import Keeper
from strata.platform.config.service import ConfigService
from strata.platform.scopes import Scopes
from strata.platform.secrets.delivery import SecretDelivery
from strata.platform.secrets.identities import Identities
from strata.platform.secrets.records import (
    IdentityView,
    NewValue,
    Secret,
    SecretEntry,
    SecretSpec,
    SecretStatus,
    SecretView,
    check,
)
from strata.platform.secrets.values import Values
from strata.platform.secrets.vault import Vault
from strata.platform.settings import PlatformSettings

KIND: Literal["secret"] = "secret"


class SecretService:
    """The secrets of this fleet. ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.records = fleet.records(Secret, kind=KIND, listed_by="strata secret list", changed=self._changed)
        self._scopes = Scopes(fleet.registry)
        self._identities = Identities(fleet)
        self._values = Values(self._identities, Vault(fleet.section(PlatformSettings)), fleet.controller.clock.now)
        self._delivery = SecretDelivery(fleet, self.records, self._values, self._scopes)

    async def start(self) -> None:
        """Load what there is, and give nodes theirs."""
        await self._identities.start()
        await self.records.start()
        self._fleet.of(ConfigService).keepers[KIND] = Keeper(self.records, self.made, lambda name, record: record.spec)
        await self._delivery.start()

    async def stop(self) -> None:
        """Give out nothing more."""
        await self._delivery.stop()
        await self.records.stop()
        await self._identities.stop()

    # identity

    async def recipient(self, who: Principal) -> IdentityView:
        """The age recipient for which secrets are encrypted."""
        return self._identities.view()

    async def init(self, who: Principal, *, new: bool) -> IdentityView:
        """Make the service's age identity. Its private half never leaves the service."""
        await self._identities.make(who.name, another=new)
        return self._identities.view()

    # secrets

    async def all(self, who: Principal) -> Sequence[SecretView]:
        """All secrets: whom they are for, and which version is the newest."""
        return [self._view(record) for _, record in self.records.sorted]

    async def one(self, who: Principal, name: str) -> SecretView:
        """One of them."""
        return self._view(self.records.get(name))

    async def put(self, who: Principal, name: str, spec: SecretSpec) -> SecretView:
        """Create or replace a secret. Its value is encrypted with age for the service's recipient, or is in a Vault."""
        return await self._put(who, SecretEntry.of(spec, name=name), "put")

    async def rotate(self, who: Principal, name: str, new: NewValue) -> SecretView:
        """Give a secret another value, encrypted with age for the service's recipient; whom it is for stays."""
        old = self.records.get(name).spec
        if old.vault is not None:
            raise Refused(
                "its value is in a Vault", by="vault", where=name, hint="change it there: nodes get it by themselves"
            )
        return await self._put(who, msgspec.structs.replace(old, age=new.age), "rotate")

    async def delete(self, who: Principal, name: str) -> None:
        """Remove a secret; nodes that are up remove it, too."""
        self._not_from_git(name)
        await self.records.delete(who.name, name)

    async def status(self, who: Principal, name: str) -> SecretStatus:
        """Which nodes hold the newest value, as they say themselves."""
        record = self.records.get(name)
        held = await self._delivery.held(name)
        wanted = [self._fleet.registry.names[index] for index in self._nodes(record)]
        newest = self._values.stamp(record)
        sorted_out: dict[str, list[str]] = {key: [] for key in ("current", "older", "missing", "away", "leftover")}
        for node in wanted:
            stamp = held.get(node)
            if stamp is None:
                where = "away"
            elif not stamp:
                where = "missing"
            else:
                where = "current" if stamp == newest else "older"
            sorted_out[where].append(node)
        inside = frozenset(wanted)
        sorted_out["leftover"] = [node for node, stamp in held.items() if stamp and node not in inside]
        return SecretStatus(
            name=name,
            version=record.version,
            nodes=len(wanted),
            counts={key: len(nodes) for key, nodes in sorted_out.items()},
            trouble=self._values.troubles.get(name, ""),
            **{key: fold(nodes) for key, nodes in sorted_out.items()},
        )

    # what the configuration says

    def made(self, spec: SecretEntry, author: str) -> Secret:
        """The record of what is said; ``BadRequest`` where it cannot be. A new version where the value is another."""
        where = f"secret {spec.name}"
        check(spec, where)
        if spec.age:
            try:
                self._values.check(spec, where)
            except Corrupt as error:
                raise BadRequest(error.detail, where=where, hint=error.hint) from None
        old = self.records.find(spec.name)
        same_value = old is not None and (old.spec.age, old.spec.vault) == (spec.age, spec.vault)
        same_file = old is not None and same_value and (old.spec.uid, old.spec.gid) == (spec.uid, spec.gid)
        return Secret(
            spec=spec,
            version=old.version + (not same_value) if old is not None else 1,
            stamp=old.stamp if old is not None and same_file else secrets.token_hex(8),
            changed=self._fleet.controller.clock.wall(),
            author=author,
        )

    # parts

    async def _put(self, who: Principal, entry: SecretEntry, action: str) -> SecretView:
        self._not_from_git(entry.name)
        record = self.made(entry, who.name)
        detail = {"select": entry.select[:200], "version": record.version}
        await self.records.put(
            who.name, entry.name, record, expected=self.records.revision(entry.name), action=action, detail=detail
        )
        return self._view(record)

    def _not_from_git(self, name: str) -> None:
        if name in self._fleet.of(ConfigService).applied.kept.get(KIND, ()):
            raise Refused(
                "comes from the repository, which would bring it back",
                by="repository",
                where=f"secret {name}",
                hint="change it there: strata secret encrypt writes the document",
            )

    def _nodes(self, record: Secret) -> list[int]:
        found: list[int] = np.flatnonzero(self._scopes.mask(record.spec.select)).tolist()
        return found

    def _view(self, record: Secret) -> SecretView:
        spec = record.spec
        return SecretView.of(
            spec,
            record,
            nodes=len(self._nodes(record)),
            source="age" if spec.vault is None else f"vault {spec.vault.mount}/{spec.vault.path} {spec.vault.field}",
            trouble=self._values.troubles.get(spec.name, ""),
        )

    def _changed(self, name: str, record: Secret | None) -> None:
        self._values.forget(name)
        self._delivery.soon()
