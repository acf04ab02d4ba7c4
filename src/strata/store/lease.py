"""What all stores agree on about leases."""

from __future__ import annotations

import math
import secrets

from strata.core.errors import BadRequest, NotFound


def new_lease_id() -> int:
    """A number that no other lease has. Below 2**53, so that JSON keeps it."""
    return secrets.randbelow(2**53 - 1) + 1


def check_ttl(ttl: float) -> None:
    """Raise ``BadRequest`` unless ``ttl`` is a sensible number of seconds."""
    if not (math.isfinite(ttl) and 0 < ttl <= 86400 * 365):
        raise BadRequest("a lease lasts more than 0 seconds and at most a year", where=f"ttl {ttl}")


def lease_gone(lease: int) -> NotFound:
    """The error for writing under a lease that has ended."""
    return NotFound("the lease has ended; nothing was written", where=f"lease {lease}", hint="take a new lease")
