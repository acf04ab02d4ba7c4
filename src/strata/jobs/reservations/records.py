"""Reservations, as they are asked for and shown. Their schedulers keep them; Strata keeps none."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.core.texts import NAME, Out
from strata.jobs.submission.records import Kind
from strata.schedulers.reservations import Reservation, ReservationSpec


class ReservationRequest(ReservationSpec, frozen=True, kw_only=True):
    """A reservation, and whose it is to be."""

    target: Annotated[str, Meta(pattern=NAME, max_length=63)]
    """Scheduler that keeps the reservation."""


class ReservationView(Reservation, frozen=True, kw_only=True):
    """A reservation of a target."""

    target: str
    kind: Kind


class Unread(Out, frozen=True, kw_only=True):
    """A target whose reservations nobody knows now."""

    target: str
    trouble: str


class ReservationList(Out, frozen=True, kw_only=True):
    """Reservations of all targets, by target and beginning."""

    items: tuple[ReservationView, ...]
    unread: tuple[Unread, ...]
