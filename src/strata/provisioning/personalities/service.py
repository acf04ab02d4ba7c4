"""Requests about personalities."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strata.core.errors import Refused
from strata.core.units import many
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.fleet import Fleet
from strata.provisioning.personalities.records import (
    Personality,
    PersonalitySpec,
    PersonalityView,
    check,
)
from strata.provisioning.personalities.resolve import Personalities

VARIABLE = "image"


class PersonalityService:
    """Personalities, as people see and change them."""

    def __init__(self, service: Fleet, sets: Personalities) -> None:
        self._service = service
        self._sets = sets

    async def all(self, who: Principal) -> Sequence[PersonalityView]:
        """All personalities."""
        return [self._view(who, personality) for _, personality in self._sets.records.sorted]

    async def show(self, who: Principal, name: str) -> PersonalityView:
        """One personality, and what its tags stand for now."""
        return self._view(who, self._sets.records.get(name))

    async def put(self, who: Principal, name: str, spec: PersonalitySpec, expected: int | None) -> PersonalityView:
        """Create or replace a personality. Nodes that it is set on change over."""
        personality = Personality(name=name, members=spec.members, description=spec.description)
        check(personality)
        resolved = await self._sets.trial(personality)
        detail = {"digest": resolved.digest, "members": [f"{m.name}={m.release}" for m in personality.members]}
        await self._sets.records.put(who.name, name, personality, expected=expected, detail=detail)
        await self._sets.settled()
        return self._view(who, personality)

    async def delete(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove a personality that no node is set to run."""
        self._sets.records.get(name)
        wanted = self._wanted(name)
        if wanted:
            raise Refused(
                f"it is set on {many(wanted, 'node')}",
                by="desires",
                where=f"personality {name}",
                hint=f"strata node list want:image={name} shows them",
            )
        await self._sets.records.delete(who.name, name, expected=expected)

    def _wanted(self, name: str, who: Principal = LOCAL_ADMIN) -> int:
        if VARIABLE not in self._service.controller.model.variables:
            return 0
        return self._service.count(who, self._service.registry.wanted(VARIABLE, name))

    def _view(self, who: Principal, personality: Personality) -> PersonalityView:
        name = personality.name
        has = VARIABLE in self._service.controller.model.variables
        return PersonalityView(
            **msgspec.structs.asdict(personality),
            digest=self._sets.digest(name),
            problem=self._sets.problem(name),
            releases={member: release.image for member, release in self._sets.releases(name).items()},
            wanted=self._wanted(name, who),
            running=self._service.count(who, self._service.view.fact_mask(VARIABLE, name)) if has else 0,
            revision=self._sets.records.revision(name),
        )
