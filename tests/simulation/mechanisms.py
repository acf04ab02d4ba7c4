"""What keeps each promise, as switches. A check that still passes with its mechanism off would be worth nothing."""

from __future__ import annotations

import msgspec


class Mechanisms(msgspec.Struct, frozen=True, kw_only=True):
    """All on in real life."""

    durable: bool = True
    """The store acknowledges a write after it is written."""
    fencing: bool = True
    """Devices refuse a fence that is not above the last, and drivers one whose lead has run out."""
    intents: bool = True
    """What is about to be done is written down first."""
    guards: bool = True
    """The workload manager is asked before a node is taken down."""
    unknown_brake: bool = True
    """A destructive step waits until what it depends on is known."""
    holds: bool = True
    """The engine heeds holds."""
    disruption_budget: bool = True
    site_budget: bool = True
    redaction: bool = True
    """Secrets are blacked out of what drivers say."""
    validation: bool = True
    """What is desired is checked against the model."""
    audit: bool = True
    """Writes go through the ledger."""
    job_recovery: bool = True
    """Another controller takes up the jobs of a dead one."""


ALL = Mechanisms()
