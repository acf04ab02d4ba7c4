"""Power policies: documents that say what the site may draw, and how caps and idle nodes are managed under it."""

from __future__ import annotations

from strata.api.named import Named
from strata.power.policies.service import PolicyService

_POLICIES = Named("/v1/power/policies", PolicyService, "policy", tag="power", kind="power-policy")
_POLICIES.routes.get("list_policies", "/v1/power/policies", PolicyService.policies)
_POLICIES.show(PolicyService.policy)
_POLICIES.put(PolicyService.put, statuses=(409,))
_POLICIES.routes.post("enable_policy", "/v1/power/policies/{name:str}/enable", PolicyService.enable, "change", 404)
_POLICIES.routes.post("disable_policy", "/v1/power/policies/{name:str}/disable", PolicyService.disable, "change", 404)
_POLICIES.delete(PolicyService.delete)
_POLICIES.routes.post("note_simulation", "/v1/power/simulations", PolicyService.note_simulation, "change")
