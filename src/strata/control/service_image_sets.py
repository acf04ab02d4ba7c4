"""Requests about image sets."""

from __future__ import annotations

import numpy as np

from strata.control import agent_views as a
from strata.control.editor import expected_revision
from strata.control.principal import LOCAL_ADMIN, Principal
from strata.control.service import Service
from strata.core.errors import NotFound, Refused
from strata.provisioning.personality.image_set import ImageSet, check
from strata.provisioning.personality.sets import PREFIX, ImageSets, encode
from strata.store.protocol import Delete, Put

VARIABLE = "image"


class ImageSetService:
    """Image sets, as people see and change them."""

    def __init__(self, service: Service, sets: ImageSets) -> None:
        self._service = service
        self._sets = sets

    async def all(self, who: Principal) -> a.ImageSetList:
        """All of them, by name."""
        return a.ImageSetList(items=tuple([await self._view(who, name) for name in self._sets.names()]))

    async def show(self, who: Principal, name: str) -> a.ImageSetView:
        """One of them, and how many of the caller's nodes have it, or should."""
        self._sets.get(name)
        return await self._view(who, name)

    async def put(self, who: Principal, name: str, spec: a.ImageSetSpec, expected: int | None) -> a.ImageSetView:
        """Create or replace one; refused where one of its images is not in the repository."""
        image_set = ImageSet(name=name, members=spec.members, description=spec.description)
        check(image_set)
        resolved = await self._sets.trial(image_set)
        key = PREFIX + name
        modified = await self._modified(name)
        expected_revision(f"image set {name}", expected, modified)
        detail = {"digest": resolved.digest, "members": [f"{m.name}={m.release}" for m in image_set.members]}
        put = Put(key, encode(image_set))
        revision = await self._service.ledger.commit(who.name, "image-set.put", name, [put], {key: modified}, detail)
        self._sets.wrote(name, image_set, revision)
        await self._sets.settled()
        return await self._view(who, name)

    async def delete(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove one that nobody wants."""
        self._sets.get(name)
        wanted = self._wanted(name)
        if wanted:
            raise Refused(
                f"{wanted} nodes are wanted to have it",
                by="desires",
                where=f"image set {name}",
                hint=f"strata node list want:image={name} shows them",
            )
        modified = await self._modified(name)
        expected_revision(f"image set {name}", expected, modified)
        key = PREFIX + name
        revision = await self._service.ledger.commit(who.name, "image-set.delete", name, [Delete(key)], {key: modified})
        self._sets.wrote(name, None, revision)

    def changed(self, name: str) -> None:
        """The set stands for something else now: look at the nodes that are wanted to have it."""
        if VARIABLE in self._service.controller.model.variables:
            nodes = np.flatnonzero(self._service.registry.wanted(VARIABLE, name))
            if len(nodes):
                self._service.controller.want_anew(nodes)

    def _wanted(self, name: str, who: Principal = LOCAL_ADMIN) -> int:
        if VARIABLE not in self._service.controller.model.variables:
            return 0
        return self._service.count(who, self._service.registry.wanted(VARIABLE, name))

    async def _modified(self, name: str) -> int:
        entry = await self._service.controller.store.get(PREFIX + name)
        return entry.modified if entry else 0

    async def _view(self, who: Principal, name: str) -> a.ImageSetView:
        image_set = self._sets.get(name)
        entry = await self._service.controller.store.get(PREFIX + name)
        if entry is None:
            raise NotFound("no such image set", where=name)
        has = VARIABLE in self._service.controller.model.variables
        running = self._service.count(who, self._service.view.fact_mask(VARIABLE, name)) if has else 0
        return a.ImageSetView(
            name=name,
            description=image_set.description,
            members=image_set.members,
            digest=self._sets.digest(name),
            problem=self._sets.problem(name),
            releases={member: release.image for member, release in self._sets.releases(name).items()},
            wanted=self._wanted(name, who),
            running=running,
            revision=entry.modified,
        )
