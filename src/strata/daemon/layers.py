"""The layers that Strata brings along, lowest first. This is the only list of them."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from strata.core.model import Layer
from strata.hardware.model import LAYER as HARDWARE
from strata.platform.model import LAYER as PLATFORM
from strata.power.model import LAYER as POWER
from strata.provisioning.model import LAYER as PROVISIONING

if TYPE_CHECKING:
    from strata.fleet.fleet import Fleet


class LayerDeclaration(NamedTuple):
    """One layer: what it declares of nodes, how it is opened, and what it cannot do without."""

    name: str
    model: Layer
    opened_by: str
    """``module:function``, which takes the fleet. Imported only where the layer runs."""
    stands_on: tuple[str, ...] = ()
    """Layers that run wherever this one does."""

    async def open(self, fleet: Fleet) -> None:
        """Open all its rooms on the fleet."""
        module, _, function = self.opened_by.partition(":")
        await getattr(importlib.import_module(module), function)(fleet)


LAYERS = (
    LayerDeclaration("hardware", HARDWARE, "strata.hardware.layer:open_hardware"),
    LayerDeclaration("provisioning", PROVISIONING, "strata.provisioning.layer:open_provisioning", ("hardware",)),
    LayerDeclaration("power", POWER, "strata.power.layer:open_power", ("hardware",)),
    LayerDeclaration("platform", PLATFORM, "strata.platform.layer:open_platform", ("hardware", "provisioning")),
)


def chosen(names: Collection[str]) -> tuple[LayerDeclaration, ...]:
    """The named layers and those that they stand on, lowest first."""
    needed = {*names, *(below for layer in LAYERS if layer.name in names for below in layer.stands_on)}
    return tuple(layer for layer in LAYERS if layer.name in needed)
