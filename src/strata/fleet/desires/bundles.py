"""What one ``strata apply`` sends: documents, and what files say of nodes and groups."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.fleet.desires.records import ApplyRequest
from strata.fleet.groups.records import GroupStatement
from strata.fleet.nodes.records import NodeStatement


class BundleRequest(ApplyRequest, frozen=True, kw_only=True):
    """The documents that should be there, and how nodes and groups should be: all of it, or nothing."""

    nodes: Annotated[tuple[NodeStatement, ...], Meta(max_length=10_000)] = ()
    groups: Annotated[tuple[GroupStatement, ...], Meta(max_length=10_000)] = ()
