"""Who has what: each controller keeps a record of the images and minimal OSes that it has whole, while it lives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

import msgspec

from strata.provisioning.images.release import check_digest
from strata.store.followed import Followed
from strata.store.protocol import Store

log = logging.getLogger(__name__)

PREFIX = "holding/"


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What one controller has."""

    images: frozenset[bytes] = frozenset()
    """Digests of manifests: 32 bytes each."""
    builds: frozenset[str] = frozenset()


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(Holding).decode


class Holdings:
    """Those of all controllers. ``start``, ``stop``."""

    def __init__(
        self,
        store: Store,
        me: str,
        *,
        announce: Callable[[str, bytes], None],
        others: Callable[[], Collection[str]],
    ) -> None:
        """``announce``: keeps a record in the store for as long as this controller lives. ``others``: the other
        controllers that are there and can be believed."""
        self.me = me
        self._announce = announce
        self._others = others
        self._mine = Holding()
        self.changed: list[Callable[[], None]] = []
        """Told whenever another one has something else."""
        self._found: dict[str, Holding] = {}
        self._followed = Followed(store, PREFIX, self._take, self._found.clear)
        self.stop = self._followed.stop

    async def start(self) -> None:
        """Know from now on."""
        self._announce(PREFIX + self.me, _encode(self._mine))
        await self._followed.start()

    def has_images(self, images: Iterable[str]) -> None:
        """This controller has these, and no others."""
        self._tell(msgspec.structs.replace(self._mine, images=frozenset(map(_raw, images))))

    def has_builds(self, builds: Iterable[str]) -> None:
        """The same for minimal OSes."""
        self._tell(msgspec.structs.replace(self._mine, builds=frozenset(builds)))

    def others(self) -> list[str]:
        """The other controllers that keep files."""
        trusted = set(self._others())
        return sorted(name for name in self._found if name in trusted)

    def with_image(self, image: str) -> list[str]:
        """Those of the others that have an image."""
        raw = _raw(image)
        return [name for name in self.others() if raw in self._found[name].images]

    def with_build(self, digest: str) -> list[str]:
        """Those of the others that have a minimal OS."""
        return [name for name in self.others() if digest in self._found[name].builds]

    def copies(self, image: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The controllers that have an image, and those that lack it; this one among them."""
        having = set(self.with_image(image))
        if _raw(image) in self._mine.images:
            having.add(self.me)
        return tuple(sorted(having)), tuple(sorted({self.me, *self.others()} - having))

    def _tell(self, mine: Holding) -> None:
        if mine != self._mine:
            self._mine = mine
            self._announce(PREFIX + self.me, _encode(mine))

    def _take(self, key: str, value: bytes | None) -> None:
        name = key.removeprefix(PREFIX)
        if name == self.me:
            return
        self._found.pop(name, None)
        if value is not None:
            try:
                self._found[name] = _decode(value)
            except msgspec.MsgspecError:
                log.error("what a controller has cannot be read", extra={"controller": name})
        for told in self.changed:
            told()


def _raw(image: str) -> bytes:
    return bytes.fromhex(check_digest(image))
