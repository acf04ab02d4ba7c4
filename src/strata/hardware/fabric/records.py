"""What the API shows of how things are cabled."""

from __future__ import annotations

from typing import Literal

from strata.core.texts import Out
from strata.hardware.fabric.topology import Switch


class SwitchView(Switch, frozen=True, kw_only=True):
    """One switch."""

    nodes: str
    """Folded names of the nodes on it."""


class LinkView(Out, frozen=True, kw_only=True):
    """A cable. An end is ``switch:port`` or ``node:nic``."""

    a: str
    b: str
    up: bool | None
    speed_gbps: float | None
    source: Literal["redfish", "lldp", "file"]


class FabricView(Out, frozen=True, kw_only=True):
    """How things are cabled."""

    switches: tuple[SwitchView, ...]
    links: tuple[LinkView, ...]
    conflicts: tuple[str, ...] = ()


class SwitchNodes(Out, frozen=True, kw_only=True):
    """Nodes on one switch."""

    switch: str
    nodes: str
    count: int
