"""The red button."""

from __future__ import annotations

from litestar import post
from litestar.params import JSONBody

from strata.api.rights import needs
from strata.api.services import Asked
from strata.hardware.emergency.records import EmergencyReport, EmergencyRequest
from strata.hardware.emergency.service import EmergencyService


@post("/v1/emergency-off", tags=["emergency"], status_code=200, **needs("create", "emergency", 404, 409, body=True))
async def emergency_off(ask: Asked, data: JSONBody[EmergencyRequest]) -> EmergencyReport:
    """Freeze the selected nodes and take their power away at once: no guard, no budget. `confirm` must say
    `power off N nodes` with the right number. Doing it again is safe."""
    return await ask.of(EmergencyService).power_off(ask.who, data)
