"""What ``strata node why`` says of a node beside what the engine does."""

from __future__ import annotations

from pathlib import Path

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.desires.documents import DesireDocument
from support.simulated_machine import simulated_machine


async def test_why_names_what_was_set_on_a_node_and_waits_for_a_document_that_keeps_it_off(tmp_path: Path) -> None:
    async with simulated_machine(tmp_path, 2, on=False) as machine:
        fleet = machine.service
        (name, *_) = fleet.registry.names
        parked = DesireDocument(name="parked", select=name, set={"power": ("off",)})
        await fleet.settled(await fleet.edits.put_document(parked, "test"))
        await fleet.edits.set_desires(fleet.registry.select(name), {"image": "v2"}, (), "test")
        await fleet.settled(await fleet.store.revision())

        lines = (await fleet.why(LOCAL_ADMIN, name)).lines

        assert "image=v2 is set on it, and waits: document parked wants power=off" in lines
