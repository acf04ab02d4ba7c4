"""Reservations of the schedulers that run jobs."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import PathParameter, QueryParameter

from strata.api.rights import needs
from strata.api.routing import Routes
from strata.api.services import Asked
from strata.core.texts import NAME
from strata.jobs.reservations.records import ReservationList
from strata.jobs.reservations.service import ReservationService

_TAG = "jobs"

TargetName = Annotated[str | None, QueryParameter(pattern=NAME, max_length=63, description="Of this target.")]
TargetPath = Annotated[str, PathParameter(pattern=NAME, max_length=63)]
IdPath = Annotated[str, PathParameter(pattern=r"^[A-Za-z0-9_.-]{1,64}$(?!\n)", max_length=64)]


@get("/v1/reservations", tags=[_TAG], **needs("read", "reservation", 404, 502))
async def list_reservations(ask: Asked, target: TargetName = None) -> ReservationList:
    """Reservations of all targets, as their schedulers tell of them now. Whoever runs jobs alone sees what is kept for
    their account."""
    return await ask.of(ReservationService).all(ask.who, target or "")


_ROUTES = Routes(ReservationService, "reservation", tag=_TAG)
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
