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
_PERSONALITIES.list(PersonalityService.all)
_PERSONALITIES.show(PersonalityService.show)
_PERSONALITIES.put(PersonalityService.put)
_PERSONALITIES.delete(PersonalityService.delete)
