"""Requests about images. Making one is an operation: it outlives the request, and a restart begins it anew."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from strata.core.errors import BadRequest, NotFound, Refused, StrataError, Unavailable
from strata.fleet.access.principal import Principal
from strata.fleet.operations.operations import Operations
from strata.fleet.operations.records import Step
from strata.provisioning.images import records as iv
from strata.provisioning.images.compare import Difference
from strata.provisioning.images.records import Tagged
from strata.provisioning.images.registry import RemoteImage
from strata.provisioning.images.release import ImageConfig, Release
from strata.provisioning.images.repository import Images

_LOOK = 1.0
"""Seconds between two looks whether an operation is to stop."""
_MOST_LOG = 1 << 20


async def _nothing() -> Collection[str]:
    return ()


class ImageService:
    """The repository, on behalf of somebody."""

    def __init__(
        self,
        images: Images,
        jobs: Operations,
        *,
        used_by: Callable[[str], Sequence[str]] = lambda reference: (),
        copies: Callable[[str], tuple[tuple[str, ...], tuple[str, ...]]] = lambda image: ((), ()),
        held: Callable[[], Awaitable[Collection[str]]] = _nothing,
    ) -> None:
        """``used_by``: the personalities that a tag is in. ``copies``: the controllers that have an image, and those
        that lack it. ``held``: the images that nodes have, by the digests of their squashfs."""
        self._held = held
        self._images = images
        self._copies = copies
        self._used_by = used_by
        self._jobs = jobs
        jobs.register("image-import", self._import)
        jobs.register("image-build", self._build)

    # -- looking

    async def list(self, who: Principal) -> Sequence[iv.ImageRow]:
        """All tags, and what each stands for."""
        names = self._images.catalogue.names
        return [self._row(tagged) for name in sorted(names) for _, tagged in sorted(names[name].tags.items())]

    async def show(self, who: Principal, name: str, tag: str) -> iv.ImageView:
        """One image: how it runs, its layers, what the name's tags stood for before."""
        return self._view(f"{name}:{tag}")

    async def diff(self, who: Principal, name: str, tag: str, other: str) -> Difference:
        """Files and packages that differ between this image and another."""
        return await self._images.diff(f"{name}:{tag}", other)

    async def verify(self, who: Principal, name: str, tag: str) -> iv.VerdictView:
        """Check the signature and every byte of the image on this controller. Changes nothing."""
        problems = await self._images.verify(f"{name}:{tag}")
        return iv.VerdictView(ok=not problems, problems=tuple(problems))

    async def export(self, who: Principal, name: str, tag: str) -> AsyncIterator[bytes]:
        """The image as a tar of an OCI layout, with its signed release."""
        return await self._images.export(f"{name}:{tag}")

    # -- changing

    async def move(self, who: Principal, name: str, tag: str, request: iv.MoveRequest) -> iv.ImageView:
        """Let a tag stand for an image that is there: promotion, and the way back. It is a new release of the name."""
        await self._images.catalogue.move(who.name, request.source, f"{name}:{tag}", create=request.create)
        return self._view(f"{name}:{tag}")

    async def sign(self, who: Principal, name: str, tag: str) -> iv.ImageView:
        """Sign the release again, with the key of now."""
        await self._images.catalogue.sign(who.name, f"{name}:{tag}")
        return self._view(f"{name}:{tag}")

    async def delete(self, who: Principal, name: str, tag: str) -> None:
        """Let a tag stand for nothing, unless nodes run it or may be told to. For a week it can be had back."""
        if sets := self._used_by(f"{name}:{tag}"):
            raise Refused(
                f"the personality {sets[0]} is made of it" + (f", and {len(sets) - 1} more" if sets[1:] else ""),
                by="personality",
                where=f"{name}:{tag}",
                hint=f"strata personality put another, or strata personality delete {sets[0]}",
            )
        await self._images.catalogue.delete(who.name, f"{name}:{tag}")

    async def undelete(self, who: Principal, name: str, tag: str) -> iv.ImageView:
        """Undo the last deletion of a tag."""
        await self._images.catalogue.undelete(who.name, f"{name}:{tag}")
        return self._view(f"{name}:{tag}")

    async def gc(self, who: Principal, request: iv.GcRequest) -> iv.GcView:
        """Remove images that nothing stands for, and files of none; or say what would go."""
        held = await self._held()
        return await self._images.gc(who.name, dry_run=request.dry_run, keep=request.keep, held=held)

    # -- making

    async def begin_upload(self, who: Principal) -> iv.UploadView:
        """Begin to send a file. It is gone a day after the last piece."""
        return iv.UploadView(id=await self._images.uploads.begin(), size=0)

    async def write_upload(self, who: Principal, upload: str, offset: int, data: bytes) -> iv.UploadView:
        """One piece."""
        return iv.UploadView(id=upload, size=await self._images.uploads.write(upload, offset, data))

    async def drop_upload(self, who: Principal, upload: str) -> None:
        """It is not needed after all."""
        await self._images.uploads.remove(upload)

    async def bring(self, who: Principal, request: iv.ImportRequest) -> iv.WorkView:
        """Import an image from an upload (an OCI layout, a docker archive or plain files, as a tar) or from a
        registry."""
        if bool(request.upload) == bool(request.registry):
            raise BadRequest("an image comes either from an upload or from a registry", where="upload, registry")
        if request.upload:
            self._images.uploads.path(request.upload)
        else:
            RemoteImage.parse(request.registry)
        arguments = {
            "upload": request.upload,
            "registry": request.registry,
            "ref": request.ref,
            "unsigned": request.unsigned,
            "argv": list(request.argv),
        }
        return await self._start("image-import", who, f"{request.name}:{request.tag}", arguments)

    async def build(self, who: Principal, request: iv.BuildRequest) -> iv.WorkView:
        """Build an image from an uploaded recipe or Containerfile."""
        self._images.uploads.path(request.upload)
        return await self._start("image-build", who, f"{request.name}:{request.tag}", {"upload": request.upload})

    async def log(self, who: Principal, ident: str, offset: int = 0) -> iv.LogPart:
        """What was said while an image was made, from ``offset`` on. Ask again from ``next`` while its operation
        runs."""
        path = self._images.shelf.log(ident)

        def read() -> tuple[bytes, int]:
            with path.open("rb") as file:
                if offset > file.seek(0, os.SEEK_END):
                    return b"", offset  # not every filesystem can seek as far as one can count
                file.seek(offset)
                found = file.read(_MOST_LOG)
                return found, offset + len(found)

        try:
            data, end = await asyncio.to_thread(read)
        except FileNotFoundError:
            raise NotFound("no such log on this controller", where="log") from None
        return iv.LogPart(text=data.decode("utf-8", "replace"), next=end)

    # -- inside

    async def _start(self, kind: str, who: Principal, reference: str, arguments: Mapping[str, Any]) -> iv.WorkView:
        log = secrets.token_hex(16)
        self._images.shelf.log(log).touch(mode=0o600)
        told = {**arguments, "reference": reference, "author": who.name, "log": log}
        job = await self._jobs.start(kind, who.name, 1, told)
        return iv.WorkView(operation=job.shown(), log=log)

    def _import(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        log = self._images.shelf.log(arguments["log"])

        def begin() -> Awaitable[Release]:
            author, reference = arguments["author"], arguments["reference"]
            if arguments["registry"]:
                return self._images.take_remote(author, arguments["registry"], reference, log)
            return self._images.take_archive(
                author,
                arguments["upload"],
                reference,
                log,
                ref=arguments["ref"],
                run=ImageConfig(argv=tuple(arguments["argv"])),
                unsigned=arguments["unsigned"],
            )

        return self._work(begin, arguments["upload"])

    def _build(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        log = self._images.shelf.log(arguments["log"])

        def begin() -> Awaitable[Release]:
            return self._images.build(arguments["author"], arguments["upload"], arguments["reference"], log)

        return self._work(begin, arguments["upload"])

    async def _work(self, begin: Callable[[], Awaitable[Release]], upload: str) -> AsyncIterator[Step]:
        """Steps while it is at work, so that it can be cancelled; then what came of it."""
        task = asyncio.ensure_future(begin())
        try:
            while not task.done():
                yield Step(position=None)
                await asyncio.wait([task], timeout=_LOOK)
            task.result()
        except Unavailable as error:
            # To an operation that would mean: the store is away, try for ever.
            raise StrataError(error.detail, where=error.where, hint=error.hint) from None
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            elif upload:
                self._images.shelf.upload(upload).unlink(missing_ok=True)
        yield Step(position=None, done=1)

    def _row(self, tagged: Tagged) -> iv.ImageRow:
        release = tagged.release
        made = self._images.catalogue.made.get(release.image)
        on, not_on = self._copies(release.image)
        return iv.ImageRow.of(
            release,
            architecture=made.architecture if made else "",
            since=tagged.since,
            author=tagged.author,
            here=self._images.is_here(release),
            on=on,
            not_on=not_on,
        )

    def _view(self, reference: str) -> iv.ImageView:
        catalogue = self._images.catalogue
        tagged = catalogue.tagged(reference)
        release, made = tagged.release, catalogue.find(reference)
        former = tuple(iv.FormerView.of(past, past.release) for past in catalogue.names[release.name].past)
        return iv.ImageView.of(self._row(tagged), release.config, release, made, former=former)
