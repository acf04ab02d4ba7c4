"""Which chassis and which manager are a system's, by what their service says of them. Pure: resources in, paths out.

Behind one BMC there may be several nodes, an enclosure around them and managers of lesser parts. Nothing is
taken because it is listed first, or because it is there: what cannot be told apart is ``unclear``, and left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Literal, NamedTuple

from strata.hardware.bmc.redfish.endpoint import ROOT, Json, below, items, text

Bodies = Mapping[str, Json]
"""Resources by path."""
Where = Callable[[object], str]
"""The path that a link names; empty where it names none of this service."""
Relation = Literal["own", "common", "other", ""]

WITHOUT_HARDWARE = ("OS", "Virtual", "VirtuallyPartitioned")
"""Values of SystemType: such a system has no chassis, and takes none from the machine that it runs on."""
CARDS = ("DPU",)
"""Values of SystemType: a computer on a card in the node, which has what it has beside the node."""
HOLDERS = ("Enclosure", "Rack", "RackGroup", "Shelf", "Row", "Pod", "Zone", "SideCar")
"""Values of ChassisType of what stands around nodes."""
MANAGERS = {"BMC": 0, "ManagementController": 1, "": 1, "EnclosureManager": 2, "RackManager": 3, "Service": 4,
            "AuxiliaryController": 4}  # fmt: skip
"""Values of ManagerType: those that rather answer for a node first. Cray's node cards say EnclosureManager."""


class Home(NamedTuple):
    """What belongs to one system, behind a BMC that may have several."""

    system: str = ""
    own: tuple[str, ...] = ()
    """Chassis that it has for itself, the nearest first."""
    shared: tuple[str, ...] = ()
    """Chassis that it is in together with others."""
    peers: tuple[str, ...] = ()
    """The other nodes' systems."""
    others: frozenset[str] = frozenset()
    """All other systems, and the chassis that they have for themselves."""
    unclear: tuple[str, ...] = ()
    """Chassis of which any might be its own: the BMC does not say."""

    def relation(self, item: Json, where: Where) -> Relation:
        """Whose a sensor, a control or the like is by its RelatedItem; empty: it does not say."""
        tops = {top(where(link)) for link in items(item, "RelatedItem")}
        ours, theirs = bool(tops & {self.system, *self.own}), bool(tops & self.others)
        return "common" if ours and theirs else "own" if ours else "other" if theirs else ""


def top(path: str) -> str:
    """``/redfish/v1/Systems/A`` of a path in or below it."""
    return "/".join(path.partition("#")[0].split("/")[:5])


def name_of(path: str) -> str:
    """A system or chassis in a few words: ``Chassis/Node1``."""
    return path.removeprefix(f"{ROOT}/")


def home_of(system: str, systems: Bodies, chassis: Bodies, managers: Bodies, where: Where) -> Home:
    """What is ``system``'s own. A system or chassis that could not be read is there with an empty body.

    By links of the system, else by links of the chassis; else a chassis of the same id, where all systems have one;
    else the chassis of a manager that has no other system.
    """
    kinds = {path: text(body.get("SystemType")) for path, body in systems.items() if path != system}
    cards = [path for path, kind in kinds.items() if kind in CARDS]
    # A card in the node does not make two nodes of it; seen from the card, the node around it is another.
    left_out = WITHOUT_HARDWARE if text(systems[system].get("SystemType")) in CARDS else (*WITHOUT_HARDWARE, *CARDS)
    nodes = {path: body for path, body in systems.items() if kinds.get(path) not in left_out}
    links = {path: _linked(path, systems, chassis, where) for path in systems}
    lesser = systems.keys() - nodes.keys()
    owned = {
        path: [one for one in links[path] if _alone(path, one, nodes, lesser, links, chassis, where)] for path in nodes
    }
    if len(nodes) > 1:
        taken = {one for path in nodes for one in links[path]}
        for rule in (_same_ids, _sole_managers):
            missing = [path for path in nodes if not owned[path]]
            owned |= rule(missing, nodes, chassis, managers, taken, where)
    elif not links[system]:
        owned[system] = _all_of_one(system, systems[system], chassis)
    own = tuple(owned[system])
    shared = tuple(one for one in links[system] if one not in own)
    unclear: tuple[str, ...] = ()
    if not own and not shared:
        shared, unclear = (tuple(chassis), ()) if len(chassis) == 1 else ((), tuple(sorted(chassis)))
    peers = tuple(path for path in nodes if path != system)
    theirs = {one for path in (*peers, *cards) for one in owned.get(path, links[path])}
    theirs -= {*own, *_contained(own, chassis, where)}
    return Home(system, own, shared, peers, frozenset((*peers, *cards, *theirs)), unclear)


def manager_of(
    resource: str, body: Json, managers: Bodies, service: str, where: Where, *, offering: str = ""
) -> tuple[str, ...]:
    """The manager that answers for a system, chassis or outlet; several: the BMC does not tell which of them.

    ``service``: the UUID of the service root. ``offering``: what is to be asked of it, such as ``LogServices``."""
    found = {path: managers.get(path, {}) for path in _paths(body, where, "ManagedBy")}
    if not found:
        name = "ManagerForChassis" if resource.startswith(f"{ROOT}/Chassis/") else "ManagerForServers"
        told = {path: _paths(one, where, name) for path, one in managers.items()}
        found = {path: one for path, one in managers.items() if resource in told[path]} or {
            path: one for path, one in managers.items() if not told[path]
        }
    if not found and len(managers) == 1:
        return tuple(managers)
    best = min((_rank(one) for one in found.values()), default=0)
    found = {path: one for path, one in found.items() if _rank(one) == best}
    tests: tuple[Callable[[str, Json], bool], ...] = (
        lambda path, one: _id(path, one) == _id(resource, body),
        lambda path, one: bool(service) and text(one.get("ServiceEntryPointUUID")).lower() == service.lower(),
        lambda path, one: offering in one,
        lambda path, one: below(one, "Status").get("State") == "Enabled",
    )
    for test in tests:
        if len(found) > 1:
            found = {path: one for path, one in found.items() if test(path, one)} or found
    return tuple(found)


