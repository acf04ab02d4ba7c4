"""Every write that people and services make to the fleet's description. See the parts for what each promises."""

from __future__ import annotations

from strata.control.edit_brakes import BrakeEdits
from strata.control.edit_desires import DesireEdits
from strata.control.edit_groups import GroupEdits
from strata.control.edit_nodes import NodeEdits


class Edits(NodeEdits, GroupEdits, DesireEdits, BrakeEdits):
    """All edits, over one registry and one ledger. The registry shows an edit once its watch has brought it
    (``registry.reached``)."""
