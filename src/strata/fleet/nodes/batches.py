"""Nodes in the form that drivers take."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.column import span
from strata.core.driver import Batch
from strata.fleet.columns import Indices
from strata.fleet.registry.registry import Registry


def batch_of(registry: Registry, nodes: Indices, **more: object) -> Batch:
    """A batch of nodes; ``more``: the fields of ``Batch`` that an act needs."""
    return Batch(
        names=_at(registry.names, nodes),
        uids=registry.uids[nodes],
        bmcs=_at(registry.bmcs, nodes),
        **more,  # type: ignore[arg-type]
    )


def _at(words: Sequence[str], nodes: Indices) -> Sequence[str]:
    places = span(nodes)
    return words[places] if isinstance(places, slice) else list(map(words.__getitem__, places.tolist()))
