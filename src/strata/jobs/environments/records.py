"""A work environment: what is written, its versions, and what a version comes to with what it derives from. Pure.

A version never changes. What it comes to is put together when it is made, with the version of its parent that counts at
that moment: a parent that changes later, or goes, changes nothing for those who derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest, NotFound, Refused
from strata.core.texts import NAME, In, NoteText, Out
from strata.jobs.containers.records import (
    Bind,
    Container,
    Home,
    MaybePathText,
    NameText,
    RuntimeText,
    WordText,
)
from strata.jobs.resources import Asked, over

KEPT = 50
"""Versions of an environment that are kept, beside the one that counts."""

EnvironmentName = Annotated[str, Meta(pattern=NAME, max_length=63)]
ModuleText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]{0,127}$(?!\n)", max_length=128)]
ParentText = Annotated[
    str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62}(@[1-9][0-9]{0,5})?)?$(?!\n)", max_length=70)
]


class EnvironmentSpec(In, frozen=True, kw_only=True, omit_defaults=True):
    """An environment as it is written. What is left out comes from what it derives from."""

    description: NoteText = ""
    based_on: ParentText = ""
    """``NAME`` or ``NAME@VERSION`` of another environment. Empty: it stands alone."""
    image: Annotated[str, Meta(max_length=1024)] = ""
    """As a container has it. Empty, also in what it derives from: programs run on the node itself."""
    modules: Annotated[tuple[ModuleText, ...], Meta(max_length=64)] = ()
    """Loaded before the job, after those that it derives (``module load``)."""
    binds: Annotated[tuple[Bind, ...], Meta(max_length=128)] = ()
    env: Annotated[Mapping[NameText, WordText], Meta(max_length=512)] = {}
    workdir: MaybePathText = ""
    home: Home | None = None
    writable: bool | None = None
    devices: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...], Meta(max_length=64)] = ()
    defaults: Asked = msgspec.field(default_factory=Asked)
    """Resources that a job in it gets unless it says otherwise: ``cores: 4``, ``memory: 16G``."""
    test: Annotated[tuple[WordText, ...], Meta(max_length=64)] = ()
    """The program that has to succeed in it before a version counts."""


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """How a version was tested."""

    digest: str = ""
    """Of the image that it was tested with; empty: it has none."""
    runtime: str = ""
    host: str = ""
    author: str = ""
    time: float = 0.0


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version."""

    number: int
    spec: EnvironmentSpec
    whole: EnvironmentSpec
    """With all that it derives."""
    parent: str = ""
    """``NAME@VERSION`` that it was made from."""
    author: str
    time: float
    tested: Tested | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one environment."""

    name: str
    owner: str
    current: int = 0
    """The version that counts: what users get. 0: none has been promoted yet."""
    versions: tuple[Version, ...] = ()

    def version(self, number: int = 0) -> Version:
        """One of them; 0: the one that counts, or the newest where none does yet."""
        wanted = number or self.current or self.versions[-1].number
        for one in self.versions:
            if one.number == wanted:
                return one
        there = ", ".join(str(one.number) for one in self.versions)
        raise NotFound(f"has no version {wanted}; there are {there}", where=f"environment {self.name}")


class EnvironmentVersion(Out, frozen=True, kw_only=True):
    """A version, as it is shown."""

    number: int
    author: str
    time: float
    parent: str
    tested: Tested | None


class EnvironmentView(Out, frozen=True, kw_only=True):
    """An environment: the version that counts (or the newest, until one does), and what there is besides."""

    name: str
    owner: str
    version: int
    promoted: bool
    """Whether this version was tested and promoted."""
    spec: EnvironmentSpec
    whole: EnvironmentSpec
    """What jobs get: with all that it derives, and the image by the digest that was tested."""
    versions: tuple[EnvironmentVersion, ...]
    current: int
    revision: int


class Promotion(In, frozen=True, kw_only=True):
    """That a version was tested, and is to count from now on."""

    version: Annotated[int, Meta(ge=1, le=999_999)]
    passed: bool
    digest: Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$(?!\n)", max_length=71)] = ""
    runtime: RuntimeText = ""
    host: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,255}$(?!\n)", max_length=255)] = ""


def numbered(text: str) -> tuple[str, int]:
    """``NAME@VERSION``, parted; without a version it is 0, the one that counts."""
    name, _, number = text.partition("@")
    return name, int(number or 0)


def derive(parent: EnvironmentSpec | None, spec: EnvironmentSpec) -> EnvironmentSpec:
    """What an environment comes to on top of another: what it says rules; lists grow, and mappings are merged."""
    if parent is None:
        return msgspec.structs.replace(spec, based_on="")
    places = {bind.place: bind for bind in (*parent.binds, *spec.binds)}
    return EnvironmentSpec(
        description=spec.description or parent.description,
        image=spec.image or parent.image,
        modules=tuple(dict.fromkeys((*parent.modules, *spec.modules))),
        binds=tuple(places.values()),
        env={**parent.env, **spec.env},
        workdir=spec.workdir or parent.workdir,
        home=spec.home or parent.home,
        writable=parent.writable if spec.writable is None else spec.writable,
        devices=tuple(dict.fromkeys((*parent.devices, *spec.devices))),
        defaults=over(spec.defaults, parent.defaults)[0],
        test=spec.test or parent.test,
    )


def promote(environment: Environment, wanted: Promotion, author: str, now: float) -> Environment:
    """With a version that counts from now on; ``Refused`` where its test did not pass or cannot have."""
    version = environment.version(wanted.version)
    where = f"environment {environment.name}, version {version.number}"
    if version.whole.test and not wanted.passed:
        raise Refused("its test failed", by="test", where=where, hint="mend it: strata environment put")
    if not version.whole.test:
        raise Refused("it has no test: nobody knows whether it works", by="test", where=where, hint="test: [true]")
    if version.whole.image and not wanted.digest:
        raise BadRequest("the test has to say which image it ran in", where=f"{where}, digest")
    tested = Tested(digest=wanted.digest, runtime=wanted.runtime, host=wanted.host, author=author, time=now)
    versions = tuple(
        msgspec.structs.replace(one, tested=tested) if one.number == version.number else one
        for one in environment.versions
    )
    return msgspec.structs.replace(environment, current=version.number, versions=versions)


def container(whole: EnvironmentSpec, **asked: Any) -> Container | None:
    """The container of a job in it; None: it runs on the node itself. ``asked``: what the job says rules."""
    if not whole.image:
        return None
    told: dict[str, Any] = {
        "image": whole.image,
        "binds": whole.binds,
        "env": whole.env,
        "workdir": whole.workdir,
        "home": whole.home or "none",
        "writable": bool(whole.writable),
        "devices": whole.devices,
    }
    return Container(**{**told, **asked})


def pinned(version: Version) -> EnvironmentSpec:
    """What jobs get: the image that was tested, whatever its tag stands for by now."""
    whole, digest = version.whole, version.tested.digest if version.tested else ""
    if not whole.image or not digest or "@" in whole.image or whole.image.startswith(("oci:", "sha256:")):
        return whole
    return msgspec.structs.replace(whole, image=f"{whole.image}@{digest}")
