"""The layers that Strata brings along, lowest first. This is the only list of them.

A layer is a folder of that name: its ``model.py`` has ``LAYER``, what it declares of nodes; its ``layer.py`` has
``open_NAME``, which opens it on a fleet. Neither is imported before it is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from strata.core.model import Layer
    from strata.fleet.fleet import Fleet


class LayerDeclaration(NamedTuple):
    """One layer."""

    name: str
    stands_on: tuple[str, ...] = ()
    """Layers that run wherever this one does."""

    @property
    def model(self) -> Layer:
        """What it declares of nodes."""
        found: Layer = importlib.import_module(f"strata.{self.name}.model").LAYER
        return found

    async def open(self, fleet: Fleet) -> None:
        """Open all its rooms on the fleet."""
        await getattr(importlib.import_module(f"strata.{self.name}.layer"), f"open_{self.name}")(fleet)


LAYERS = (
    LayerDeclaration("hardware"),
    LayerDeclaration("provisioning", ("hardware",)),
    LayerDeclaration("power", ("hardware",)),
    LayerDeclaration("platform", ("hardware", "provisioning")),
    LayerDeclaration("jobs", ("hardware", "provisioning", "platform")),
)
LAYER_NAMES = tuple(layer.name for layer in LAYERS)


def chosen(names: Collection[str]) -> tuple[LayerDeclaration, ...]:
    """The named layers and those that they stand on, lowest first."""
    needed = {*names, *(below for layer in LAYERS if layer.name in names for below in layer.stands_on)}
    return tuple(layer for layer in LAYERS if layer.name in needed)
