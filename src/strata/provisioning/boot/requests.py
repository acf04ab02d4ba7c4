"""Requests about booting: profiles, what a node would be told, and how its boots went."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import numpy as np

from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.fleet import Fleet
from strata.provisioning.boot import records as b
from strata.provisioning.boot.profiles import DEFAULT, Profiles
from strata.provisioning.boot.service import BootService
from strata.provisioning.identity.identity import Identity

VARIABLE = "minos"


class BootControl:
    """Booting, as people see and change it."""

    def __init__(self, service: Fleet, boot: BootService, profiles: Profiles, identity: Identity) -> None:
        self._service = service
        self._boot = boot
        self._profiles = profiles
        self._identity = identity

    async def profiles(self, who: Principal) -> Sequence[b.ProfileView]:
        """All boot profiles. A node boots the one that its desire for ``minos`` names, else ``default``."""
        return [await self.profile(who, name) for name in sorted(self._profiles.all)]

    async def profile(self, who: Principal, name: str) -> b.ProfileView:
        """One boot profile, and what it comes to now."""
        found = self._profiles.get(name)
        builds = self._boot.builds.by_architecture(found.minos)
        arch = max(builds, default="")  # x86_64, where there is one
        return b.ProfileView(
            **msgspec.structs.asdict(found),
            name=name,
            build=builds.get(arch, ""),
            builds=builds,
            label=self._profiles.label(name, arch) if builds else "",
            command_line=self._profiles.parameters(name),
            wanted=self._wanted(name, who),
            revision=self._profiles.revision(name),
        )

    async def put_profile(self, who: Principal, name: str, profile: b.Profile, expected: int | None) -> b.ProfileView:
        """Create or replace a boot profile."""
        await self._profiles.put(name, profile, who.name, expected)
        self._look(name)
        return await self.profile(who, name)

    async def delete_profile(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove a boot profile that no node is set to boot."""
        await self._profiles.delete(name, who.name, users=self._wanted(name), expected=expected)

    async def script(self, who: Principal, node: str) -> b.ScriptView:
        """The script that the node would get if it asked now. Changes nothing."""
        self._service.index(who, node)
        generation = self._identity.record(node).generation + 1
        return b.ScriptView(node=node, generation=generation, script=await self._boot.preview(node))

    async def status(self, who: Principal, select: str = "*", limit: int = 1000, after: str = "") -> b.BootStatusPage:
        """How nodes' boots went: generations, attempts, when they asked and when they arrived."""
        names = sorted(self._service.view.names(self._service.seen(who, select)))
        first = int(np.searchsorted(names, after, side="right")) if after and names else 0
        page = names[first : first + limit]
        more = first + limit < len(names)
        return b.BootStatusPage(
            items=tuple(await asyncio.gather(*map(self._status, page))), next=page[-1] if more else None
        )

    async def revoke(self, who: Principal, node: str) -> b.BootStatusView:
        """Make the node's certificate good for nothing; its next boot gets a new one. Facts show it at once: nobody
        waits until it is missed."""
        self._service.index(who, node)
        await self._service.ledger.commit(who.name, "boot.revoke", node, [])
        await self._identity.revoke(node, who.name)
        self._boot.questions.begun(node)
        return await self._status(node)

    def medium(self, name: str) -> str | None:
        """The file of a boot medium that may be fetched now, by the name that only its node's BMC was told."""
        return self._boot.medium(name)

    async def _status(self, name: str) -> b.BootStatusView:
        attached = self._boot.questions.attached(name)
        if not isinstance(attached, bool):
            attached = bool(await attached)
        record, asked = self._identity.record(name), self._boot.asked(name)
        return b.BootStatusView.of(
            record,
            node=name,
            profile=wanted_profile(self._service, name),
            script=asked.script or None,
            fragment=record.opened or None,
            redeemed=record.redeemed or None,
            expires=record.ends or None,
            attached=attached,
            held=self._boot.questions.held(name),
        )

    def _wanted(self, name: str, who: Principal = LOCAL_ADMIN) -> int:
        if VARIABLE not in self._service.controller.model.variables:
            return 0
        return self._service.count(who, self._service.registry.wanted(VARIABLE, name))

    def _look(self, name: str) -> None:
        """Nodes that are wanted to boot it may not be as they should any more; for ``default``, those of all."""
        if VARIABLE not in self._service.controller.model.variables:
            return
        registry = self._service.registry
        nodes = np.flatnonzero(
            registry.desires.goals(VARIABLE).codes if name == DEFAULT else registry.wanted(VARIABLE, name)
        )
        if len(nodes):
            self._service.controller.renew_goal(nodes)


def wanted_profile(service: Fleet, node: str) -> str:
    """The boot profile that a node's owners want; ``default`` if they do not say. Costs a lookup: thousands boot at
    once."""
    if VARIABLE not in service.controller.model.variables:
        return DEFAULT
    index = service.registry.find(node)
    goals = service.registry.desires.goals(VARIABLE)
    wanted = goals.table[goals.codes[index]] if index >= 0 else ()
    return wanted[0] if wanted else DEFAULT
