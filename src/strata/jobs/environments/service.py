"""Requests about work environments: listing, deriving, promoting them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from strata.core.errors import BadRequest, Conflict, Denied, Refused
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.jobs.containers.records import check
from strata.jobs.environments.records import (
    KEPT,
    Environment,
    EnvironmentSpec,
    EnvironmentVersion,
    EnvironmentView,
    Promotion,
    Version,
    container,
    derive,
    numbered,
    pinned,
    promote,
)
from strata.provisioning.images.service import ImageService

_MANY = ("admin", "operator")
"""Roles that look after everybody's."""


class EnvironmentService:
    """Environments: everybody's to see and to use, their owners' to change."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._clock = fleet.controller.clock.wall
        self._records = fleet.records(Environment, kind="environment", listed_by="strata environment list")
        self.start = self._records.start
        self.stop = self._records.stop

    async def all(self, who: Principal) -> Sequence[EnvironmentView]:
        """All work environments."""
        return [self._view(one) for _, one in self._records.sorted]

    async def show(self, who: Principal, name: str, version: int = 0) -> EnvironmentView:
        """One of them; ``version``: another than the one that counts."""
        return self._view(self._records.get(name), version)

    async def put(self, who: Principal, name: str, spec: EnvironmentSpec, expected: int | None) -> EnvironmentView:
        """Make a new version, which counts once it is promoted. The environment is made, if it is not there."""
        parent, whole = self._derived(name, spec)
        if not whole.image and not whole.modules:
            raise BadRequest("has neither an image nor modules", where=f"environment {name}")
        if (wanted := container(whole)) is not None:
            check(wanted)

        def grown(found: Environment | None) -> Environment:
            found = found or Environment(name=name, owner=who.name)
            self._require(who, found)
            number = max((one.number for one in found.versions), default=0) + 1
            fresh = Version(number=number, spec=spec, whole=whole, parent=parent, author=who.name, time=self._clock())
            kept = [one for one in found.versions[-KEPT:] if one.number != found.current]
            counts = [one for one in found.versions if one.number == found.current]
            return msgspec.structs.replace(found, versions=(*counts, *kept, fresh))

        done = await self._records.change(who.name, name, grown, expected=expected, detail={"parent": parent})
        assert done is not None
        return self._view(done, done.versions[-1].number)

    async def promote(self, who: Principal, name: str, wanted: Promotion) -> EnvironmentView:
        """Let a version count that was tested, for those who begin to use the environment from now on. Refused where
        its test did not pass."""
        await self._check_image(who, self._records.get(name).version(wanted.version), wanted)

        def counting(found: Environment | None) -> Environment:
            found = found or self._records.get(name)
            self._require(who, found)
            return promote(found, wanted, who.name, self._clock())

        detail = {"version": wanted.version, "digest": wanted.digest, "host": wanted.host}
        done = await self._records.change(who.name, name, counting, action="promote", detail=detail)
        assert done is not None
        return self._view(done)

    async def delete(self, who: Principal, name: str, expected: int | None) -> None:
        """Remove one. What was derived from it stays."""
        self._require(who, self._records.get(name))
        await self._records.delete(who.name, name, expected=expected)

    def _derived(self, name: str, spec: EnvironmentSpec) -> tuple[str, EnvironmentSpec]:
        if not spec.based_on:
            return "", derive(None, spec)
        parent, number = numbered(spec.based_on)
        if parent == name and not number:
            raise BadRequest("derives from itself", where=f"environment {name}", hint=f"based_on: {name}@VERSION")
        found = self._records.get(parent)
        if not number and not found.current:
            raise Refused(
                f"no version of {parent} has been promoted yet",
                by="promotion",
                where=f"environment {name}, based_on",
                hint=f"name one: based_on: {parent}@{found.versions[-1].number}",
            )
        version = found.version(number)
        return f"{parent}@{version.number}", derive(version.whole, spec)

    async def _check_image(self, who: Principal, version: Version, wanted: Promotion) -> None:
        """That the image that was tested is the one that its name stands for: else nobody would get what was tested."""
        image, images = version.whole.image, self._fleet.services.find(ImageService)
        if not image or images is None or image.startswith(("docker://", "oci:", "sha256:")) or "@" in image:
            return
        name, _, tag = image.partition(":")
        stands_for = (await images.show(who, name, tag or "latest")).image
        if wanted.passed and wanted.digest and stands_for != wanted.digest:
            raise Conflict(
                f"{image} stands for {stands_for[:19]} now, and {wanted.digest[:19]} was tested",
                where=f"version {version.number}",
                hint="test it again: strata environment promote",
            )

    def _require(self, who: Principal, found: Environment) -> None:
        if found.owner != who.name and who.role not in _MANY:
            raise Denied(
                f"it is {found.owner}'s",
                where=f"environment {found.name}",
                hint=f"derive one of your own: strata environment derive {found.name} NEW",
            )

    def _view(self, one: Environment, number: int = 0) -> EnvironmentView:
        version = one.version(number)
        return EnvironmentView.of(
            one,
            version,
            version=version.number,
            promoted=version.tested is not None,
            whole=pinned(version),
            versions=tuple(EnvironmentVersion.of(past) for past in one.versions),
            revision=self._records.revision(one.name),
        )
