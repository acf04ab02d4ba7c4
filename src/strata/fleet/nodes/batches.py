"""Nodes in the form that drivers take."""

from __future__ import annotations

from strata.core.driver import Batch
from strata.fleet.columns import Indices
from strata.fleet.registry.registry import Registry


def batch_of(registry: Registry, nodes: Indices, **more: object) -> Batch:
    """A batch of nodes; ``more``: the fields of ``Batch`` that an act needs."""
    here = nodes.tolist()
    return Batch(
        names=list(map(registry.names.__getitem__, here)),
        uids=registry.uids[nodes],
        bmcs=list(map(registry.roster.bmcs.__getitem__, here)),
        **more,  # type: ignore[arg-type]
    )
