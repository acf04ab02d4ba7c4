"""Power policies: documents that say what the site may draw, and how caps and idle nodes are managed under it."""

from __future__ import annotations

from litestar import get, post
from litestar.params import JSONBody

from strata.api.named import Named
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.power.policies.records import Policies, PolicyDetail, SimulationSpec, SimulationView
from strata.power.policies.service import PolicyService

_TAG = "power"


@get("/v1/power/policies", tags=[_TAG], **needs("read", "power-policy"))
async def list_policies(ask: Asked) -> Policies:
    """All policies, and what the site may draw."""
    return await ask.of(PolicyService).policies(ask.who)


@post("/v1/power/policies/{name:str}/enable", tags=[_TAG], status_code=200, **needs("change", "power-policy", 404))
async def enable_policy(ask: Asked, name: NamePath) -> PolicyDetail:
    """Let it run. Another that did does not any more."""
    return await ask.of(PolicyService).enable(ask.who, name)


@post("/v1/power/policies/{name:str}/disable", tags=[_TAG], status_code=200, **needs("change", "power-policy", 404))
async def disable_policy(ask: Asked, name: NamePath) -> PolicyDetail:
    """Let it run no longer. Caps stay as they are."""
    return await ask.of(PolicyService).disable(ask.who, name)


@post("/v1/power/simulations", tags=[_TAG], status_code=200, **needs("change", "power-policy", body=True))
async def note_simulation(ask: Asked, data: JSONBody[SimulationSpec]) -> SimulationView:
    """Note that a policy's content was simulated, and what came of it."""
    return await ask.of(PolicyService).note_simulation(ask.who, data)


_POLICIES = Named("/v1/power/policies", PolicyService, "policy", tag=_TAG, kind="power-policy")
_POLICIES.show(PolicyService.policy, "One policy, with what it says.")
_POLICIES.put(
    PolicyService.put,
    "Create or replace a policy. Refused unless this very content was simulated, or `without_simulation` says why\n"
    "not. One that is enabled stays enabled, with its new content.",
    statuses=(409,),
)
_POLICIES.delete(PolicyService.delete, "Remove a policy that is not enabled.")
