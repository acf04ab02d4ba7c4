"""A service that keeps images, on a socket of its own and a thread of its own: what the command's tests speak to."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from strata.api.server import ApiServer
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import Principal
from strata.fleet.operations.operations import Operations, OperationSettings
from strata.fleet.operations.records import Operation
from strata.provisioning.images.repository import Images
from strata.provisioning.images.service import ImageService
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore
from support.alarms import Alarms
from support.rooms import api_services

_T = TypeVar("_T")
_COUNT = itertools.count()
_PLACE = tempfile.TemporaryDirectory(prefix="strata-images-")
atexit.register(_PLACE.cleanup)


class _JobsOnly:
    """As much of a facade as images need."""

    def __init__(self, jobs: Operations) -> None:
        self._jobs = jobs

    async def operation(self, who: Principal, ident: str) -> Operation:
        return (await self._jobs.show(ident)).shown()

    async def cancel_operation(self, who: Principal, ident: str) -> Operation:
        return (await self._jobs.cancel(ident, who.name)).shown()


class ImageSite:
    """Use it as a context. ``directory`` must have a short path: there is a socket in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.alarms = Alarms()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="image site", daemon=True)

    def __enter__(self) -> ImageSite:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do something on its loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    async def _start(self) -> None:
        self.used: dict[str, tuple[str, ...]] = {}
        self.held: frozenset[str] = frozenset()
        self.store = MemoryStore()
        ledger = Ledger(self.store)
        self.jobs = Operations(self.store, ledger, owner="test", settings=OperationSettings(report_every=0.1))
        signer = Signer.open(self.directory / "signing")
        self.images = Images(self.directory / "images", self.store, ledger, signer, self.alarms.append)
        await self.images.start()
        self.copies: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self.service = ImageService(
            self.images,
            self.jobs,
            used_by=lambda reference: self.used.get(reference, ()),
            copies=lambda image: self.copies,
            held=self._held,
        )
        services = api_services(
            fleet=_JobsOnly(self.jobs),
            authenticator=Authenticator(self.store, ledger),
            rooms={ImageService: self.service},
        )
        self._server = ApiServer(services, self.directory / "admin.sock")
        await self._server.start()

    async def _held(self) -> frozenset[str]:
        return self.held

    async def _stop(self) -> None:
        await self._server.stop()
        await self.jobs.close()
        await self.images.stop()
        await self.store.close()


def small_images(store: MemoryStore, ledger: Ledger) -> ImageService:
    """A repository that holds nothing, for the API's tests. Its directory goes when the process ends."""
    directory = Path(_PLACE.name) / f"{next(_COUNT)}"
    images = Images(directory / "images", store, ledger, Signer.open(directory / "signing"), lambda alarm: None)
    images.shelf.open()
    return ImageService(images, Operations(store, ledger, owner="test"))
