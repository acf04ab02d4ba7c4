"""Playbook layers: what is run where, and which nodes have had it."""

from __future__ import annotations

from litestar import get, post
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.platform.playbooks.records import Again, PlaybookDetail, PlaybookView
from strata.platform.playbooks.service import PlaybookService

_TAG = "playbooks"


@get("/v1/playbooks", tags=[_TAG], **needs("read", "config"))
async def list_playbooks(ask: Asked) -> ListOf[PlaybookView]:
    """All layers, and how many nodes have had each."""
    return ListOf(items=tuple(await ask.of(PlaybookService).all(ask.who)))


@get("/v1/playbooks/{name:str}", tags=[_TAG], **needs("read", "config", 404))
async def show_playbook(ask: Asked, name: NamePath) -> PlaybookDetail:
    """One of them, and on which nodes it failed."""
    return await ask.of(PlaybookService).one(ask.who, name)


@post("/v1/playbooks/{name:str}/again", tags=[_TAG], status_code=200, **needs("change", "config", 404, 409, body=True))
async def run_playbook_again(ask: Asked, name: NamePath, data: JSONBody[Again]) -> PlaybookDetail:
    """Have it run once more on nodes, whether they have had it or failed."""
    return await ask.of(PlaybookService).again(ask.who, name, data)


HANDLERS = [list_playbooks, show_playbook, run_playbook_again]
