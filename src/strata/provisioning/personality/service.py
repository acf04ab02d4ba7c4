"""Requests about image sets."""

from __future__ import annotations

import msgspec

from strata.core.errors import Refused
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.fleet import Fleet
from strata.provisioning.personality.records import ImageSet, ImageSetList, ImageSetSpec, ImageSetView, check
from strata.provisioning.personality.sets import ImageSets

VARIABLE = "image"


class ImageSetService:
    """Image sets, as people see and change them."""

    def __init__(self, service: Fleet, sets: ImageSets) -> None:
        self._service = service
        self._sets = sets

    async def all(self, who: Principal) -> ImageSetList:
        """All of them, by name."""
        return ImageSetList(items=tuple(self._view(who, image_set) for _, image_set in self._sets.records.sorted))

    async def show(self, who: Principal, name: str) -> ImageSetView:
        """One of them, and how many of the caller's nodes have it, or should."""
        return self._view(who, self._sets.records.get(name))

    async def put(self, who: Principal, name: str, spec: ImageSetSpec, expected: int | None) -> ImageSetView:
        """Create or replace one; refused where one of its images is not in the repository."""
        image_set = ImageSet(name=name, members=spec.members, description=spec.description)
        check(image_set)
        resolved = await self._sets.trial(image_set)
        detail = {"digest": resolved.digest, "members": [f"{m.name}={m.release}" for m in image_set.members]}
        await self._sets.records.put(who.name, name, image_set, expected=expected, detail=detail)
        await self._sets.settled()
        return self._view(who, image_set)

    async def delete(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove one that nobody wants."""
        self._sets.records.get(name)
        wanted = self._wanted(name)
        if wanted:
            raise Refused(
                f"{wanted} nodes are wanted to have it",
                by="desires",
                where=f"image set {name}",
                hint=f"strata node list want:image={name} shows them",
            )
        await self._sets.records.delete(who.name, name, expected=expected)

    def _wanted(self, name: str, who: Principal = LOCAL_ADMIN) -> int:
        if VARIABLE not in self._service.controller.model.variables:
            return 0
        return self._service.count(who, self._service.registry.wanted(VARIABLE, name))

    def _view(self, who: Principal, image_set: ImageSet) -> ImageSetView:
        name = image_set.name
        has = VARIABLE in self._service.controller.model.variables
        return ImageSetView(
            **msgspec.structs.asdict(image_set),
            digest=self._sets.digest(name),
            problem=self._sets.problem(name),
            releases={member: release.image for member, release in self._sets.releases(name).items()},
            wanted=self._wanted(name, who),
            running=self._service.count(who, self._service.view.fact_mask(VARIABLE, name)) if has else 0,
            revision=self._sets.records.revision(name),
        )
