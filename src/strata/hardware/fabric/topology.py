"""How things are cabled: a graph of switches and nodes. Pure. ``fabric.build`` puts it together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from strata.core.texts import Out

Source = Literal["redfish", "lldp", "file"]


class End(NamedTuple):
    """One end of a cable."""

    kind: Literal["node", "switch"]
    owner: str
    """Name of the node, id of the switch."""
    port: str

    def __str__(self) -> str:
        return f"{self.owner}:{self.port}"


class Switch(Out, frozen=True, kw_only=True):
    """One switch."""

    id: str
    name: str
    fabric: str
    location: str
    model: str
    ports: int


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A cable that nobody contradicts."""

    a: End
    b: End
    up: bool | None = None
    speed_gbps: float | None = None
    source: Source = "lldp"


class Topology:
    """The graph. ``nodes_on[switch]`` are the nodes on a switch; ``conflicts`` what does not fit together."""

    def __init__(self, switches: Mapping[str, Switch], links: Sequence[Link], conflicts: Sequence[str]) -> None:
        self.switches = switches
        self.links = links
        self.conflicts = conflicts
        self.nodes_on: dict[str, set[str]] = {switch: set() for switch in switches}
        self.switches_of: dict[str, set[str]] = {}
        for link in links:
            for here, there in ((link.a, link.b), (link.b, link.a)):
                if here.kind == "switch" and there.kind == "node":
                    self.nodes_on.setdefault(here.owner, set()).add(there.owner)
                    self.switches_of.setdefault(there.owner, set()).add(here.owner)

    def near(self, nodes: Iterable[str]) -> list[tuple[str, list[str]]]:
        """The nodes by the switch that they are on, most together first; those on no known switch last, under ''."""
        chosen = list(nodes)
        found: dict[str, list[str]] = {}
        for node in chosen:
            for switch in self.switches_of.get(node, ("",)):
                found.setdefault(switch, []).append(node)
        return sorted(found.items(), key=lambda item: (not item[0], -len(item[1]), item[0]))
