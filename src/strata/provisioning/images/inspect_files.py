"""Looks at every byte of an image on this controller."""

from __future__ import annotations

from strata.core.errors import Corrupt
from strata.provisioning.images.layers import check_file
from strata.provisioning.images.records import Made
from strata.provisioning.images.release import Release
from strata.provisioning.images.shelf import Shelf
from strata.provisioning.images.squash import write_chunks


def check_files(shelf: Shelf, release: Release, made: Made | None) -> tuple[list[str], list[str]]:
    """What is missing, and what is damaged."""
    missing, damaged = [], []
    parts = [(shelf.squashfs(release.squashfs), release.squashfs, "squashfs")]
    if made is not None:
        parts.append((shelf.blob(made.image), made.image, "manifest"))
        parts.append((shelf.blob(made.config_digest), made.config_digest, "configuration"))
        parts += [(shelf.blob(layer.digest), layer.digest, "layer") for layer in made.layers]
    for path, digest, what in parts:
        try:
            check_file(path, digest)
        except FileNotFoundError:
            missing.append(f"the {what} {digest[:19]}… is not on this controller")
        except Corrupt:
            damaged.append(f"the {what} {digest[:19]}… is damaged")
    try:
        with shelf.workplace() as work:
            write_chunks(shelf.squashfs(release.squashfs), work / "chunks")
            check_file(work / "chunks", release.chunks)
        check_file(shelf.chunks(release.chunks), release.chunks)
    except FileNotFoundError:
        missing.append("the list of chunks is not on this controller")
    except Corrupt:
        damaged.append("the list of chunks is damaged")
    return missing, damaged
