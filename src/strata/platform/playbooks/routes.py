"""Playbook layers: what is run where, and which nodes have had it."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.platform.playbooks.records import Again, PlaybookDetail
from strata.platform.playbooks.service import PlaybookService

_TAG = "playbooks"
_PLAYBOOKS = Named("/v1/playbooks", PlaybookService, "playbook", tag=_TAG, kind="config")
_PLAYBOOKS.list(PlaybookService.all, "All layers, and how many nodes have had each.")
_PLAYBOOKS.show(PlaybookService.one, "One of them, and on which nodes it failed.")


@post("/v1/playbooks/{name:str}/again", tags=[_TAG], status_code=200, **needs("change", "config", 404, 409, body=True))
async def run_playbook_again(ask: Asked, name: NamePath, data: JSONBody[Again]) -> PlaybookDetail:
    """Have it run once more on nodes, whether they have had it or failed."""
    return await ask.of(PlaybookService).again(ask.who, name, data)
