"""What images are made of, and how far that is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.texts import PLAIN, DocumentNameText, In, Out
from strata.provisioning.images.build.recipe import CONTAINERFILE, RECIPE, parse_recipe
from strata.provisioning.images.records import SourceText
from strata.provisioning.images.registry import RemoteImage
from strata.provisioning.images.release import parse_reference

MOST = 512 << 10
"""Bytes of all files that an image is built of: larger ones belong into a registry."""


class SourceEntry(In, frozen=True, kw_only=True, omit_defaults=True):
    """What an image is made of: files with a recipe, or an image of a registry."""

    name: DocumentNameText
    image: SourceText
    """The tag to publish it under (``compute:12.3``). It never stands for anything else: something new has a new
    one."""
    registry: Annotated[str, Meta(pattern=PLAIN, max_length=500)] = ""
    """``HOST[:PORT]/NAME[:TAG][@sha256:...]``."""
    files: Annotated[Mapping[Annotated[str, Meta(max_length=1000)], str], Meta(max_length=1000)] = {}
    """``recipe.yaml`` or ``Containerfile``, and what it names: path → text."""

    @property
    def digest(self) -> str:
        """What it is made of, in short."""
        told = msgspec.msgpack.encode((self.registry, sorted(self.files.items())))
        return hashlib.sha256(told).hexdigest()[:16]


def check(entry: SourceEntry, where: str) -> None:
    """Raise ``BadRequest`` for what no image can be made of."""
    parse_reference(entry.image)
    if ":" not in entry.image:
        raise BadRequest("names a tag, such as compute:12.3", where=f"{where}: image")
    if bool(entry.registry) == bool(entry.files):
        raise BadRequest("an image comes either from a registry or from a recipe", where=where)
    if entry.registry:
        RemoteImage.parse(entry.registry)
        return
    if sum(len(text.encode()) for text in entry.files.values()) > MOST:
        hint = "build it elsewhere, and name it by its registry"
        raise BadRequest(f"its files are more than {MOST >> 10} KiB", where=where, hint=hint)
    if RECIPE in entry.files:
        parse_recipe(entry.files[RECIPE])
    elif CONTAINERFILE not in entry.files:
        raise BadRequest(f"there is neither {RECIPE} nor {CONTAINERFILE} in its folder", where=where)


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """How far an image is, as it is kept."""

    digest: str
    operation: str = ""
    """The one that makes it; empty: it is made, or failed."""
    why: str = ""
    """Why it failed."""
    tries: int = 0
    after: float = 0.0
    """When it is tried again (Unix seconds)."""


SourceState = Literal["made", "making", "waiting", "failed"]


class SourceView(Out, frozen=True, kw_only=True):
    """A source, and how far its image is."""

    name: str
    image: str
    source: str
    state: SourceState
    operation: str
    why: str
