"""Reservations of the schedulers that run jobs."""

from __future__ import annotations

from typing import Annotated

from litestar import delete, get, post
from litestar.params import JSONBody, PathParameter, QueryParameter

from strata.api.rights import needs
from strata.api.services import Asked
from strata.core.texts import NAME
from strata.jobs.reservations.records import ReservationList, ReservationRequest, ReservationView
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


@post("/v1/reservations", tags=[_TAG], **needs("create", "reservation", 404, 409, 502, body=True))
async def make_reservation(ask: Asked, data: JSONBody[ReservationRequest]) -> ReservationView:
    """Have a scheduler keep nodes free for some accounts, for a time. Jobs name its id."""
    return await ask.of(ReservationService).make(ask.who, data)


@delete("/v1/reservations/{target:str}/{ident:str}", tags=[_TAG], **needs("delete", "reservation", 404, 409, 502))
async def end_reservation(ask: Asked, target: TargetPath, ident: IdPath) -> None:
    """End a reservation. Some schedulers end the jobs in it, others refuse while there are any."""
    await ask.of(ReservationService).end(ask.who, target, ident)
