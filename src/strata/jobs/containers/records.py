"""A container as a job asks for it, what a runtime can do, and what a runtime builds its command from. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.texts import In

PathText = Annotated[str, Meta(pattern=r"^/[^\u0000-\u001f\u007f:,]{0,1023}$(?!\n)", max_length=1024)]
WordText = Annotated[str, Meta(pattern=r"^[^\u0000]*$", max_length=65_536)]
MaybePathText = Annotated[str, Meta(pattern=r"^(/[^\u0000-\u001f\u007f:,]{0,1023})?$(?!\n)", max_length=1024)]
RuntimeText = Annotated[str, Meta(pattern=r"^[a-z0-9-]{0,32}$(?!\n)", max_length=32)]
NameText = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)", max_length=128)]
Home = Literal["none", "user", "tmp"]


class Bind(In, frozen=True, kw_only=True, omit_defaults=True):
    """A folder or file of the node that the container sees."""

    source: PathText
    target: MaybePathText = ""
    """Where; empty: at the same place."""
    read_only: bool = False

    @property
    def place(self) -> str:
        """Where the container sees it."""
        return self.target or self.source


class Container(In, frozen=True, kw_only=True, omit_defaults=True):
    """A container, as a job asks for it. The same for every runtime; what one cannot do it refuses."""

    image: Annotated[str, Meta(min_length=1, max_length=1024)]
    """``NAME:TAG`` of Strata's repository, ``docker://HOST/NAME:TAG`` of a registry, or ``oci:FOLDER[:REF]``."""
    runtime: RuntimeText = "native"
    binds: Annotated[tuple[Bind, ...], Meta(max_length=128)] = ()
    workdir: MaybePathText = ""
    """Where programs start. Empty: where the image says."""
    env: Annotated[Mapping[NameText, WordText], Meta(max_length=512)] = {}
    clear_env: bool = False
    """Whether nothing of the job's environment comes in. MPI needs it."""
    entrypoint: bool = False
    """Whether the image's own program stands before the job's: it then is what the job's words are for."""
    home: Home = "none"
    """``user``: the user's own; ``tmp``: an empty one that is gone afterwards."""
    writable: bool = False
    """Whether the image can be written to. What is written is gone afterwards; the image stays as it is."""
    own_pids: bool = False
    """Whether it sees no processes but its own."""
    node_tmp: bool = False
    """Whether ``/tmp`` and ``/dev/shm`` are the node's, where the tasks of a job on one node share memory. Jobs whose
    ``launch`` starts several have it."""
    devices: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...], Meta(max_length=64)] = ()
    """Accelerators and adapters, by CDI name (``nvidia.com/gpu=0``); ``all``; or ``given``, those that the workload
    manager gave to the job."""


NODE_TMP = ("/tmp", "/dev/shm")
"""What of the node ``node_tmp`` shows."""


class Abilities(NamedTuple):
    """What a runtime can do. What it cannot is refused with these words."""

    image: Literal["folder", "reference"] = "folder"
    """What it starts: an image that we unpacked, or one that it fetches itself by its reference."""
    user: Literal["own", "root"] = "own"
    """Who the user seems to be in there: the same, or root, who can do no more than the user."""
    writable: str = ""
    """Empty: the image can be written to and stays as it is. Else why not."""
    read_only: bool = True
    """Whether the image cannot be written to, unless that is asked for."""
    homes: tuple[Home, ...] = ("none", "user", "tmp")
    own_pids: bool = True
    hides_devices: bool = True
    """Whether devices that were not given are not there."""
    makes_places: bool = True
    """Whether it can show something where the image has nothing."""
    clear_env: bool = True
    read_only_binds: bool = True
    node_tmp: bool = False
    """Whether it can show the node's ``/tmp`` and ``/dev/shm``."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """All that a runtime builds its command from: an image that is there, and a request in which nothing is open."""

    asked: Container
    """The request: what counts as it was asked for."""
    root: str = ""
    """The unpacked image."""
    reference: str = ""
    """The image, for runtimes that fetch their own."""
    binds: tuple[Bind, ...] = ()
    devices: tuple[str, ...] = ()
    """Device files."""
    env: Mapping[str, str] = {}
    inherited: Mapping[str, str] = {}
    """The job's environment, for runtimes that write down all of it (in a file that only the user reads)."""
    workdir: str = "/"
    home_path: str = "/"
    uid: int = 0
    gid: int = 0
    user: str = ""
    held: int = -1
    """A descriptor that is to stay open for as long as the container runs; -1: none."""


def check(container: Container) -> None:
    """Raise ``BadRequest`` for what is well formed and yet cannot be."""
    for bind in container.binds:
        for path in (bind.source, bind.place):
            if posixpath.normpath(path) != path:
                raise BadRequest("a path must not contain '..' or '//', nor end with '/'", where=f"binds, {path[:80]}")
        if bind.place in ("/", "/proc", "/dev", "/sys", "/tmp"):
            raise BadRequest("that is the container's own", where=f"binds, {bind.place}", hint="bind below it")
    if len({bind.place for bind in container.binds}) < len(container.binds):
        raise BadRequest("two binds have the same place", where="binds")
