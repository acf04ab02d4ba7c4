"""Which of a BMC's power limits caps the node as a whole, and which cap its accelerators. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from strata.core.errors import NotOffered
from strata.hardware.bmc.protocol import PowerLimit

_ACCELERATOR = re.compile(r"gpu|accel", re.IGNORECASE)
_PART = re.compile(r"cpu|processor|dimm|\bmem|memory|drive|nic\b|riser|socket", re.IGNORECASE)
_WHOLE = re.compile(r"node|system|server|chassis|total", re.IGNORECASE)


def of_accelerator(limit: str, name: str) -> bool:
    """Whether the limit of this id and name caps an accelerator."""
    return bool(_ACCELERATOR.search(_said(limit, name)))


def of_part(limit: str, name: str) -> bool:
    """Whether it caps a part of the node, and not the whole."""
    return of_accelerator(limit, name) or bool(_PART.search(_said(limit, name)))


def _said(limit: str, name: str) -> str:
    """What the names tell; that of the chassis or system itself, at the beginning of the id, says nothing of parts."""
    return f"{'/'.join(limit.split('/')[5:])} {name}"


def whole(limits: Sequence[PowerLimit], address: str) -> PowerLimit | None:
    """The limit of the node as a whole; None: it has none. ``NotOffered`` where several might be it."""
    found = [one for one in limits if not of_part(one.id, one.name)]
    named = [one for one in found if _WHOLE.search(one.name)]
    found = named if named else found
    # The entries of one list begin with the whole; of different lists nothing says which.
    if len({one.id.partition("#")[0] for one in found}) > 1:
        listed = ", ".join(f"{one.id} ({one.name})" for one in found[:8])
        raise NotOffered(
            f"it has several power limits and does not say which is the node's: {listed}",
            node=address,
            hint="name the one that is meant by its id",
        )
    return found[0] if found else None


def accelerators(limits: Sequence[PowerLimit]) -> Sequence[PowerLimit]:
    """The limits of its accelerators."""
    return [one for one in limits if of_accelerator(one.id, one.name)]
