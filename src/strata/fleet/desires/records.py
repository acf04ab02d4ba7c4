"""Desires, set on nodes or in documents."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.texts import (
    DocumentNameText,
    In,
    Out,
    RevisionNumber,
    SelectText,
    VariableText,
    WantedMap,
    check_wanted,
)
from strata.fleet.desires.documents import DesireDocument
from strata.fleet.nodes.results import NodeResult


class DesireView(Out, frozen=True, kw_only=True):
    """What is wanted; any of ``values`` will do. ``origin``: ``node`` or the document's name."""

    values: tuple[str, ...]
    author: str
    revision: int
    origin: str


class DesireChange(In, frozen=True, kw_only=True):
    """Set or unset desires on every selected node. ``if_match``: the newest revision of them that you have seen."""

    select: SelectText
    set: WantedMap = msgspec.field(default_factory=dict)
    unset: Annotated[tuple[VariableText, ...], Meta(max_length=64)] = ()
    if_match: RevisionNumber | None = None

    def __post_init__(self) -> None:
        check_wanted(self.set)


class DesireResult(Out, frozen=True, kw_only=True):
    """Per-node results; ``changed`` counts the nodes whose desires are now others than before."""

    results: tuple[NodeResult, ...]
    changed: int
    revision: int


class DocumentSpec(In, frozen=True, kw_only=True):
    """A named desire for whatever ``select`` matches, now and later. A higher priority wins."""

    name: DocumentNameText
    select: SelectText
    set: WantedMap
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0

    def __post_init__(self) -> None:
        check_wanted(self.set)


class DocumentView(DesireDocument, frozen=True, kw_only=True, omit_defaults=False):
    """A document as it stands; ``matches`` counts the nodes that it selects now."""

    revision: int
    matches: int


class Applied(Out, frozen=True, kw_only=True):
    """What an apply did, or would do, to a document, a group, or nodes (``name`` is then a nodeset)."""

    kind: Literal["node", "group", "desire"] = "desire"
    name: str
    action: Literal["created", "changed", "unchanged", "deleted"]
    nodes: int
    """How many nodes it means."""
    detail: str = ""
    missing: tuple[str, ...] = ()
    """Groups that a document names and that are not there: nobody is meant by them until they are."""


class ApplyReport(Out, frozen=True, kw_only=True):
    """What changed."""

    changes: tuple[Applied, ...]
    dry_run: bool
    revision: int
