"""Reservations of the schedulers that run jobs."""

from __future__ import annotations

from typing import Annotated

from litestar.params import PathParameter, QueryParameter

from strata.api.routing import Routes
from strata.core.texts import NAME
from strata.jobs.reservations.service import ReservationService

TargetName = Annotated[str | None, QueryParameter(pattern=NAME, max_length=63, description="Of this target.")]
TargetPath = Annotated[str, PathParameter(pattern=NAME, max_length=63)]
IdPath = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_.-]{1,64}$(?!\n)", max_length=64)]


_ROUTES = Routes(ReservationService, "reservation", tag="jobs")
_ROUTES.get("list_reservations", "/v1/reservations", ReservationService.all, 404, 502, target=TargetName)
_ROUTES.post("make_reservation", "/v1/reservations", ReservationService.make, "create", 404, 409, 502, success=201)
_ROUTES.delete(
    "end_reservation",
    "/v1/reservations/{target:str}/{ident:str}",
    ReservationService.end,
    404,
    409,
    502,
    target=TargetPath,
    ident=IdPath,
)
