"""What became of the nodes of a request that concerned many of them."""

from __future__ import annotations

from strata.core.texts import Out


class NodeResult(Out, frozen=True, kw_only=True):
    """What happened to one node of many. ``ok`` false: ``error`` says why and ``status`` is HTTP's word for it."""

    node: str
    ok: bool
    status: int = 200
    error: str = ""


class ManyResult(Out, frozen=True, kw_only=True):
    """A change of many nodes: how many changed, and what went wrong with which."""

    changed: int
    nodeset: str
    errors: tuple[NodeResult, ...] = ()
    revision: int = 0
