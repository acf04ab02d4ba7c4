"""All of it, put together: what a controller runs so that the others' images and minimal OSes are here as well."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from strata.fleet.alarm import AlarmSink
from strata.provisioning.images.repository import Images
from strata.provisioning.minos.artefacts import Artefacts
from strata.provisioning.minos.soundness import Soundness
from strata.provisioning.replication.builds import SharedBuilds
from strata.provisioning.replication.copying import Copier, Read
from strata.provisioning.replication.files import SILENCE, Library
from strata.provisioning.replication.holdings import Holdings
from strata.provisioning.replication.image_copies import ImageCopies
from strata.provisioning.signing import Signer
from strata.store.audit import Ledger
from strata.store.protocol import Store


class Replication:
    """``start``, ``stop``."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        images: Images,
        minos: Path,
        soundness: Soundness,
        signer: Signer,
        alarm: AlarmSink,
        *,
        me: str,
        announce: Callable[[str, bytes], None],
        others: Callable[[], Collection[str]],
        read: Read,
        silence: float = SILENCE,
    ) -> None:
        """``soundness``: of the builds in ``minos``. ``me``: this controller. ``announce``: keeps a record in the store
        for as long as it lives. ``others``: the controllers that are there and can be believed. ``read``: has one of
        them give a part of a file. ``silence``: seconds for a part to come."""
        copier = Copier(read, alarm, silence=silence)
        self.library = Library(images.shelf, minos)
        self.holdings = Holdings(store, me, announce=announce, others=others)
        self.images = ImageCopies(store, images, self.holdings, copier)
        self.builds = SharedBuilds(store, ledger, Artefacts(minos), signer, soundness, self.holdings, copier)

    async def start(self) -> None:
        """Begin; the images' catalogue is there already."""
        await self.holdings.start()
        await self.images.start()
        await self.builds.start()

    async def stop(self) -> None:
        """End; what is under way is gone on with at the next start."""
        await self.builds.stop()
        await self.images.stop()
        await self.holdings.stop()
