"""The tree of switches that Slurm places jobs by. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from strata.core.errors import BadRequest
from strata.core.xname import parse
from strata.schedulers.slurm.conf import Switch
from strata.schedulers.slurm.hostlists import natural

TOP = "system"
NOWHERE = "elsewhere"
"""The leaf of nodes of which nobody knows where they are: a node on no switch could not run a job with others."""


def by_location(places: Mapping[str, str]) -> tuple[Switch, ...]:
    """Chassis, in cabinets, in one system: from where each node is (an xname; empty: not known)."""
    chassis: dict[str, list[str]] = {}
    cabinets: dict[str, set[str]] = {}
    lost: list[str] = []
    for name, place in places.items():
        xname = parse(place) if place else None
        leaf = xname.ancestor("Chassis") if xname else None
        cabinet = xname.ancestor("Cabinet") if xname else None
        if leaf is None or cabinet is None:
            lost.append(name)
            continue
        chassis.setdefault(leaf.text, []).append(name)
        cabinets.setdefault(cabinet.text, set()).add(leaf.text)
    leaves = [Switch(name=leaf, names=tuple(chassis[leaf])) for leaf in sorted(chassis, key=natural)]
    above = [
        Switch(name=cabinet, switches=tuple(sorted(cabinets[cabinet], key=natural)))
        for cabinet in sorted(cabinets, key=natural)
    ]
    return _topped([*leaves, *_lost(lost)], above)


def by_fabric(nodes_on: Mapping[str, Collection[str]], names: Collection[str]) -> tuple[Switch, ...]:
    """The leaf switches that nodes are on, below one. A node on several counts for the first: it is a tree."""
    left = set(names)
    leaves = []
    for switch in sorted(nodes_on, key=natural):
        here = sorted(left.intersection(nodes_on[switch]), key=natural)
        left.difference_update(here)
        if here:
            leaves.append(Switch(name=switch, names=tuple(here)))
    return _topped([*leaves, *_lost(sorted(left, key=natural))], [])


def declared(switches: Sequence[Switch], names: Collection[str]) -> tuple[Switch, ...]:
    """As the site says; what it forgot is on a leaf of its own. Raises ``BadRequest`` where it is no tree."""
    known = {switch.name for switch in switches}
    if len(known) != len(switches):
        raise BadRequest("two switches have the same name", where="switches")
    above: dict[str, str] = {}
    for switch in switches:
        for below in switch.switches:
            if below not in known:
                raise BadRequest(f"{below} is not declared", where=f"switches {switch.name}")
            if below in above:
                raise BadRequest(f"{below} is below {above[below]} and {switch.name}", where="switches")
            above[below] = switch.name
    for name in known:
        at, steps = name, 0
        while at in above and steps <= len(known):
            at, steps = above[at], steps + 1
        if steps > len(known):
            raise BadRequest(f"{name} is below itself", where="switches")
    wanted, taken = set(names), set[str]()
    kept = []
    for switch in switches:
        here = tuple(name for name in switch.names if name in wanted and name not in taken)
        taken.update(here)
        if here or switch.switches:
            kept.append(Switch(name=switch.name, names=here, switches=switch.switches))
    filled = {switch.name for switch in kept}
    kept = [
        Switch(name=s.name, names=s.names, switches=tuple(one for one in s.switches if one in filled)) for s in kept
    ]
    kept = [switch for switch in kept if switch.names or switch.switches]
    return (*kept, *_lost(sorted(wanted - taken, key=natural)))


def _lost(names: Sequence[str]) -> list[Switch]:
    return [Switch(name=NOWHERE, names=tuple(names))] if names else []


def _topped(leaves: list[Switch], above: list[Switch]) -> tuple[Switch, ...]:
    below = {leaf for switch in above for leaf in switch.switches}
    roots = [*(switch.name for switch in above), *(leaf.name for leaf in leaves if leaf.name not in below)]
    top = [Switch(name=TOP, switches=tuple(roots))] if len(roots) > 1 else []
    return (*leaves, *above, *top)
