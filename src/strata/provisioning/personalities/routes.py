"""Personalities: what nodes run."""

from __future__ import annotations

from strata.api.named import Named
from strata.provisioning.personalities.service import PersonalityService

_PERSONALITIES = Named(
    "/v1/personalities",
    PersonalityService,
    "personality",
    tag="personalities",
    plural="personalities",
    current=PersonalityService.show,
)
_PERSONALITIES.list(PersonalityService.all, "All personalities.")
_PERSONALITIES.show(PersonalityService.show, "One personality, and what its tags stand for now.")
_PERSONALITIES.put(
    PersonalityService.put,
    "Create or replace a personality. Nodes that it is set on change over. `If-Match` is honoured.",
)
_PERSONALITIES.delete(
    PersonalityService.delete, "Remove a personality that no node is set to run. `If-Match` is honoured."
)
