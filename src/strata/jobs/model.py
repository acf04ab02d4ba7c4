"""What the jobs layer declares of nodes: nothing. Jobs run on nodes as they are."""

from __future__ import annotations

from strata.core.model import Layer

LAYER = Layer()
