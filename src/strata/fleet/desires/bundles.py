"""What one ``strata apply`` sends: documents, and what files say of nodes and groups."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.core.texts import In
from strata.fleet.desires.records import DocumentSpec
from strata.fleet.groups.records import GroupStatement
from strata.fleet.nodes.records import NodeStatement


class BundleRequest(In, frozen=True, kw_only=True):
    """The documents that should be there, and how nodes and groups should be: all of it, or nothing. ``prune``: and no
    other documents. ``dry_run``: only say what would change."""

    documents: Annotated[tuple[DocumentSpec, ...], Meta(max_length=10_000)]
    prune: bool = False
    dry_run: bool = False
    nodes: Annotated[tuple[NodeStatement, ...], Meta(max_length=10_000)] = ()
    groups: Annotated[tuple[GroupStatement, ...], Meta(max_length=10_000)] = ()
