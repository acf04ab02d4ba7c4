"""Notes over REST. The kind ``note`` is in no table of rights yet, so that only administrators have it."""

from __future__ import annotations

from litestar import get, put
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked, NodePath
from strata.fleet.notes.records import Note, NoteList, NoteView
from strata.fleet.notes.service import Notes

_TAG = "notes"


@get("/v1/notes", tags=[_TAG], **needs("read", "note"))
async def list_notes(ask: Asked) -> NoteList:
    """All notes."""
    return await ask.of(Notes).all(ask.who)


@put("/v1/notes/{name:str}", tags=[_TAG], **needs("change", "note", 404, body=True))
async def put_note(ask: Asked, name: NodePath, data: JSONBody[Note]) -> NoteView:
    """Create or replace the note about a node."""
    return await ask.of(Notes).put(ask.who, name, data)
