"""The tree of resources is whole: every link leads somewhere, everything has what its schema requires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_support import ROOT, links, machine_service, targets

from strata.api.redfish.protocol.table import Table
from strata.api.redfish.routes import MACHINE, ROUTES

REQUIRED = {
    "Aggregate": ("Elements",),
    "Chassis": ("ChassisType",),
    "LogEntry": ("EntryType",),
    "PowerDistribution": ("EquipmentType",),
}
"""What the standard's schemas require beyond a name and an id."""

NEVER_NULL = {"Id", "Name", "Status", "Links", "Members", "Actions", "Boot", "MessageId", "Created"}


@pytest.mark.slow
async def test_every_link_leads_to_a_resource_that_is_what_its_schema_requires(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}
    todo, actions = [f"{ROOT}/"], set()
    async with machine_service(tmp_path) as service, service.client() as client:
        await service.furnish()
        while todo:
            path = todo.pop()
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.status_code, answer.text)
            body = seen[path] = answer.json()
            if "@odata.type" in body:
                check(path, body)
            actions |= set(targets(body))
            found = set(links(body)) - seen.keys() - set(todo)
            todo += [link for link in found if "#" not in link and not link.endswith(".json")]
    table = Table(ROUTES)
    for target in actions:
        found_route = table.find(target)
        assert found_route is not None, target
        assert found_route[0].post is not None, target
    found_routes = [table.find(path) for path in seen]
    reached = {found[0].template for found in found_routes if found is not None}
    assert {route.template for route in MACHINE if route.get} - reached == set()


def check(path: str, body: dict[str, Any]) -> None:
    """A resource by itself."""
    kind = body["@odata.type"].lstrip("#").partition(".")[0]
    assert body["@odata.id"].rstrip("/") == path.rstrip("/")
    assert body["Name"], path
    if kind.endswith("Collection"):
        assert body["Members@odata.count"] == len(body["Members"]), path
        return
    assert body["Id"], path
    assert body["@odata.type"].count(".") == 2, path
    missing = [name for name in REQUIRED.get(kind, ()) if name not in body]
    assert not missing, (path, missing)
    assert not [name for name in NEVER_NULL & body.keys() if body[name] is None], path
    empty = [name for name, value in body.items() if value == ""]
    assert not empty, (path, empty)
