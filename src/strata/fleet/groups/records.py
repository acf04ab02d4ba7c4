"""Groups."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from strata.core.texts import PLAIN, GroupNameText, In, NoteText, Out


class GroupSpec(In, frozen=True, kw_only=True):
    """A group's members (a nodeset) and what it is for. ``members`` unset: those that it has stay."""

    members: Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)] | UnsetType = UNSET
    description: NoteText = ""


class GroupStatement(GroupSpec, frozen=True, kw_only=True):
    """What a file says of a group."""

    name: GroupNameText


class MemberChange(In, frozen=True, kw_only=True):
    """Nodesets to add and remove; removal comes last."""

    add: Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)] = ""
    remove: Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)] = ""


class GroupView(Out, frozen=True, kw_only=True):
    """A group. ``members`` is folded."""

    name: str
    description: str
    members: str
    count: int
    revision: int
