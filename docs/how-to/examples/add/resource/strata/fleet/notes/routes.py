"""Notes over REST. The kind ``note`` is in no table of rights yet, so that only administrators have it."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.api.services import NodePath
from strata.fleet.notes.service import Notes

_ROUTES = Routes(Notes, "note", tag="notes")
_ROUTES.get("list_notes", "/v1/notes", Notes.all)
_ROUTES.put("put_note", "/v1/notes/{name:str}", Notes.put, "change", 404, name=NodePath)
