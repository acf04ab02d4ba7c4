"""What the tests of the Redfish resources share: the service over fakes, with a small machine in two cabinets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
from redfish_support import RedfishService

from strata.fleet.nodes.records import FactView, NodeSpec
from strata.virtual.fleet.names import simulated_nodes
from support.fake_machine import furnish

ROOT = "/redfish/v1"


class MachineService(RedfishService):
    """Six nodes: four in one slot, one in another cabinet, and one that nobody knows the place of."""

    def __init__(self) -> None:
        super().__init__(nodes=0)
        places = [node.location for node in simulated_nodes(4)] + ["x1001c0s0b0n0", ""]
        for number, place in enumerate(places):
            self.put(f"n{number:03d}", place)

    def put(self, name: str, location: str = "") -> None:
        """Another node."""
        self.facade._put_node(NodeSpec(name=name, location=location))

    def see(self, node: str, power: str, **more: Any) -> None:
        """What is believed of a node's power."""
        view = self.facade.nodes[node]
        fact = FactView(value=power, seen=1.0, source="bmc", age=1.0)
        self.facade.nodes[node] = msgspec.structs.replace(view, facts={**view.facts, "power": fact}, **more)

    def furnish(self) -> None:
        """Have some of everything."""
        furnish(self.ground, sorted(self.facade.nodes))
        self.facade.groups_["rack"] = ({"n000", "n001"}, "a rack", 1)


async def get(client: httpx.AsyncClient, path: str) -> Any:
    """A resource that must be there."""
    answer = await client.get(path if path.startswith("/") else f"{ROOT}/{path}")
    assert answer.status_code == 200, (path, answer.status_code, answer.text)
    return answer.json()


def members(collection: Any) -> list[str]:
    """The last parts of the members' paths."""
    return [link["@odata.id"].rpartition("/")[2] for link in collection["Members"]]


def links(found: Any) -> Iterator[str]:
    """Every path that a resource points to, but for the targets of its actions."""
    if isinstance(found, list):
        for item in found:
            yield from links(item)
    elif isinstance(found, dict):
        for key, value in found.items():
            if isinstance(value, str) and key in ("@odata.id", "DataSourceUri"):
                yield value
            else:
                yield from links(value)


def targets(found: Any) -> Iterator[str]:
    """The targets of a resource's actions."""
    for action in found.get("Actions", {}).values():
        yield action["target"]
