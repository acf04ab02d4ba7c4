"""Boot profiles, and how nodes booted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from strata.core.texts import NAME, In, NoteText, Out
from strata.provisioning.minos.artefacts import LATEST

Method = Literal["ipxe", "http", "media"]
"""How a machine is started: its PXE firmware, its UEFI HTTP boot, or a medium that its BMC inserts."""

MinosText = Annotated[
    str,
    Meta(
        pattern=r"^(latest|[0-9a-f]{12})$(?!\n)",
        max_length=12,
        description="`latest`, or 12 digits of a build's digest.",
    ),
]
ParametersText = Annotated[
    str,
    Meta(
        pattern=r"^[ -~]*$(?!\n)",
        max_length=1500,
        description="Kernel parameters, over those of the profile `default`; `-name` removes one. Never a secret.",
    ),
]
ProfileName = Annotated[str, Meta(pattern=NAME, max_length=63)]


class Profile(In, frozen=True, kw_only=True, omit_defaults=True):
    """One way to boot."""

    minos: MinosText = LATEST
    parameters: ParametersText = ""
    method: Method = "ipxe"
    description: NoteText = ""


class ProfileEntry(Profile, frozen=True, kw_only=True, omit_defaults=True):
    """The same, with its name: as the repository says it."""

    name: ProfileName


class ProfileView(Profile, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=False):
    """A boot profile, and what it comes to now."""

    name: str
    build: str
    """The build of the minimal OS that it means now on x86_64, or on the only architecture that it has one for; empty:
    there is none."""
    builds: Mapping[str, str]
    """Architecture → the build that it means there."""
    label: str
    """What a node says of itself that booted ``build`` with it as it is now; empty: nobody can."""
    command_line: str
    """All kernel parameters: Strata's own, those of ``default``, and its own."""
    wanted: int
    """Nodes that are wanted to boot it."""
    revision: int


class ScriptView(Out, frozen=True, kw_only=True):
    """What a node would be told if it asked now."""

    node: str
    generation: int
    script: str


class BootStatusView(Out, frozen=True, kw_only=True):
    """How a node's boots went. Times are Unix seconds; None: never."""

    node: str
    profile: str
    generation: int
    attempts: int
    """Boots in a row that did not arrive."""
    script: float | None
    """When it last asked what to boot (since this service runs)."""
    fragment: float | None
    """When its last boot began."""
    redeemed: float | None
    """When that boot arrived."""
    serial: str
    """Its certificate."""
    expires: float | None
    """When that ends, if it is not renewed."""
    attached: bool
    held: bool


class BootStatusPage(Out, frozen=True, kw_only=True):
    """Some nodes, by name."""

    items: tuple[BootStatusView, ...]
    next: str | None
