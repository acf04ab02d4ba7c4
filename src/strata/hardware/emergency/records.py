"""What the API takes and shows of taking power away in an emergency."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.core.texts import In, Out, ReasonText, SelectText
from strata.hardware.bmc.records import ManyOutcome


class EmergencyRequest(In, frozen=True, kw_only=True):
    """Take power away from nodes, chassis or whole cabinets, now."""

    select: SelectText
    reason: ReasonText
    confirm: Annotated[str, Meta(max_length=200)]
    """Must be ``power off N nodes`` with the right number, as the refusal of a wrong one says."""


class EmergencyReport(Out, frozen=True, kw_only=True):
    """What became of it."""

    outcome: ManyOutcome
    frozen: tuple[str, ...]
    """The freezes that keep it off; a person lifts them."""
    seconds: float
