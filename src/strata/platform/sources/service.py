"""Requests about sources of images; and the making of images that are not there yet, one after the other. Only one
controller makes them; the others get them from it."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Mapping, Sequence
from typing import Literal

from strata.core.errors import NotFound, Refused
from strata.core.printable import clean
from strata.fleet.access.principal import Principal
from strata.fleet.alarm import Alarm
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.platform.config.keeper import Keeper
from strata.platform.config.service import ConfigService
from strata.platform.duty import PLATFORM
from strata.platform.sources.records import Making, SourceEntry, SourceView, check
from strata.provisioning.images.records import BuildRequest, ImportRequest
from strata.provisioning.images.release import parse_reference
from strata.provisioning.images.repository import Images
from strata.provisioning.images.service import ImageService

KIND: Literal["image"] = "image"
SELF = Principal(name="image-source", role="admin")
EVERY = 5.0
FIRST, LONGEST = 60.0, 3600.0
"""Seconds until what failed is tried again: twice as long each time, up to this."""


class SourceService:
    """The sources of this fleet's images. ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._duty = fleet.controller.leadership.duty(PLATFORM)
        self.records = fleet.records(
            SourceEntry,
            kind="image-source",
            listed_by="strata image-source list",
            changed=lambda *_: self._round.soon(),
        )
        self._making = fleet.records(Making, kind="image-making")
        self._round = Recurring("images", self._go_round, lambda: EVERY, trouble="images cannot be made")

    async def start(self) -> None:
        """Load the sources; make images once the fleet runs."""
        await self._making.start()
        await self.records.start()
        if self._fleet.services.find(ImageService) is not None:
            self._fleet.of(ConfigService).keepers[KIND] = Keeper(self.records, self.made, together=self.together)
            self._fleet.begin(self._round.start)

    async def stop(self) -> None:
        """Make nothing more. What is under way goes on after the next start."""
        await self._round.stop()
        await self.records.stop()
        await self._making.stop()

    # asking

    async def all(self, who: Principal) -> Sequence[SourceView]:
        """What the repository says images are made of, and how far each is."""
        return [self._view(entry) for _, entry in self.records.sorted]

    async def again(self, who: Principal, name: str) -> SourceView:
        """Try now to make an image that could not be made."""
        self._fleet.need_whole_fleet(who, "an image")
        entry = self.records.get(name)
        if self._making.find(name) is not None and not self._is_there(entry):
            await self._making.delete(who.name, name, action="again")
        self._round.soon()
        return self._view(entry)

    # what the configuration says

    def made(self, spec: SourceEntry, author: str) -> SourceEntry:
        """The record of what is said; ``BadRequest`` where no image can be made of it."""
        check(spec, f"image {spec.name}")
        return spec

    def together(self, edits: Mapping[str, SourceEntry | None]) -> None:
        """Raise where a tag would come to stand for something else: nodes that have it would all be others at once."""
        for name, spec in edits.items():
            old = self.records.find(name)
            if spec is None or old is None or old.image != spec.image or old.digest == spec.digest:
                continue
            if self._is_there(old):
                raise Refused(
                    f"{spec.image} was made from something else already",
                    by="image",
                    where=f"image {name}",
                    hint="give the new image a tag of its own, and name that in the personality",
                )

    # making

    async def _go_round(self) -> None:
        if not self._duty.here:
            return
        now = self._fleet.controller.clock.wall()
        for name, entry in self.records.sorted:
            making = self._making.find(name)
            if making is not None and making.operation:
                await self._look(entry, making)
                continue
            failed = making is not None and making.digest == entry.digest and now < making.after
            if not failed and not self._is_there(entry):
                await self._begin(entry, making)

    async def _begin(self, entry: SourceEntry, before: Making | None) -> None:
        images = self._fleet.of(ImageService)
        image, tag = parse_reference(entry.image)
        if entry.registry:
            work = await images.bring(SELF, ImportRequest(name=image, tag=tag, registry=entry.registry))
        else:
            upload = (await images.begin_upload(SELF)).id
            await images.write_upload(SELF, upload, 0, await asyncio.to_thread(_packed, entry.files))
            work = await images.build(SELF, BuildRequest(name=image, tag=tag, upload=upload))
        tries = before.tries if before is not None and before.digest == entry.digest else 0
        making = Making(digest=entry.digest, operation=work.operation.id, tries=tries)
        await self._making.put(SELF.name, entry.name, making, action="begin", detail={"image": entry.image})

    async def _look(self, entry: SourceEntry, making: Making) -> None:
        """What has become of an operation."""
        try:
            row = await self._fleet.operations.show(making.operation)
        except NotFound:
            row = None  # it was forgotten: it is begun anew
        if row is not None and not row.over:
            return
        about = f"image {entry.image}"
        if self._is_there(entry) or row is None:
            done = Making(digest=making.digest)
            self._fleet.alarm(Alarm(kind="image-source", severity="ok", message=f"{about} was made", about=about))
        else:
            why = clean("; ".join(one.detail for one in row.errors) or row.state)[:300]
            wait = min(LONGEST, FIRST * 2**making.tries)
            after = self._fleet.controller.clock.wall() + wait
            done = Making(digest=making.digest, why=why, tries=making.tries + 1, after=after)
            message = f"{about} cannot be made: {why}"
            self._fleet.alarm(Alarm(kind="image-source", severity="warning", message=message, about=about))
        await self._making.put(SELF.name, entry.name, done, action="end", detail={"why": done.why})

    def _is_there(self, entry: SourceEntry) -> bool:
        image, tag = parse_reference(entry.image)
        found = self._fleet.of(Images).catalogue.names.get(image)
        return found is not None and tag in found.tags

    def _view(self, entry: SourceEntry) -> SourceView:
        making = self._making.find(entry.name)
        own = making if making is not None and making.digest == entry.digest else Making(digest=entry.digest)
        state: Literal["made", "making", "waiting", "failed"] = "waiting"
        if self._is_there(entry):
            state = "made"
        elif own.operation:
            state = "making"
        elif own.why:
            state = "failed"
        source = entry.registry or f"{len(entry.files)} files"
        return SourceView.of(entry, source=source, state=state, operation=own.operation, why=own.why)


def _packed(files: Mapping[str, str]) -> bytes:
    """The files as a build takes them: a tar."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, text in sorted(files.items()):
            data = text.encode()
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()
