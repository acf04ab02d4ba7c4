"""What nodes are configured with: overlays as the repository says them, revisions of all of them, and drift."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from strata.core.texts import PLAIN, DocumentNameText, In, NodeNameText, Out, SelectText
from strata.provisioning.agents.wire import Drifted
from strata.provisioning.personalities.records import NameText

MOST_TEXT = 512 * 1024
"""Bytes of one file or template."""
CURRENT = "current"
"""What a desire says for the revision of the commit that it is in."""
VARIABLE = "config"
NONE = "none"
"""What a node's configuration is that has none, and of which none is wanted."""

_PART = r"(?!\.{1,2}(/|$))[^/\u0000-\u001f\u007f]+"
PathText = Annotated[str, Meta(pattern=rf"^(/{_PART})+$(?!\n)", max_length=1024)]
ModeText = Annotated[str, Meta(pattern=r"^0[0-7]{3,4}$(?!\n)")]
AccountText = Annotated[str, Meta(pattern=r"^([a-z_][a-z0-9_-]{0,30}\$?|[0-9]{1,9})$(?!\n)")]
WordText = Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=1024)]
ColumnText = Annotated[str, Meta(pattern=r"^[^:\u0000-\u001f\u007f]*$(?!\n)", max_length=256)]
UnitText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]{0,200}$(?!\n)")]
PackageText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]{0,127}$(?!\n)")]
VersionText = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9+.:~^_-]{0,127})?$(?!\n)")]
SysctlText = Annotated[str, Meta(pattern=r"^[a-z][A-Za-z0-9_-]*([./][A-Za-z0-9_:-]+)+$(?!\n)", max_length=200)]
Number = Annotated[int, Meta(ge=0, le=2**31)]
CommandWords = Annotated[tuple[WordText, ...], Meta(max_length=32)]
Policy = Literal["report", "correct"]
"""What the agent does about drift: tell of it, or put right and tell."""


class Entry(In, frozen=True, kw_only=True, omit_defaults=True):
    """What every entry of an overlay can say."""

    drift: Policy | Literal[""] = ""
    """Empty: as the overlay says, and where that says nothing: ``report``."""
    members: Annotated[tuple[NameText, ...], Meta(max_length=16)] = ()
    """The members of the personality that it is for; none: all."""
    absent: bool = False
    """These nodes do not get it, whatever wider overlays say."""
    place: Annotated[str, Meta(max_length=4096)] = ""
    """Where it is written; filled in by the reader."""
    by: ClassVar[str] = "name"

    @property
    def key(self) -> str:
        """By what a narrower overlay replaces it."""
        return str(getattr(self, self.by))


class FileEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A file. Its text is ``content``, or ``template`` (Jinja2), or in the repository's file ``source``, which is a
    template if its name ends with ``.j2``."""

    by: ClassVar[str] = "path"
    path: PathText
    source: Annotated[str, Meta(pattern=rf"^{_PART}(/{_PART})*$(?!\n)|^$", max_length=512)] = ""
    content: Annotated[str, Meta(max_length=MOST_TEXT)] | None = None
    template: Annotated[str, Meta(max_length=MOST_TEXT)] | None = None
    mode: ModeText = "0644"
    owner: AccountText = "root"
    group: AccountText | Literal[""] = ""
    """Empty: the owner's own."""
    reload: CommandWords = ()
    """Run in the member when the file has changed while it runs."""


class GroupEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A group of accounts."""

    name: AccountText
    gid: Number | None = None
    accounts: Annotated[tuple[AccountText, ...], Meta(max_length=1000)] = ()


class UserEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """An account. It has no password; ``keys`` go into its ``.ssh/authorized_keys``."""

    name: AccountText
    uid: Number | None = None
    gid: Number | None = None
    """Its own group; None: the number of the account."""
    home: PathText | Literal[""] = ""
    shell: PathText = "/bin/sh"
    comment: ColumnText = ""
    keys: Annotated[tuple[Annotated[str, Meta(pattern=PLAIN, max_length=16384)], ...], Meta(max_length=100)] = ()


class ServiceEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A unit of the member's init."""

    name: UnitText
    enabled: bool | None = None
    """None: as the image has it."""
    running: bool | None = None


class PackageEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A package that the member's own package manager (dpkg or rpm) has installed."""

    name: PackageText
    version: VersionText = ""
    """Empty: any."""


class MountEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A file system that is mounted in a member."""

    by: ClassVar[str] = "target"
    target: PathText
    source: WordText = ""
    type: Annotated[str, Meta(pattern=r"^[a-z0-9._]{0,32}$(?!\n)")] = ""
    options: Annotated[str, Meta(pattern=PLAIN, max_length=1024)] = ""


class SysctlEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A parameter of the node's kernel."""

    name: SysctlText
    value: WordText = ""

    @property
    def key(self) -> str:
        """By what a narrower overlay replaces it."""
        return self.name.replace("/", ".")


AnyEntry = FileEntry | GroupEntry | UserEntry | PackageEntry | ServiceEntry | MountEntry | SysctlEntry
_MANY = Meta(max_length=2000)
FIELDS = ("files", "groups", "users", "packages", "services", "mounts", "sysctls")
"""The kinds of entries, as an overlay calls them."""


class Entries(In, frozen=True, kw_only=True, omit_defaults=True):
    """What an overlay consists of, in a document and when it is resolved."""

    files: Annotated[tuple[FileEntry, ...], _MANY] = ()
    groups: Annotated[tuple[GroupEntry, ...], _MANY] = ()
    users: Annotated[tuple[UserEntry, ...], _MANY] = ()
    packages: Annotated[tuple[PackageEntry, ...], _MANY] = ()
    services: Annotated[tuple[ServiceEntry, ...], _MANY] = ()
    mounts: Annotated[tuple[MountEntry, ...], _MANY] = ()
    sysctls: Annotated[tuple[SysctlEntry, ...], _MANY] = ()
    vars: Annotated[Mapping[str, Any], Meta(max_length=1000)] = {}
    """What templates call ``vars``: text, lists and mappings."""


class Overlay(Entries, frozen=True, kw_only=True, omit_defaults=True):
    """What one document says, with all that it refers to: entries have their texts, places and policies."""

    name: DocumentNameText
    layer: Literal["vendor", "site", "system"] = "site"
    select: SelectText
    rank: Annotated[int, Meta(ge=0, le=10_000)]
    """Of two that say something of one key of a node, the higher rules."""


Overlays = tuple[Overlay, ...]
OverlaysIn = Annotated[Overlays, Meta(max_length=2000)]


def revision_of(overlays: Overlays) -> str:
    """What ``config`` is where these are in force: of what they say, and not of where it is written."""
    said = [msgspec.structs.replace(overlay, **_unplaced(overlay)) for overlay in overlays]
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()[:12]


def _unplaced(overlay: Overlay) -> dict[str, Any]:
    return {
        field: tuple(msgspec.structs.replace(entry, place="") for entry in getattr(overlay, field)) for field in FIELDS
    }


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """All overlays of one state of the repository, as they are kept."""

    overlays: bytes
    """Compressed JSON."""
    commit: str = ""
    time: float = 0.0


class RenderedFile(Out, frozen=True, kw_only=True):
    """A file as a node would get it."""

    path: str
    mode: str
    owner: str
    group: str
    drift: str
    members: tuple[str, ...]
    place: str
    content: str


class RenderedOverlay(Out, frozen=True, kw_only=True):
    """What a node would be configured with."""

    node: str
    revision: str
    digest: str
    files: tuple[RenderedFile, ...]
    rest: Mapping[str, Any]
    """Users, groups, packages, services, mounts, sysctls, as its agent gets them."""


class DriftItem(Drifted, frozen=True, kw_only=True):
    """The same, with the node that it is on."""

    node: NodeNameText
    how: str


class DriftList(Out, frozen=True, kw_only=True):
    """Drift of the nodes that were asked about."""

    items: tuple[DriftItem, ...]
    silent: str = ""
    """Nodes (folded) whose agents could not be asked."""
