"""What the API shows of the hardware that there is, and of how that changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from strata.control.texts import Out
from strata.hardware.bmc import Identity, Severity
from strata.hardware.inventory.found import ComponentKind


class ComponentView(Out, frozen=True, kw_only=True):
    """One part."""

    controller: str
    node: str
    id: str
    kind: ComponentKind
    name: str
    parent: str
    slot: str
    vendor: str
    model: str
    part: str
    serial: str
    firmware: str
    health: Severity | None
    macs: tuple[str, ...]
    facts: Mapping[str, str | int | float | bool]
    shape: str = ""


class ControllerSummary(Out, frozen=True, kw_only=True):
    """One discovered controller."""

    address: str
    identity: Identity
    seen: float
    nodes: tuple[str, ...]
    machines: int
    components: Mapping[str, int]
    """How many of each kind."""
    trouble: tuple[str, ...]


class ControllerPage(Out, frozen=True, kw_only=True):
    """Some of them."""

    items: tuple[ControllerSummary, ...]
    next: str
    total: int


class ControllerView(Out, frozen=True, kw_only=True):
    """One of them, with its parts."""

    summary: ControllerSummary
    components: tuple[ComponentView, ...]


class NodeHardware(Out, frozen=True, kw_only=True):
    """What a node is made of."""

    node: str
    controller: str
    identity: Identity
    seen: float
    serial: str
    uuid: str
    components: tuple[ComponentView, ...]


class ComponentQuery(Out, frozen=True, kw_only=True):
    """Which components."""

    select: str = "*"
    kind: str = ""
    text: str = ""
    """Part of a name, model, part number or serial."""
    limit: int = 100
    after: str = ""


class ComponentPage(Out, frozen=True, kw_only=True):
    """Some of them."""

    items: tuple[ComponentView, ...]
    next: str


class HardwareChange(Out, frozen=True, kw_only=True):
    """One change of what hardware there is."""

    time: float
    what: Literal["added", "removed", "swapped", "moved", "changed", "controller-swapped"]
    controller: str
    node: str
    component: str
    kind: str
    old: str
    """Serial (or value) before."""
    new: str
    detail: str


class HardwareConflict(Out, frozen=True, kw_only=True):
    """Two things that cannot both be true. Nothing was guessed: a person decides."""

    what: Literal["duplicate-mac", "duplicate-serial", "duplicate-uuid", "controller-swapped", "location-taken"]
    value: str
    where: tuple[str, ...]
    since: float
    hint: str
