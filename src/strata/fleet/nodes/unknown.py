"""The error for nodes that are not there, which says what may have been meant."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.errors import NotFound
from strata.core.nodeset import NUMBERED, padded
from strata.fleet.selectors.selectable import Selectable


def unknown_nodes(fleet: Selectable, names: Sequence[str], more: int = 0) -> NotFound:
    """The error for nodes that are not there, with what may have been meant."""
    listed = ", ".join(name[:70] for name in names) + (f" and {more} more" if more > 0 else "")
    meant = [close for name in names for close in _close(fleet, name)][:3]
    hint = f"did you mean {', '.join(meant)}?" if meant else "list the nodes with: strata node list"
    return NotFound(f"no such node: {listed}", where="select", hint=hint)


def find_unpadded(fleet: Selectable, name: str) -> int:
    """The index of the node that ``name`` means if it lacks zeros in front of its last number: ``n7`` is ``n0007``.
    -1: there is none, or more than one."""
    found = {fleet.find(other) for other in padded(name)} - {-1}
    return found.pop() if len(found) == 1 else -1


def _close(fleet: Selectable, name: str) -> list[str]:
    """Names that differ in zero padding or case. (Edit distance over 100,000 names would take seconds.)"""
    found = []
    if match := NUMBERED.fullmatch(name[:80]):
        head, digits, tail = match.groups()
        for width in range(1, 10):
            for prefix in {head, head.lower()}:
                other = f"{prefix}{int(digits):0{width}d}{tail}"
                if other != name and other not in found and fleet.find(other) >= 0:
                    found.append(other)
    elif fleet.find(name.lower()) >= 0:
        found.append(name.lower())
    return found