def outermost(chassis: Bodies, owned: Collection[str], where: Where) -> str:
    """The chassis that everything else behind a BMC is in: the only one that is in no other, or else the only
    one of those that no system has for itself; empty where there is no one such."""
    inner = {one for path in chassis for one in _contained((path,), chassis, where)}
    outer = [path for path in chassis if path not in inner]
    found = outer if len(outer) == 1 else [path for path in outer if path not in owned]
    return found[0] if len(found) == 1 else ""


def _rank(manager: Json) -> int:
    return MANAGERS.get(text(manager.get("ManagerType")), 1)


def _linked(system: str, systems: Bodies, chassis: Bodies, where: Where) -> list[str]:
    """The chassis that a system names; where it names none that there is, those that name it."""
    told = [path for path in _paths(systems[system], where, "Chassis") if path in chassis]
    return told or [path for path, body in chassis.items() if system in _paths(body, where, "ComputerSystems")]


def _alone(
    system: str,
    path: str,
    nodes: Bodies,
    lesser: Set[str],
    links: Mapping[str, Sequence[str]],
    chassis: Bodies,
    where: Where,
) -> bool:
    """Whether nothing says that a chassis holds another node as well."""
    told = [one for one in map(where, items(below(chassis[path], "Links"), "ComputerSystems")) if one not in lesser]
    if len(nodes) == 1:
        return len(told) < 2  # one that is called otherwise than its system is the same all the same
    if any(one != system for one in told):
        return False
    if any(path in links[other] for other in nodes if other != system):
        return False
    unread = any(not body for body in nodes.values())
    return not unread or bool(told) or _id(path, chassis[path]) == _id(system, nodes[system])


def _same_ids(
    missing: Sequence[str], systems: Bodies, chassis: Bodies, managers: Bodies, linked: set[str], where: Where
) -> dict[str, list[str]]:
    """Chassis by the ids of systems. That some alone are called alike is chance, and no pairing."""
    found: dict[str, list[str]] = {}
    for system in missing:
        named = [
            path
            for path, body in chassis.items()
            if _id(path, body) == _id(system, systems[system]) and path not in linked
        ]
        if len(named) != 1:
            return {}
        found[system] = named
    inside = {system: _contained(named, chassis, where) for system, named in found.items()}
    claimed = Counter(one for system, named in found.items() for one in (*named, *inside[system]))
    if any(claimed[one] > 1 for named in found.values() for one in named):
        return {}
    return {
        system: [*named, *(one for one in inside[system] if claimed[one] == 1 and one not in linked)]
        for system, named in found.items()
    }


def _sole_managers(
    missing: Sequence[str], systems: Bodies, chassis: Bodies, managers: Bodies, linked: set[str], where: Where
) -> dict[str, list[str]]:
    """Chassis by managers that have one system each."""
    serves = {path: set(_paths(body, where, "ManagerForServers")) for path, body in managers.items()}
    for system, body in systems.items():
        for path in _paths(body, where, "ManagedBy"):
            serves.setdefault(path, set()).add(system)
    by: dict[str, set[str]] = {path: set(_paths(body, where, "ManagedBy")) for path, body in chassis.items()}
    for manager, body in managers.items():
        for path in _paths(body, where, "ManagerForChassis"):
            by.setdefault(path, set()).add(manager)
    found: dict[str, list[str]] = {}
    for system in missing:
        sole = {path for path, servers in serves.items() if servers == {system}}
        found[system] = [path for path in chassis if by[path] and by[path] <= sole and path not in linked]
    return found


def _all_of_one(system: str, body: Json, chassis: Bodies) -> list[str]:
    """All chassis where there is one system. With one of the same id the enclosure around it may hold other nodes,
    behind other BMCs."""
    named = [path for path, one in chassis.items() if _id(path, one) == _id(system, body)]
    if len(named) != 1:
        return list(chassis)
    rest = [path for path, one in chassis.items() if text(one.get("ChassisType")) not in HOLDERS]
    return list(dict.fromkeys([*named, *rest]))


def _contained(outer: Iterable[str], chassis: Bodies, where: Where) -> list[str]:
    """The chassis within these, by links of either side."""
    inside: dict[str, list[str]] = {path: _paths(body, where, "Contains") for path, body in chassis.items()}
    for path, body in chassis.items():
        inside.setdefault(where(below(body, "Links", "ContainedBy")), []).append(path)
    begin = list(outer)
    found = list(begin)
    for path in found:
        found += [one for one in dict.fromkeys(inside.get(path, ())) if one in chassis and one not in found]
    return found[len(begin) :]


def _paths(body: Json, where: Where, name: str) -> list[str]:
    return list(dict.fromkeys(path for link in items(below(body, "Links"), name) if (path := where(link))))


def _id(path: str, body: Json) -> str:
    return (text(body.get("Id")) or path.rpartition("/")[2]).lower()
