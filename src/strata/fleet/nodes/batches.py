"""Nodes in the form that drivers take."""

from __future__ import annotations

from strata.core.driver import Batch
from strata.fleet.columns import Indices
from strata.fleet.registry.registry import Registry


def batch_of(registry: Registry, nodes: Indices, **more: object) -> Batch:
    """A batch of nodes; ``more``: the fields of ``Batch`` that an act needs."""
    names, roster = registry.names, registry.roster.nodes
    here = nodes.tolist()
    return Batch(
        names=[names[i] for i in here],
        uids=registry.uids[nodes],
        bmcs=[node.bmc if (node := roster[i]) is not None else "" for i in here],
        **more,  # type: ignore[arg-type]
    )
