"""What can be asked of notes."""

from __future__ import annotations

from collections.abc import Sequence

from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.notes.records import Note, NoteView
from strata.store.records import Records


class Notes:
    """Loaded, followed, changed by compare-and-swap, in the audit log: ``Records`` does all that."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._notes = Records(fleet.store, fleet.ledger, Note, kind="note", listed_by="strata note list")
        self.start, self.stop = self._notes.start, self._notes.stop

    async def all(self, who: Principal) -> Sequence[NoteView]:
        """All notes."""
        return [NoteView(node=node, text=note.text) for node, note in self._notes.sorted]

    async def put(self, who: Principal, node: str, note: Note) -> NoteView:
        """Create or replace the note about a node."""
        self._fleet.registry.node(node)
        await self._notes.put(who.name, node, note)
        return NoteView(node=node, text=note.text)
