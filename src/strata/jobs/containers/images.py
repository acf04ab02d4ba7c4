"""Which image a reference means, and how it comes here: from Strata's repository, a registry, or a disk."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from strata.core.errors import NotFound, OutcomeUnknown, Unavailable
from strata.jobs.containers.cache import Cache, Image

LAYOUT, REGISTRY = "oci:", "docker://"


class Repository(Protocol):
    """Strata's, by its API."""

    def digest(self, reference: str) -> str:
        """What ``NAME:TAG`` stands for now."""

    def download(self, reference: str, into: IO[bytes]) -> None:
        """The image as a tar of an OCI layout."""


async def bring(
    cache: Cache,
    reference: str,
    repository: Repository,
    *,
    say: Callable[[str], None] = lambda text: None,
    logins: Path | None = None,
) -> Image:
    """The image, unpacked. One that is here is not fetched again; where nobody can be asked what a name stands for now,
    what it stood for last is taken, and ``say`` is told."""
    image = await _brought(cache, reference, repository, say=say, logins=logins)
    with contextlib.suppress(PermissionError):  # the site's folder, whose names are whoever's who keeps it
        cache.name(reference, image)
    return image


async def _brought(
    cache: Cache, reference: str, repository: Repository, *, say: Callable[[str], None], logins: Path | None
) -> Image:
    if reference.startswith(LAYOUT):
        folder, _, ref = reference.removeprefix(LAYOUT).partition(":")
        return await cache.from_layout(Path(folder), ref)
    if reference.startswith("sha256:"):
        if image := cache.find(reference):
            return image
        raise NotFound("no image with this digest is here", where=reference[:80], hint="strata container list")
    try:
        if reference.startswith(REGISTRY):
            return await cache.from_registry(reference.removeprefix(REGISTRY), logins=logins)
        name, _, wanted = reference.partition("@")
        if image := cache.find(wanted) if wanted else None:
            return image
        digest = repository.digest(name)
        if wanted and digest != wanted:
            raise NotFound(
                f"{name} stands for {digest[:19]} now, and the image that was asked for is not here",
                where=reference[:160],
                hint="ask for the image without its digest, or have it tested and promoted again",
            )
        if image := cache.find(digest):
            return image
        with tempfile.NamedTemporaryFile(dir=cache.work, suffix=".tar") as file:
            repository.download(name, file)
            file.flush()
            return await cache.from_archive(Path(file.name), digest, name)
    except (Unavailable, OutcomeUnknown) as error:
        kept = cache.named(reference)
        if kept is None:
            raise
        say(f"{error.detail}: {reference} is taken as it was last known here ({kept.digest[:19]})")
        return kept
