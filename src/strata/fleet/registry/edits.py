"""Every write that people and services make to the fleet's description. See the parts for what each promises."""

from __future__ import annotations

from strata.fleet.brakes.edits import BrakeEdits
from strata.fleet.registry.bundles import BundleEdits


class Edits(BundleEdits, BrakeEdits):
    """All edits, over one registry and one ledger. The registry shows an edit once its watch has brought it
    (``registry.reached``)."""
