"""The solid-state drives that CAPMC tells of, from an inventory that gives them out page by page."""

from __future__ import annotations

from typing import Any

from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.hardware.inventory.records import ComponentPage, ComponentQuery, ComponentView
from strata.power.capmc.drives import drives_of
from strata.power.capmc.records import Drive


def part(node: str, path: str, kind: str, **more: Any) -> ComponentView:
    """A part of a node."""
    blank = dict.fromkeys(("parent", "slot", "part", "firmware", "shape"), "")
    own = {"vendor": "Acme", "model": f"Model of {kind}", "serial": f"{node}{path}", "health": "ok", "macs": ()}
    rest = {"bmc": f"https://{node}", "node": node, "id": path, "kind": kind, "name": path, "facts": {}}
    return ComponentView(**{**blank, **own, **rest, **more})  # type: ignore[arg-type]


class Paged:
    """An inventory that gives two parts at a time."""

    def __init__(self, *parts: ComponentView) -> None:
        self.parts = parts
        self.asked: list[ComponentQuery] = []

    async def components(self, who: Principal, query: ComponentQuery) -> ComponentPage:
        self.asked.append(query)
        begin = int(query.after or 0)
        following = str(begin + 2) if begin + 2 < len(self.parts) else ""
        return ComponentPage(items=self.parts[begin : begin + 2], next=following)


async def test_drives_come_from_all_pages_and_unknown_is_not_made_up() -> None:
    inventory = Paged(
        part("n1", "/d/0", "drive", facts={"type": "SSD", "capacity_bytes": 10**12, "life_left": 93}),
        part("n1", "/d/1", "drive", facts={"type": "HDD", "capacity_bytes": 10**13}),
        part("n2", "/d/0", "drive", facts={"protocol": "NVMe"}),
        part("n3", "/d/0", "drive", facts={"type": "SSD", "life_left": "much"}, vendor="", part="P1", firmware="F1"),
        part("n4", "/d/0", "drive", facts={}),
    )
    found = await drives_of(inventory, LOCAL_ADMIN, ["n1", "n2", "n3", "n4"])  # type: ignore[arg-type]
    model = "Model of drive"
    assert found == {
        "n1": [Drive(model=model, serial="n1/d/0", vendor="Acme", size=10**12, life_left=93)],
        "n2": [Drive(model=model, serial="n2/d/0", vendor="Acme")],
        "n3": [Drive(model=model, serial="n3/d/0", part="P1", firmware="F1")],
    }
    assert [(query.select, query.kind) for query in inventory.asked] == [("n[1-4]", "drive")] * 3


async def test_nobody_has_no_drives() -> None:
    inventory = Paged()
    assert await drives_of(inventory, LOCAL_ADMIN, []) == {}  # type: ignore[arg-type]
    assert inventory.asked == []
