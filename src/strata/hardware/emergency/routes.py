"""The red button."""

from __future__ import annotations

from strata.api.routing import Routes
from strata.hardware.emergency.service import EmergencyService

_ROUTES = Routes(EmergencyService, "emergency", tag="emergency")
_ROUTES.post("emergency_off", "/v1/emergency-off", EmergencyService.power_off, "create", 404, 409)
