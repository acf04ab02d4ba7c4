"""The press: makes the squashfs of an image. ``unpacking`` runs it in a process with limits, so that nobody waits.

What it is about to do it says on standard error, which is the log that people see. It can be killed at any time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tarfile
import time
from pathlib import Path

import msgspec

from strata.provisioning.images import oci
from strata.provisioning.images.archive import stack, take
from strata.provisioning.images.layers import check_file, file_digest, unpack
from strata.provisioning.images.records import LayerRecord, Made
from strata.provisioning.images.release import ImageConfig, Release
from strata.provisioning.images.shelf import Shelf, place
from strata.provisioning.images.squash import squash
from strata.provisioning.images.tree import MOST_BYTES, Tree


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to make an image of: an archive, a manifest whose blobs are there, or a new layer on a parent."""

    root: str
    work: str = ""
    """An empty directory on the same file system, which whoever orders removes."""
    archive: str = ""
    ref: str = ""
    manifest: str = ""
    layer: str = ""
    """A plain tar."""
    parent: str = ""
    made_by: str = ""
    run: ImageConfig = ImageConfig()
    source: str = ""
    most: int = MOST_BYTES
    """Bytes that it may unpack to."""


class Pressed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: ``made``, or ``error``."""

    made: Made | None = None
    release: Release | None = None
    """The signed release that came with the image."""
    error: str = ""
    where: str = ""
    hint: str = ""
    ours: bool = False
    """The fault is ours (a tool is missing, the disk is full), not the image's."""


def press(order: Order) -> Pressed:
    """Do it."""
    shelf, work = Shelf(Path(order.root)), Path(order.work)
    release, kind = None, ""
    if order.archive:
        say("reading the archive")
        taken = take(shelf, Path(order.archive), work, ref=order.ref, run=order.run, most=order.most)
        manifest, release, kind = taken.manifest, taken.release, taken.kind
        (work / "archive.tar").unlink(missing_ok=True)
    elif order.layer:
        say("packing the new layer")
        manifest = stack(shelf, Path(order.layer), order.parent, order.run, order.made_by, work)
    else:
        manifest = order.manifest
    source = f"{order.source} ({kind})" if kind else order.source
    return Pressed(made=_made(shelf, manifest, source, work, order.most), release=release)


def _made(shelf: Shelf, image: str, source: str, work: Path, most: int) -> Made:
    manifest = oci.parse_manifest(shelf.read(image))
    config = oci.parse_config(shelf.read(manifest.config.digest), len(manifest.layers))
    tree = Tree(most_bytes=most)
    with contextlib.ExitStack() as opened:
        tars = []
        left = most
        for number, (layer, diff_id) in enumerate(zip(manifest.layers, config.rootfs.diff_ids, strict=True)):
            say(f"layer {number + 1} of {len(manifest.layers)}: {layer.size / 1e6:.1f} MB")
            blob, plain = shelf.blob(layer.digest), work / f"{number}.tar"
            check_file(blob, layer.digest)
            left -= unpack(blob, plain, diff_id=diff_id, most=left)
            tars.append(opened.enter_context(tarfile.open(plain, "r:", errors="surrogateescape")))
            tree.apply(number, tars[-1])
        say("making the squashfs")
        squashfs = work / "image.squashfs"
        done = squash(tree, tars, squashfs, work / "listing.gz", processors=min(2, os.cpu_count() or 1))
    listing = file_digest(work / "listing.gz")
    place(work / "image.chunks", shelf.chunks(done.chunks))
    place(squashfs, shelf.squashfs(done.squashfs))
    place(work / "listing.gz", shelf.listing(image))
    if done.left_out:
        say(f"{done.left_out} device nodes were left out: nodes bring their own")
    say(f"{done.files} files, {done.unpacked / 1e6:.1f} MB; {done.size / 1e6:.1f} MB as squashfs")
    steps = [step for step in config.history or () if not step.empty_layer]
    words = [step.created_by or step.comment for step in steps] if len(steps) == len(manifest.layers) else []
    return Made(
        image=image,
        config_digest=manifest.config.digest,
        config=config.run,
        architecture=config.architecture[:32],
        layers=tuple(
            LayerRecord(digest=layer.digest, size=layer.size, made_by=words[i][:300] if words else "")
            for i, layer in enumerate(manifest.layers)
        ),
        **msgspec.structs.asdict(done),
        created=time.time(),
        source=source[:300],
        listing=listing,
    )


def say(text: str) -> None:
    """One line for the log."""
    print(text, file=sys.stderr, flush=True)
