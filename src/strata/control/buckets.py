"""Which bucket of a budget each node is in, and what it weighs there."""

from __future__ import annotations

import contextlib

import numpy as np

from strata.control.registry import Registry
from strata.core.model import Budget
from strata.engine.budgets import Amounts, Keys


def bucket_keys(budget: Budget, registry: Registry) -> list[Keys]:
    """One array per division of the fleet; -1 where the budget does not concern a node."""
    alive = registry.alive
    kind, _, name = budget.per.partition(":")
    if kind == "fleet":
        return [np.where(alive, 0, -1).astype(np.int32)]
    if kind == "group":
        names = [name] if name else sorted(registry.groups)
        return [
            np.where(registry.groups.mask(n) & alive, 0, -1).astype(np.int32) for n in names if n in registry.groups
        ]
    words = registry.label(name) if kind == "label" else registry.location(kind)
    # Word 0 is "none": a node without that location or label is not braked by this budget.
    return [np.where(alive, words.codes - 1, -1).astype(np.int32)]


def bucket_weights(budget: Budget, registry: Registry) -> Amounts | None:
    """What each node counts for; None: one."""
    if not budget.weight:
        return None
    words = registry.label(budget.weight)
    values = np.ones(len(words.table))
    for code, text in enumerate(words.table):
        with contextlib.suppress(ValueError):
            values[code] = max(0.0, float(text))
    weights: Amounts = values[words.codes]
    return weights
