"""Booting that behaves, in memory: real profiles, and nodes that have all booted once."""

from __future__ import annotations

from typing import Any

import msgspec

from strata.fleet.access.principal import Principal
from strata.provisioning.boot import records as b
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.records import Profile
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore

BUILD = "0123456789ab"
MEDIUM = f"{'m' * 43}.iso"
"""The one boot medium that there is."""


class FakeBoot:
    """Stands in for ``BootControl``."""

    def __init__(self, facade: Any, store: MemoryStore, ledger: Ledger) -> None:
        self._facade = facade
        self._profiles = Profiles(store, ledger, lambda which, arch: BUILD)

    async def profiles(self, who: Principal) -> b.ProfileList:
        return b.ProfileList(items=tuple([await self.profile(who, name) for name in sorted(self._profiles.all)]))

    async def profile(self, who: Principal, name: str) -> b.ProfileView:
        about = msgspec.structs.asdict(self._profiles.get(name))
        return b.ProfileView(
            name=name, build=BUILD, builds={"x86_64": BUILD}, label=self._profiles.label(name, "x86_64"),
            command_line=self._profiles.parameters(name),
            wanted=0, revision=self._profiles.revision(name), **about,
        )  # fmt: skip

    async def put_profile(self, who: Principal, name: str, spec: b.Profile, expected: int | None) -> b.ProfileView:
        await self._profiles.put(name, Profile(**msgspec.structs.asdict(spec)), who.name, expected)
        return await self.profile(who, name)

    async def delete_profile(self, who: Principal, name: str, expected: int | None) -> None:
        await self._profiles.delete(name, who.name, expected=expected)

    async def script(self, who: Principal, node: str) -> b.ScriptView:
        await self._facade.node(who, node)
        return b.ScriptView(node=node, generation=2, script="#!ipxe\n")

    async def status(self, who: Principal, select: str, limit: int, after: str) -> b.BootStatusPage:
        names = sorted(name for name in await self._facade.node_names(who, select) if name > after)
        page = names[:limit]
        return b.BootStatusPage(items=tuple(map(_booted, page)), next=page[-1] if len(names) > limit else None)

    async def revoke(self, who: Principal, node: str) -> b.BootStatusView:
        await self._facade.node(who, node)
        return msgspec.structs.replace(_booted(node), serial="", expires=None)

    def medium(self, name: str) -> str | None:
        return name if name == MEDIUM else None


def _booted(name: str) -> b.BootStatusView:
    return b.BootStatusView(
        node=name, profile="default", generation=1, attempts=0, script=1.0, fragment=2.0, redeemed=3.0, serial="A1",
        expires=4.0, attached=True, held=False,
    )  # fmt: skip
