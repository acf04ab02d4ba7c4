"""What in the inventory does not fit together, and what to do about it."""

from __future__ import annotations

from strata.control.inventory_sight import Sight
from strata.control.machine_views.inventory import HardwareConflict
from strata.hardware.inventory.store import Inventory

MOST_NAMED = 20

_HINTS = {
    "mac": "look which machine has it; then strata hardware discover both",
    "serial": "one machine at two addresses? strata hardware forget the old address",
    "uuid": "one machine at two addresses? strata hardware forget the old address",
    "location": "two machines are mapped to one place: correct the mapping",
}


def conflicts(inventory: Inventory, sees: Sight) -> list[HardwareConflict]:
    """Those that a caller may see, with its own side of each."""
    found: list[HardwareConflict] = []
    for known in inventory.strangers():
        if sees.controller(known) and known.stranger is not None:
            hint = f"put the old one back, or: strata hardware discover --accept {known.address}"
            where = (known.address, *sees.nodes(known))
            value = known.stranger.serial or known.stranger.uuid
            found.append(
                HardwareConflict(
                    what="controller-swapped", value=value, where=where, since=known.stranger_since, hint=hint
                )
            )
    for mark, value, holders, since in inventory.clashes():
        seen = [h for h in holders if (one := inventory.get(h)) is not None and sees.controller(one)]
        if seen:
            rest = (f"and {len(seen) - MOST_NAMED} more",) if len(seen) > MOST_NAMED else ()
            where = (*seen[:MOST_NAMED], *rest)
            kind = "location-taken" if mark == "location" else f"duplicate-{mark}"
            found.append(
                HardwareConflict(
                    what=kind,  # type: ignore[arg-type]
                    value=value,
                    where=where,
                    since=since,
                    hint=_HINTS[mark],
                )
            )
    return found
