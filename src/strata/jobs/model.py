"""What the job layer declares of nodes: nothing. Jobs are of schedulers, and nodes are theirs."""

from __future__ import annotations

from strata.core.model import Layer

LAYER = Layer()
