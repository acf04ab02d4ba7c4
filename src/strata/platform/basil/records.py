"""What BASIL's inventory tells, by class: the command ``apbasil`` makes XML of it."""

from __future__ import annotations

from typing import Literal

from strata.core.texts import Out

State = Literal["UP", "DOWN", "UNAVAILABLE", "UNKNOWN"]
"""In BASIL's words. ``UP``: at its goal; ``UNAVAILABLE``: a person holds it."""


class BasilNodes(Out, frozen=True, kw_only=True):
    """Nodes that are alike."""

    role: Literal["BATCH", "INTERACTIVE"]
    state: State
    architecture: str
    sockets: int
    cores: int
    """Of each socket."""
    threads: int
    """Of each core."""
    memory: int
    """MiB; 0: not known, as the processors are not."""
    accelerators: tuple[str, ...]
    """What each is called."""
    nids: tuple[int, ...]
    names: tuple[str, ...]
    """In the order of the NIDs: where each is, or else what it is called."""


class BasilInventory(Out, frozen=True, kw_only=True):
    """All nodes with a NID that the caller may see."""

    time: float
    items: tuple[BasilNodes, ...]
