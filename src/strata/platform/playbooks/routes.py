"""Playbook layers: what is run where, and which nodes have had it."""

from __future__ import annotations

from strata.api.named import Named
from strata.platform.playbooks.service import PlaybookService

_PLAYBOOKS = Named("/v1/playbooks", PlaybookService, "playbook", tag="playbooks", kind="config")
_PLAYBOOKS.list(PlaybookService.all)
_PLAYBOOKS.show(PlaybookService.one)
_PLAYBOOKS.routes.post(
    "run_playbook_again", "/v1/playbooks/{name:str}/again", PlaybookService.again, "change", 404, 409
)
