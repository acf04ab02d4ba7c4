"""A note: what is kept is what is shown."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.core.texts import PLAIN, In, Out


class Note(In, frozen=True, kw_only=True):
    """About one node."""

    text: Annotated[str, Meta(pattern=PLAIN, max_length=500)]


class NoteView(Out, frozen=True, kw_only=True):
    """A note, and the node that it is about."""

    node: str
    text: str
